"""Typical times: one formula for one step and for thousands, parts that add up, sane orders."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest

from engine.catalog.hardware import get_hardware
from engine.catalog.models import get_model
from engine.catalog.precision import get_format
from engine.errors import UnknownName
from engine.scheduling.plan import SequenceShape
from engine.simulator.efficiency import Setting, engine_ids, prior_table, resolve
from engine.simulator.formats import StorageFormats
from engine.simulator.intervals import Metric, interval
from engine.simulator.layout import Layout
from engine.simulator.roofline_executor import RooflineExecutor
from engine.simulator.step_price import Rates, Terms, price
from engine.simulator.step_shape import growing_contexts, scaled_shape
from engine.simulator.step_terms import StepTerms
from engine.simulator.typical import TypicalCostModel
from engine.simulator.validation.measurement import data_folder

MODELS = ("llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b", "qwen3-next-80b-a3b")
FORMATS = StorageFormats(get_format("fp16"), get_format("fp16"), get_format("fp16"))
NOTHING: Terms[float] = Terms(*[0.0] * len(Terms._fields))
DECODE = [SequenceShape(512 + index, 1, True) for index in range(8)]
PREFILL = [SequenceShape(0, 900, True), SequenceShape(256, 128, False)]
MIXED = [*DECODE, SequenceShape(0, 512, False)]


def _model(
    name: str = "llama-3.1-8b", device: str = "h100-sxm", devices: int = 1, engine: str = "vllm"
) -> TypicalCostModel:
    return TypicalCostModel(
        get_model(name), get_hardware(device), layout=Layout(tensor=devices), engine=engine
    )


def test_one_step_at_a_time_equals_all_steps_at_once() -> None:
    steps: list[tuple[TypicalCostModel, list[SequenceShape]]] = [
        (_model(name, devices=devices, engine=engine), shapes)
        for name in MODELS
        for devices in (1, 4)
        for engine in ("vllm", "transformers")
        for shapes in (DECODE, PREFILL, MIXED)
    ]
    alone = [model.cost(shapes).time for model, shapes in steps]
    rows = [StepTerms(model.step).of(model.step.measure(shapes)) for model, shapes in steps]
    terms = Terms(*np.array(rows).T)
    rates = Rates(*np.array([model.rates for model, _ in steps]).T)
    assert price(terms, rates).time == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("shapes", [DECODE, PREFILL, MIXED])
@pytest.mark.parametrize("name", MODELS)
def test_parts_add_up_and_no_step_beats_the_roofline(
    name: str, shapes: list[SequenceShape]
) -> None:
    cost = _model(name, devices=8).cost(shapes)
    assert sum(cost.parts) == pytest.approx(cost.time)
    assert min(cost.parts) >= 0
    assert cost.time > cost.ideal.time
    assert cost.efficiency == pytest.approx(cost.ideal.time / cost.time)
    assert cost.flops == cost.ideal.flops
    assert cost.bytes == cost.ideal.bytes


@pytest.mark.parametrize("what", ["bandwidth", "flops"])
def test_a_faster_device_is_never_slower(what: str) -> None:
    slow = get_hardware("a100-80-sxm")
    fast = (
        replace(slow, bandwidth=slow.bandwidth * 1.5)
        if what == "bandwidth"
        else replace(slow, dense_flops={key: 1.5 * v for key, v in slow.dense_flops.items()})
    )
    for shapes in (DECODE, PREFILL, MIXED):
        times = [
            TypicalCostModel(get_model("llama-3.1-8b"), device).cost(shapes).time
            for device in (slow, fast)
        ]
        assert times[1] <= times[0]


def test_more_work_takes_longer() -> None:
    model = _model()
    longer = [SequenceShape(4096, 1, True)] * 8
    assert model.cost(longer).time > model.cost(DECODE).time
    assert model.cost([*DECODE, *DECODE]).time > model.cost(DECODE).time


def test_overheads_are_those_of_the_engine() -> None:
    eager, compiled = _model(engine="transformers"), _model(engine="compiled")
    one = [SequenceShape(128, 1, True)]
    assert eager.cost(one).parts.launch > 2 * compiled.cost(one).parts.launch
    # Launches hide behind a long prefill.
    whole = [SequenceShape(0, 4096, True)]
    assert eager.cost(whole).parts.launch < 0.1 * eager.cost(whole).time


def test_devices_talk_to_each_other() -> None:
    assert _model().cost(DECODE).parts.communication == 0
    assert _model(devices=4).cost(DECODE).parts.communication > 0


def test_every_engine_and_device_has_rates() -> None:
    model = _model()
    for engine in engine_ids():
        rates = resolve(replace(model.setting, engine=engine))
        assert all(value >= 0 for value in rates)
        assert rates.gemm_rate > 0
    with pytest.raises(UnknownName) as error:
        _model(engine="nobody's")
    assert error.value.field == "engine"


def test_the_executor_takes_either_model() -> None:
    model = _model()
    assert RooflineExecutor(model).cost_model is model
    assert RooflineExecutor(model.ideal).cost_model is model.ideal


def test_a_scaled_shape_is_the_shape_of_its_sequences() -> None:
    step = _model("gpt-oss-20b").step
    listed = [SequenceShape(300, 1, True)] * 5 + [SequenceShape(0, 200, True)] * 2
    assert scaled_shape(step, [(5, 300, 1), (2, 0, 200)]) == step.measure(listed)


def test_gauss_points_give_the_mean_of_growing_steps() -> None:
    model = _model()
    steps = [model.cost([SequenceShape(500 + n, 1, True)]).time for n in range(1000)]
    points = [
        model.cost([SequenceShape(context, 1, True)]).time
        for context in growing_contexts(500, 1000)
    ]
    assert sum(points) / 2 == pytest.approx(sum(steps) / 1000, rel=1e-4)


@pytest.mark.parametrize("device", ["h100-sxm", "rtx-4090", "m3-max", "ryzen-7950x", "tpu-v6e"])
@pytest.mark.parametrize("metric", list(Metric))
def test_intervals_hold_their_value(metric: Metric, device: str) -> None:
    low, high = interval(metric, get_hardware(device))
    assert 0 < low < 1 < high


@pytest.mark.parametrize(("device", "hardware"), [("a100", "a100-80-sxm"), ("a40", "a40")])
def test_products_take_as_long_as_the_kernel_tables_say(device: str, hardware: str) -> None:
    """The curve over rows - bandwidth, knee, rate - before calibration, against Vidur's tables."""
    rates = resolve(Setting(get_hardware(hardware), FORMATS, "trtllm"), prior_table().values)
    errors = []
    with (data_folder() / "kernels.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            width, hidden, rows = (int(row[key]) for key in ("n_embd", "n_ffn", "num_tokens"))
            shape = {"mlp_up_proj": (width, 2 * hidden), "mlp_down_proj": (hidden, width)}
            if row["device"] != device or row["tp"] != "1" or row["op"] not in shape:
                continue
            inputs, outputs = shape[row["op"]]
            terms = NOTHING._replace(
                gemm_flops=2.0 * rows * inputs * outputs,
                gemm_bytes=2.0 * (inputs * outputs + rows * (inputs + outputs)),
                gemm_rows=float(rows),
            )
            predicted = price(terms, rates).operators
            errors.append(abs(1e3 * predicted / float(row["median_ms"]) - 1))
    assert len(errors) >= 78
    assert np.median(errors) < 0.08
    assert np.quantile(errors, 0.9) < 0.2


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_the_sums_are_those_of_the_operators(name: str, devices: int) -> None:
    model = _model(name, devices=devices)
    terms = StepTerms(model.step).of(model.step.measure(MIXED))
    ideal = model.ideal.cost(MIXED)
    flops = terms.gemm_flops + terms.head_flops + terms.expert_flops + terms.core_flops
    moved = terms.gemm_bytes + terms.head_bytes + terms.expert_bytes + terms.core_bytes
    assert flops == pytest.approx(ideal.flops / devices)
    assert moved + terms.move_bytes == pytest.approx(ideal.bytes / devices, rel=1e-6)
    links = sum(item.operator.link_bytes for item in ideal.operators)
    assert terms.link_bytes == pytest.approx(links)
    assert (terms.gemm_rows, terms.head_rows, terms.sequences) == (520, 8, 8)
