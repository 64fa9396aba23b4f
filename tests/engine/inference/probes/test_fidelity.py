"""A form of the model beside the file's own: checked against ``Judge`` and transformers."""

from __future__ import annotations

import math

import pytest
import torch

from engine.errors import InvalidRequest
from engine.inference.lane_settings import parse_kv, parse_weights
from engine.inference.probes.desk import ProbeDesk
from engine.inference.quantization.lane import logits_through_cache, open_lane
from engine.inference.quantization.quality import Judge
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.probes.probes_for_tests import llama
from tests.engine.inference.runs_for_tests import random_ids

pytestmark = pytest.mark.usefixtures("one_thread")

# Longer than what is compared at once, and no multiple of it.
IDS = random_ids(150, seed=4)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def desk() -> ProbeDesk:
    return ProbeDesk(tiny_random_checkpoint())


def ask(desk: ProbeDesk, **more: object) -> dict:
    return desk.answer("fidelity", {"token_ids": IDS, "weights": "float32", **more})


def test_the_same_weights_say_the_same(desk: ProbeDesk) -> None:
    found = ask(desk)
    assert max(found["kl"]) < 1e-6
    assert all(found["same_top"])
    assert len(found["kl"]) == len(found["same_top"]) == found["num_tokens"] == len(IDS)
    assert found["top1_agreement"] == 1
    assert found["perplexity"] == pytest.approx(found["reference_perplexity"], rel=1e-5)
    assert found["accuracy"] == found["reference_accuracy"]


def test_perplexity_and_accuracy_are_those_of_transformers(desk: ProbeDesk) -> None:
    ids = torch.tensor([IDS])
    with torch.inference_mode():
        out = llama()(ids, labels=ids)
    found = ask(desk)
    assert found["reference_perplexity"] == pytest.approx(math.exp(float(out.loss)), rel=1e-4)
    right = (out.logits[0, :-1].argmax(-1) == ids[0, 1:]).float().mean()
    assert found["reference_accuracy"] == pytest.approx(float(right), rel=1e-5)


@pytest.mark.parametrize(
    ("weights", "kv"),
    [
        ("int4-channel", "paged"),
        ("int8-tensor", "paged"),
        ("float32", "paged-int4"),
        ("float32", "paged-window-16-sinks-2"),
        ("bfloat16", "paged-int8"),
    ],
)
def test_it_is_what_the_judge_says(desk: ProbeDesk, weights: str, kv: str) -> None:
    checkpoint = tiny_random_checkpoint()
    tokens = checkpoint.tokenizer().vocab_size

    def logits(name: str, cache: str, chunk: int | None):
        lane = open_lane(checkpoint, parse_weights(name), activations=torch.float32, device=CPU)
        run = logits_through_cache(lane.transformer, parse_kv(cache), longest=len(IDS), chunk=chunk)
        return lambda ids: run(ids)[:, :tokens]

    with Judge(logits("float32", "paged", None), [IDS]) as judge:
        wanted = judge.judge(logits(weights, kv, 64))
    found = ask(desk, weights=weights, kv_cache=kv)
    assert found["mean_kl"] == pytest.approx(wanted.mean_kl, rel=1e-3, abs=1e-7)
    assert found["mean_kl"] > 0
    assert found["top1_agreement"] == pytest.approx(wanted.top1_agreement, rel=1e-5)
    assert found["perplexity"] == pytest.approx(wanted.perplexity, rel=1e-4)


def test_where_the_cache_lies_changes_nothing(desk: ProbeDesk) -> None:
    paged, contiguous, off = (
        ask(desk, weights="int8", kv_cache=kv) for kv in ("paged", "contiguous", "off")
    )
    assert paged["kl"] == contiguous["kl"] == off["kl"]
    assert paged["kv_bytes_per_token"] == contiguous["kv_bytes_per_token"] > 0
    assert off["kv_bytes_per_token"] == 0


def test_bytes_and_bits_are_the_forms_own(desk: ProbeDesk) -> None:
    plain, channel = ask(desk), ask(desk, weights="int8-channel", kv_cache="paged-int8")
    assert plain["bits_per_weight"] == 32
    assert 8 < channel["bits_per_weight"] < 9
    assert channel["weight_bytes"] < plain["weight_bytes"] / 2
    config = tiny_random_checkpoint().config
    heads = 2 * config.num_layers * config.num_kv_heads
    assert channel["kv_bytes_per_token"] == heads * (config.head_dim + 2)


def test_the_held_out_text(desk: ProbeDesk) -> None:
    found = desk.answer("fidelity", {"weights": "int4", "held_out": 40})
    assert found["num_tokens"] in (40, 41)  # with the begin token, where there is one
    single = desk.answer("fidelity", {"weights": "int4", "token_ids": IDS[:1]})
    assert single["perplexity"] is single["accuracy"] is None


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"held_out": 1}, "held_out"),
        ({"held_out": 513}, "held_out"),
        ({"held_out": 9, "token_ids": [1]}, "held_out"),
        ({}, "token_ids"),
        ({"token_ids": [1], "weights": "int3"}, "weights"),
        ({"token_ids": [1], "kv_cache": "paged-int2"}, "kv_cache"),
        ({"token_ids": [1], "ablations": []}, "ablations"),
    ],
)
def test_refusals(desk: ProbeDesk, arguments: dict, field: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        desk.answer("fidelity", {"weights": "int4", **arguments})
    assert refusal.value.field == field
