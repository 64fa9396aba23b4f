"""Whole runs: driven by the real loop, equal to the steps one by one, bounded."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.catalog.hardware import get_hardware
from engine.catalog.models import get_model
from engine.catalog.this_machine import Calibration, save_calibration
from engine.errors import EngineError, InvalidRequest, UnknownName
from engine.scheduling.events import RequestPreempted, StepCompleted
from engine.scheduling.plan import Phase, SequenceShape
from engine.simulator import scenario as module
from engine.simulator.features import Disaggregation, Offload, Speculation
from engine.simulator.layout import Layout
from engine.simulator.scenario import Scenario, simulate
from engine.simulator.step_cost import StepCostModel
from tests.engine.simulator.cases import ALL_MODELS

BASE = Scenario(model="llama-2-7b", hardware="a100-80-sxm", weights="fp16", kv="fp16")


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from([model.id for model in ALL_MODELS]),
    hardware=st.sampled_from(["h100-sxm", "rtx-4090", "m4-max", "i9-13900k", "tpu-v5e"]),
    batch=st.integers(1, 5),
    prompt=st.integers(1, 300),
    output=st.integers(1, 40),
    devices=st.sampled_from([1, 2, 8]),
)
def test_a_run_is_the_sum_of_its_steps(
    model: str, hardware: str, batch: int, prompt: int, output: int, devices: int
) -> None:
    """The slow way: price every step by hand, without the loop."""
    report = simulate(
        Scenario(model, hardware, devices, batch=batch, prompt_tokens=prompt, output_tokens=output)
    )
    cost_model = StepCostModel(
        get_model(model), get_hardware(hardware), layout=Layout(tensor=devices)
    )
    prefill = cost_model.cost([SequenceShape(0, prompt, True)] * batch).time
    gaps = [
        cost_model.cost([SequenceShape(prompt + index, 1, True)] * batch).time
        for index in range(output - 1)
    ]
    assert report.ttft == pytest.approx(prefill)
    assert report.makespan == pytest.approx(prefill + sum(gaps))
    assert report.tokens_per_s == pytest.approx(batch * output / (prefill + sum(gaps)))
    if gaps:
        assert report.itl == pytest.approx(sum(gaps) / len(gaps))
    else:
        assert report.itl is None
    following = prompt + (output // 2 or 1) - 1
    assert report.decode.shape == cost_model.step.measure(
        [SequenceShape(following, 1, True)] * batch
    )
    assert report.prefill.time == pytest.approx(prefill)


def test_the_loop_runs_one_prefill_and_then_decodes_without_preemption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[Any] = []
    original = module._Run.hear

    def hear(self: Any, event: Any) -> None:
        heard.append(event)
        original(self, event)

    monkeypatch.setattr(module._Run, "hear", hear)
    report = simulate(replace(BASE, batch=3, prompt_tokens=17, output_tokens=20))
    steps = [event for event in heard if isinstance(event, StepCompleted)]
    assert [step.phase for step in steps] == [Phase.PREFILL, *[Phase.DECODE] * 19]
    assert all(step.batch == 3 for step in steps)
    assert not any(isinstance(event, RequestPreempted) for event in heard)
    # The pool's peak, as the scheduler counted it, is what the memory figure says.
    assert max(step.kv_blocks_used for step in steps) == 3 * report.memory.paged.blocks
    assert report.memory.paged.blocks == 3  # 36 positions: the 37th token is not fed back


def test_mean_itl_is_that_of_the_middle_step() -> None:
    report = simulate(BASE)
    assert report.decode.time == pytest.approx(report.itl, rel=1e-12)


def test_a_model_that_does_not_fit_still_gets_its_times() -> None:
    report = simulate(Scenario("llama-3.1-405b", "rtx-4060"))
    assert not report.memory.fits
    assert report.ttft > 0
    assert any("more memory" in line for line in report.assumptions)


def test_a_context_beyond_the_models_is_said() -> None:
    report = simulate(replace(BASE, prompt_tokens=5000))
    assert any("more than the model's context of 4,096" in line for line in report.assumptions)
    assert not any("context of" in line for line in simulate(BASE).assumptions)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": "fp8", "kv": "fp8"}, "has no fp8 rate: it multiplies in bf16"),
        ({"devices": 4}, "ring all-reduces"),
        ({"devices": 2, "hardware": "m4-max"}, "No link is known"),
        ({"devices": 48}, "kept more than once"),
        ({"hardware": "rtx-3060-12"}, "Not confirmed"),
        ({"model": "gemma-3-1b"}, "last window only"),
        ({"model": "mixtral-8x7b"}, "Routing is uniform: 2 of 8 experts"),
        ({"model": "deepseek-v3"}, "expands its whole context"),
        ({"model": "deepseek-v3", "devices": 8}, "Each device keeps the latents"),
        ({"model": "deepseek-v3", "devices": 8}, "Done whole on each device: query down"),
        ({"model": "glm-5"}, "the core sees 2,048 positions at most"),
        ({"model": "deepseek-v4-pro"}, "the fewest reads are counted"),
        ({"model": "deepseek-v4-flash"}, "4 residual streams"),
        ({"model": "qwen3-next-80b-a3b"}, "one state a sequence"),
        ({"model": "nemotron-3-nano-30b-a3b"}, "one state a sequence"),
        ({"model": "gpt-oss-20b"}, "Released as MXFP4"),
        ({"output_tokens": 1}, "the one that would follow"),
    ],
)
def test_assumptions_are_told(changes: dict[str, Any], words: str) -> None:
    assert any(words in line for line in simulate(replace(BASE, **changes)).assumptions)


def test_more_devices_take_less_time_but_not_less_than_their_share() -> None:
    one, four = simulate(BASE), simulate(replace(BASE, devices=4))
    assert one.ttft / 4 < four.ttft < one.ttft
    assert one.itl is not None
    assert four.itl is not None
    assert one.itl / 4 < four.itl < one.itl


def test_this_machine_can_be_chosen(state_dir: object) -> None:
    scenario = Scenario("smollm2-135m", "this-machine", weights="fp32", kv="fp32")
    with pytest.raises(UnknownName, match="calibrate"):
        simulate(scenario)
    rates = {"fp32": 1e11}
    save_calibration(Calibration(2e10, rates, 10**10, "cpu", "cpu", "2.13", 2, "2026-11-30"))
    report = simulate(scenario)
    assert report.cost_model.hardware.kind == "measured"
    assert any("measured on this machine" in line for line in report.assumptions)
    # Weights alone, read once: 134.5 M x 4 B / 20 GB/s.
    assert report.itl == pytest.approx(134_515_008 * 4 / 2e10, rel=0.2)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"devices": 0}, "devices"),
        ({"devices": 1025}, "devices"),
        ({"batch": 0}, "batch"),
        ({"batch": 4097}, "batch"),
        ({"batch": True}, "batch"),
        ({"batch": 1.0}, "batch"),
        ({"batch": "1"}, "batch"),
        ({"batch": float("nan")}, "batch"),
        ({"prompt_tokens": 0}, "prompt_tokens"),
        ({"prompt_tokens": 2_000_001}, "prompt_tokens"),
        ({"prompt_tokens": -1}, "prompt_tokens"),
        ({"prompt_tokens": 10**30}, "prompt_tokens"),
        ({"output_tokens": 0}, "output_tokens"),
        ({"output_tokens": 131_073}, "output_tokens"),
        ({"batch": 4096, "output_tokens": 65}, "output_tokens"),
        ({"batch": 1024, "prompt_tokens": 16_384}, "prompt_tokens"),
        ({"data": 0}, "data"),
        ({"stages": 2000}, "stages"),
        ({"experts": 1}, "experts"),
        ({"imbalance": 0.5}, "imbalance"),
        ({"imbalance": float("nan")}, "imbalance"),
        ({"imbalance": None}, "imbalance"),
        ({"per_node": 0}, "per_node"),
        ({"per_node": 1.5}, "per_node"),
        ({"network_gb_s": 0}, "network_gb_s"),
        ({"engine": 5}, "engine"),
        ({"memory_utilization": 0}, "memory_utilization"),
        ({"memory_utilization": float("nan")}, "memory_utilization"),
        ({"chunk_tokens": 0}, "chunk_tokens"),
        ({"prefix_hit_rate": "half"}, "prefix_hit_rate"),
        ({"prefix_hit_rate": 1.5}, "prefix_hit_rate"),
        ({"speculation": {"drafts": 3}}, "speculation"),
        ({"usd_per_hour": -1}, "usd_per_hour"),
        ({"usd_per_hour": float("inf")}, "usd_per_hour"),
        ({"idle_share": 2}, "idle_share"),
        ({"model": 5}, "model"),
        ({"hardware": None}, "hardware"),
        ({"weights": None}, "weights"),
        ({"activations": 16}, "activations"),
    ],
)
def test_wrong_values_name_their_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        replace(BASE, **changes)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "field", "kind"),
    [
        ({"model": "gpt-5"}, "model", UnknownName),
        ({"hardware": "b1000"}, "hardware", UnknownName),
        ({"weights": "int3"}, "weights", UnknownName),
        ({"kv": "int3"}, "kv", UnknownName),
        ({"activations": "int3"}, "activations", UnknownName),
        ({"activations": "q4_0"}, "activations", InvalidRequest),
    ],
)
def test_unknown_names_name_their_field(
    changes: dict[str, Any], field: str, kind: type[EngineError]
) -> None:
    with pytest.raises(kind) as caught:
        simulate(replace(BASE, **changes))
    assert caught.value.field == field


def test_a_scenario_is_a_document() -> None:
    given = {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "speculation": {"drafts": 3, "draft_model": None},
        "offload": {},
        "disaggregation": {"devices": 2, "link_gb_s": 25},
    }
    scenario = Scenario.from_document(given)
    assert scenario.speculation == Speculation(3)
    assert scenario.offload == Offload()
    assert scenario.disaggregation == Disaggregation(2, 25)
    assert Scenario.from_document(asdict(scenario)) == scenario


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"model": None}, "model"),
        ({"speculation": {"guesses": 3}}, "speculation.guesses"),
        ({"speculation": {"drafts": "many"}}, "speculation.drafts"),
        ({"speculation": {"drafts": None}}, "speculation.drafts"),
        ({"speculation": {"drafts": 2.5}}, "speculation.drafts"),
        ({"speculation": {"draft_model": 7}}, "speculation.draft_model"),
        ({"speculation": {"acceptance": True}}, "speculation.acceptance"),
        ({"speculation": 4}, "speculation"),
        ({"offload": {"link_gb_s": 0}}, "offload.link_gb_s"),
        ({"disaggregation": {"devices": 0}}, "disaggregation.devices"),
    ],
)
def test_wrong_documents_name_their_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Scenario.from_document({"model": "llama-3.1-8b", "hardware": "h100-sxm", **changes})
    assert caught.value.field == field


@pytest.mark.parametrize("missing", ["model", "hardware"])
def test_a_document_needs_a_model_and_a_device(missing: str) -> None:
    given = {"model": "llama-3.1-8b", "hardware": "h100-sxm"}
    del given[missing]
    with pytest.raises(InvalidRequest) as caught:
        Scenario.from_document(given)
    assert caught.value.field == missing


@pytest.mark.serial
@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 64, "output_tokens": 4096},
        {"batch": 4096, "output_tokens": 64},
        {"batch": 8, "prompt_tokens": 2_000_000, "output_tokens": 1},
    ],
)
def test_the_largest_scenarios_come_to_an_end(changes: dict[str, Any]) -> None:
    scenario = replace(BASE, **changes)
    document: Any = simulate(scenario).to_document()
    assert document["ttft"]["value"] > 0
    assert document["tokens_per_s"]["value"] > 0
