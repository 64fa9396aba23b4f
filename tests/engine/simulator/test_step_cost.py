"""The fast path against the slow one, and what must hold for any model, device and batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.catalog.hardware import get_hardware
from engine.catalog.models import ModelSpec, get_model
from engine.errors import InvalidRequest, UnknownName
from engine.scheduling.plan import SequenceShape
from engine.simulator.layout import Layout
from engine.simulator.roofline import Bound
from engine.simulator.step_cost import StepCost, StepCostModel
from tests.engine.simulator.cases import ALL_MODELS, batches, device, shapes, tiny

models = st.sampled_from(ALL_MODELS)
hardware = st.builds(
    device,
    bandwidth=st.floats(1e9, 1e13),
    flops=st.floats(1e10, 1e16),
    link=st.none() | st.floats(1e9, 1e12),
)
formats = st.sampled_from(["bf16", "fp16", "q4_0", "q8_0", "int4-g128"])


@settings(deadline=None)
@given(
    model=models,
    machine=hardware,
    weights=formats,
    kv=formats,
    devices=st.sampled_from([1, 2, 3, 8, 16]),
    batch=batches,
)
def test_fast_equals_slow(model, machine, weights, kv, devices, batch) -> None:
    cost_model = StepCostModel(model, machine, weights, kv, layout=Layout(tensor=devices))
    cost = cost_model.cost(batch)
    operators = cost.operators
    assert cost.flops == pytest.approx(devices * sum(p.operator.flops for p in operators))
    assert cost.bytes == pytest.approx(devices * sum(p.operator.bytes for p in operators))
    assert cost.time == pytest.approx(sum(p.time for p in operators))
    compute = sum(p.operator.flops / cost_model.roofline.peak(p.operator) for p in operators)
    memory = sum(p.operator.bytes for p in operators) / machine.bandwidth
    assert cost.bound is (Bound.COMPUTE if compute > memory else Bound.MEMORY)
    for priced in operators:
        expected = max(
            priced.operator.flops / cost_model.roofline.peak(priced.operator),
            priced.operator.bytes / machine.bandwidth,
        )
        speed = cost_model.roofline.link
        link = priced.operator.link_bytes / speed if speed else 0
        assert priced.time == pytest.approx(expected + link)


@settings(deadline=None)
@given(model=models, batch=batches)
def test_no_step_beats_the_roofline(model: ModelSpec, batch: list[SequenceShape]) -> None:
    cost_model = StepCostModel(model, get_hardware("h100-sxm"))
    cost = cost_model.cost(batch)
    assert cost.flops / cost.time <= cost_model.curve.attainable(cost.intensity) * (1 + 1e-9)


@settings(deadline=None)
@given(
    model=models,
    batch=batches,
    bandwidth=st.floats(1e9, 1e13),
    flops=st.floats(1e10, 1e16),
    faster=st.floats(1, 100),
)
def test_more_bandwidth_or_flops_is_never_slower(model, batch, bandwidth, flops, faster) -> None:
    def seconds(scale_bandwidth: float, scale_flops: float) -> float:
        machine = device(bandwidth * scale_bandwidth, flops * scale_flops)
        return StepCostModel(model, machine).cost(batch).time

    base = seconds(1, 1)
    assert seconds(faster, 1) <= base * (1 + 1e-12)
    assert seconds(1, faster) <= base * (1 + 1e-12)
    assert seconds(faster, faster) == pytest.approx(base / faster)


def _parts(cost_model: StepCostModel, batch: Sequence[SequenceShape]) -> list[StepCost]:
    return [cost_model.cost([shape]) for shape in batch]


@settings(deadline=None)
@given(model=models, batch=batches)
def test_flops_and_cache_of_a_batch_are_the_sum_of_its_parts(
    model: ModelSpec, batch: list[SequenceShape]
) -> None:
    cost_model = StepCostModel(model, device())
    whole, parts = cost_model.cost(batch), _parts(cost_model, batch)
    assert whole.flops == pytest.approx(sum(part.flops for part in parts))

    def cache(cost: StepCost) -> float:
        return sum(priced.operator.kv_bytes for priced in cost.operators)

    assert cache(whole) == pytest.approx(sum(cache(part) for part in parts))


@settings(deadline=None)
@given(model=models, batch=batches)
def test_a_batch_takes_no_less_than_each_part_and_no_more_than_all(
    model: ModelSpec, batch: list[SequenceShape]
) -> None:
    cost_model = StepCostModel(model, device())
    whole, parts = cost_model.cost(batch), _parts(cost_model, batch)
    assert whole.time >= max(part.time for part in parts) * (1 - 1e-9)
    assert whole.time <= sum(part.time for part in parts) * (1 + 1e-9)
    assert whole.bytes <= sum(part.bytes for part in parts) * (1 + 1e-9)


@settings(deadline=None)
@given(model=models, shape=shapes, longer=st.integers(1, 5000))
def test_a_longer_prefix_never_costs_less(
    model: ModelSpec, shape: SequenceShape, longer: int
) -> None:
    cost_model = StepCostModel(model, device())
    far = shape._replace(prefix_tokens=shape.prefix_tokens + longer)
    assert cost_model.cost([far]).time >= cost_model.cost([shape]).time


@settings(max_examples=50, deadline=None)
@given(model=models, batch=batches)
def test_more_bits_never_move_fewer_bytes(model: ModelSpec, batch: list[SequenceShape]) -> None:
    def moved(weights: str, kv: str) -> float:
        return StepCostModel(model, device(), weights, kv, "bf16").cost(batch).bytes

    for narrow, wide in (("q4_0", "fp8"), ("fp8", "q8_0"), ("q8_0", "bf16"), ("bf16", "fp32")):
        assert moved(narrow, "bf16") <= moved(wide, "bf16")
    # "fp8" caches of sparse latents keep the rotated key in 16 bits: more than 8.5 bits a number.
    for narrow, wide in (("q4_0", "q8_0"), ("fp8", "bf16"), ("q8_0", "bf16"), ("bf16", "fp32")):
        assert moved("bf16", narrow) <= moved("bf16", wide)


def test_what_is_remembered_does_not_leak_into_other_batches() -> None:
    model, machine = get_model("smollm2-135m"), device()
    warm = StepCostModel(model, machine)
    for tokens in range(1, 200):
        for samples in (True, False):
            warm.cost([SequenceShape(7, tokens, samples)])
    for tokens in (1, 50, 199):
        for prefix in (0, 1000):
            batch = [SequenceShape(prefix, tokens, True), SequenceShape(0, 3, False)]
            cold = StepCostModel(model, machine).cost(batch)
            assert (warm.cost(batch).time, warm.cost(batch).flops) == (cold.time, cold.flops)


def test_memory_of_the_cost_model_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.simulator.step_cost._MAX_REMEMBERED", 10)
    cost_model = StepCostModel(tiny(), device())
    for tokens in range(1, 100):
        cost_model.cost([SequenceShape(0, tokens, True)])
    assert len(cost_model._remembered) <= 10


SPEED = ["smollm2-135m", "gpt-oss-20b", "deepseek-v3", "deepseek-v4-flash", "qwen3-next-80b-a3b"]


@pytest.mark.serial
@pytest.mark.parametrize("model", SPEED)
def test_a_step_of_64_sequences_is_priced_in_under_300_microseconds(model: str) -> None:
    cost_model = StepCostModel(get_model(model), device())
    rounds = []
    for offset in range(200):
        batch = [SequenceShape(offset + index, 1, True) for index in range(64)]
        start = time.perf_counter()
        cost_model.cost(batch)
        rounds.append(time.perf_counter() - start)
    assert median(rounds) < 300e-6


def test_decode_is_bound_by_memory_and_a_long_prompt_by_compute() -> None:
    cost_model = StepCostModel(get_model("llama-3.1-8b"), get_hardware("h100-sxm"))
    assert cost_model.cost([SequenceShape(1000, 1, True)]).bound is Bound.MEMORY
    assert cost_model.cost([SequenceShape(0, 2048, True)]).bound is Bound.COMPUTE
    # Batching moves products with weights towards compute; the attention core stays where it is.
    big = cost_model.cost([SequenceShape(100, 1, True)] * 1024)
    bounds = {priced.operator.name: priced.bound for priced in big.operators}
    assert bounds["gate and up projection"] is Bound.COMPUTE
    assert bounds["attention"] is Bound.MEMORY


def test_the_rate_follows_activations_and_traffic_the_weights() -> None:
    model, h100 = get_model("llama-3.1-8b"), get_hardware("h100-sxm")
    prompt, token = [SequenceShape(0, 4096, True)], [SequenceShape(500, 1, True)]
    wide = StepCostModel(model, h100)
    narrow = StepCostModel(model, h100, weights="int4-g128")
    eight = StepCostModel(model, h100, weights="fp8")
    # W4A16 computes at the bf16 rate; W8A8 at the fp8 rate.
    assert narrow.cost(prompt).time > 0.9 * wide.cost(prompt).time
    assert eight.cost(prompt).time < 0.7 * wide.cost(prompt).time
    assert narrow.cost(token).time < 0.35 * wide.cost(token).time


@pytest.mark.parametrize("devices", [0, -1, 1025])
@pytest.mark.parametrize("field", ["tensor", "data", "stages", "per_node"])
def test_the_number_of_devices_is_bounded(field: str, devices: int) -> None:
    values: dict[str, Any] = {field: devices}
    with pytest.raises(InvalidRequest) as caught:
        Layout(**values)
    assert caught.value.field == field


@pytest.mark.parametrize("field", ["weights", "kv", "activations"])
def test_unknown_formats_name_their_field(field: str) -> None:
    names: dict[str, Any] = {field: "int3"}
    with pytest.raises(UnknownName) as caught:
        StepCostModel(tiny(), device(), **names)
    assert caught.value.field == field


def test_activations_must_be_a_format_of_arithmetic() -> None:
    with pytest.raises(InvalidRequest) as caught:
        StepCostModel(tiny(), device(), activations="q4_0")
    assert caught.value.field == "activations"
