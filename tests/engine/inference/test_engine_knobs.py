"""The engine as one object: knobs, refusals, and probes as messages."""

from __future__ import annotations

import time
from typing import Any

import pytest

from engine.errors import InvalidRequest
from engine.inference import messages as m
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from tests.engine.inference.engine_for_tests import Bench, ask

pytestmark = pytest.mark.usefixtures("one_thread")


def test_knobs_are_turned_for_open_and_later_lanes(bench: Bench) -> None:
    bench.engine.configure(m.Configure("k", max_step_tokens=4, policy="fair", max_running=1))
    bench.run(ask(max_tokens=2), ask("b", kv_cache="contiguous", max_tokens=2))
    assert bench.of(m.Configured, "k") == [m.Configured("k", 1, 4, "fair", None)]
    for name in ("a", "b"):
        assert max(step.tokens for step in bench.of(m.Step, name)) <= 4
    info = bench.engine.info
    assert (info.policy, info.max_step_tokens, info.max_running) == ("fair", 4, 1)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"policy": "loudest"}, "policy"),
        ({"max_running": 0}, "max_running"),
        ({"max_step_tokens": 0}, "max_step_tokens"),
        ({"usable_blocks": 0}, "usable_blocks"),
        ({"usable_blocks": 10_000}, "usable_blocks"),
    ],
)
def test_senseless_knobs_are_refused_and_nothing_changes(
    bench: Bench, change: dict[str, Any], field: str
) -> None:
    before = bench.engine.info
    bench.engine.configure(m.Configure("k", **change))
    assert bench.of(m.Failed, "k")[0].field == field
    assert bench.engine.info == before
    bench.run(ask())
    assert bench.of(m.Done)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kv_cache": "contiguous", "prefix_cache": True}, "kv_cache"),
    ({"kv_cache": "off", "n": 2}, "kv_cache"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"min_tokens": 13}, "min_tokens"),
    ({"weights": "int3"}, "weights"),
    ({"kv_cache": "heap"}, "kv_cache"),
    (
        {"kv_cache": "off", "speculation": SpeculationSettings(SpeculationMethod.NGRAM)},
        "speculation",
    ),
    ({"speculation": SpeculationSettings(SpeculationMethod.DRAFT)}, "speculation.method"),
    (
        {"speculation": SpeculationSettings(SpeculationMethod.EARLY_EXIT, exit_layer=2)},
        "speculation.exit_layer",
    ),
    ({"repetition_penalty": float("nan")}, "repetition_penalty"),
    ({"logit_bias": ((10**6, 1.0),)}, "logit_bias"),
    ({"top_logprobs": 21}, "top_logprobs"),
]


@pytest.mark.parametrize(("fields", "field"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_makes_no_sense_is_refused_before_anything_is_loaded(
    bench: Bench, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        bench.engine.prepare(ask(**fields), time.perf_counter())
    assert refusal.value.field == field
    assert refusal.value.message


def test_probes_are_answered_as_documents(bench: Bench) -> None:
    question = m.Probe("p", "attention", {"token_ids": [1, 2, 3], "layer": 0, "head": 1})
    document = bench.engine.probe(question).document
    assert document["kind"] == "attention"
    assert document["basis"] == "measured"


@pytest.mark.parametrize(
    ("kind", "arguments", "field"),
    [
        ("colours", {}, "kind"),
        ("attention", {"token_ids": [1], "layer": 0, "head": 0, "tail": 1}, "tail"),
        ("attention", {"token_ids": [1], "layer": 0}, "head"),
        ("attention", {"token_ids": [1], "layer": True, "head": 0}, "layer"),
        ("attention", {"token_ids": [], "layer": 0, "head": 0}, "token_ids"),
        ("attention", {"token_ids": "1", "layer": 0, "head": 0}, "token_ids"),
        ("comparison", {"token_ids": [1, 2], "ablations": ["all"]}, "ablations"),
        ("logit-lens", {"token_ids": [1], "position": 1}, "position"),
    ],
)
def test_senseless_probes_name_the_field(
    bench: Bench, kind: str, arguments: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        bench.engine.probe(m.Probe("p", kind, arguments))
    assert refusal.value.field == field
