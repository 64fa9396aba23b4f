"""Lanes beside each other on the tiny model, by the function and by the command."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from engine.__main__ import app
from engine.inference.executor import TorchExecutor
from engine.inference.lane_settings import KVSettings, parse_kv, parse_weights
from engine.inference.model.reference import ReferenceModel
from engine.inference.quantization.lane import go_on, logits_through_cache, open_lane
from engine.inference.quantization.report import PROMPTS, TEXT_TOKENS, report_quality
from engine.inference.weights.default import find_default_model
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.runs_for_tests import CPU, alone, random_ids, tiny, tiny_reference

pytestmark = pytest.mark.usefixtures("one_thread", "state_dir")

PLAIN = KVSettings()


@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_all_positions_are_scored_whatever_the_chunks(chunk: int | None) -> None:
    ids = random_ids(50, seed=3)
    logits_of = logits_through_cache(tiny(), PLAIN, longest=60, chunk=chunk)
    expected = tiny_reference().logits(ids)
    torch.testing.assert_close(logits_of(ids), expected, rtol=1e-4, atol=2e-4)
    shorter = random_ids(9, seed=4)  # over what the first window left in the cache
    expected = tiny_reference().logits(shorter)
    torch.testing.assert_close(logits_of(shorter), expected, rtol=1e-4, atol=2e-4)


def test_going_on_is_what_a_request_gets() -> None:
    executor = TorchExecutor(tiny(), num_blocks=64)
    prompt = random_ids(21, seed=5)
    run = go_on(executor, prompt, 20, frozenset())
    assert list(run.token_ids) == alone(TorchExecutor(tiny(), num_blocks=64), prompt, 20)
    assert len(run.step_seconds) == 19
    assert min(run.step_seconds) > 0
    stop = frozenset(run.token_ids[4:5])
    ended = go_on(executor, prompt, 20, stop).token_ids
    assert ended[-1] in stop
    assert ended == run.token_ids[: len(ended)]


@pytest.mark.parametrize(
    ("name", "bits"), [("float32", 32), ("bfloat16", 16), ("int8-g32", 8.5), ("int4-g32-gptq", 5)]
)
def test_a_lane_is_opened_by_its_name(name: str, bits: float) -> None:
    checkpoint = tiny_random_checkpoint()
    lane = open_lane(checkpoint, parse_weights(name), activations=torch.float32, device=CPU)
    assert lane.bits_per_weight == pytest.approx(bits, rel=1e-3)
    assert lane.weight_bytes == lane.transformer.weights.nbytes
    expected = torch.bfloat16 if name == "bfloat16" else torch.float32
    assert lane.transformer.dtype is expected


def test_the_report_of_two_lanes() -> None:
    checkpoint = tiny_random_checkpoint()
    names = ("int4-channel", "float32", "int8-g32")
    heard: list[str] = []
    report = report_quality(
        checkpoint,
        [(parse_weights(name), PLAIN) for name in names],
        device=CPU,
        num_tokens=300,
        random_weights=True,
        say=heard.append,
    )
    four, same, eight = report.lanes
    assert same.quality.mean_kl == pytest.approx(0, abs=1e-6)
    assert same.quality.top1_agreement == 1.0
    assert 0 < 20 * eight.quality.mean_kl < four.quality.mean_kl
    assert eight.quality.p99_kl > eight.quality.mean_kl
    assert four.weight_bytes < eight.weight_bytes < same.weight_bytes
    assert (report.num_tokens, report.source_format) == (300, "F32")
    assert same.samples == report.reference_samples
    tokenizer = checkpoint.tokenizer()
    prompt = tokenizer.encode_prompt(PROMPTS[0])
    stop = frozenset(checkpoint.config.eos_token_ids)
    expected = ReferenceModel(checkpoint).greedy(prompt, TEXT_TOKENS, stop)
    assert report.reference_samples[0].text == tokenizer.decode(expected)
    assert len(heard) == 4
    assert json.loads(json.dumps(report.to_document()))["lanes"][0]["weights"] == four.weights


def test_a_cache_is_judged_too() -> None:
    lanes = [
        (parse_weights("float32"), parse_kv(name)) for name in ("paged", "paged-window-32-sinks-4")
    ]
    report = report_quality(tiny_random_checkpoint(), lanes, device=CPU, num_tokens=300)
    plain, windowed = report.lanes
    assert plain.quality.mean_kl == pytest.approx(0, abs=1e-6)
    assert windowed.quality.mean_kl > 1e-3


def test_the_command_says_what_it_measured() -> None:
    options = ["quality", "--model", "tiny", "--tokens", "200", "--weights", "int8-channel"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert "The file's own format is F32" in result.stdout
    assert "int8-channel-rtn" in result.stdout
    assert "These weights are random" in result.stdout
    assert PROMPTS[0] in result.stdout
    result = CliRunner().invoke(app, [*options, "--kv", "paged", "--json"])
    document = json.loads(result.stdout)
    assert [lane["weights"] for lane in document["lanes"]] == ["int8-channel-rtn", "float32"]


@pytest.mark.parametrize(
    ("option", "value"), [("--weights", "int3"), ("--kv", "sideways"), ("--model", "nowhere")]
)
def test_wrong_options_are_named(option: str, value: str) -> None:
    result = CliRunner().invoke(app, ["quality", option, value])
    assert result.exit_code == 2
    assert option in result.output


def test_the_blocks_of_the_default_file_are_its_weights() -> None:
    """Without a bit expanded or lost; the table of all schemes is in the benchmarks."""
    checkpoint = find_default_model(fetch=False).open()
    ids = checkpoint.tokenizer().encode(PROMPTS[0])
    logits = []
    for name in ("float32", "file"):
        lane = open_lane(checkpoint, parse_weights(name), activations=torch.float32, device=CPU)
        logits.append(logits_through_cache(lane.transformer, PLAIN, longest=len(ids))(ids))
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-3)
    assert lane.weight_bytes < 100e6
    # 5 bits of Q4_1 in the layers, 8.5 of Q8_0 in the embedding.
    assert lane.bits_per_weight == pytest.approx(5.737, abs=0.001)
