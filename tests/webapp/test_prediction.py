"""The prediction beside a real step: only what was calibrated, for the engine that runs."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import starmap

import pytest
from structlog.testing import capture_logs

from engine.catalog.attention import InterleavedAttention, SlidingAttention
from engine.catalog.lane_calibration import LaneCalibration, MeasuredStep, Overheads
from engine.catalog.this_machine import Calibration, save_calibration, this_machine
from engine.inference.messages import EngineInfo
from engine.scheduling.plan import SequenceShape
from engine.simulator.step_cost import StepCostModel
from tests.webapp.fake_engine import INFO
from webapp.prediction import (
    RequestPrediction,
    StepPrediction,
    StepPredictor,
    TypicalTime,
    model_spec,
    windowed,
)

CALIBRATION = Calibration(
    bandwidth_bytes_per_s=10e9,
    flops_per_s={"fp32": 1e11, "bf16": 2e11},
    memory_bytes=8 * 10**9,
    device_name=INFO.device_name,
    device_kind=INFO.device,
    torch_version=INFO.torch_version,
    threads=INFO.threads,
    date="2026-01-01T00:00:00+00:00",
)
PREFILL = ((0, 40, True, 0),)
FP32, BF16 = INFO.lanes
DECODE = ((40, 1, True, 0), (7, 1, True, 0))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(state_dir: object) -> Clock:
    return Clock()


def untimed(predictor: StepPredictor, info: EngineInfo = INFO) -> StepPrediction:
    prediction = predictor.predict(info, FP32, PREFILL)
    assert prediction is not None
    assert (prediction.time_s, prediction.bound) == (None, None)
    return prediction


def timed(predictor: StepPredictor) -> float:
    prediction = predictor.predict(INFO, FP32, PREFILL)
    assert prediction is not None
    assert prediction.time_s is not None
    return prediction.time_s


def test_without_calibration_no_time_but_the_same_work(clock: Clock) -> None:
    predictor = StepPredictor(clock)
    before = untimed(predictor)
    assert not predictor.calibrated(INFO)
    save_calibration(CALIBRATION)
    after = StepPredictor(clock).predict(INFO, FP32, PREFILL)
    assert after is not None
    assert replace(after, time_s=None, bound=None) == before


def test_equals_the_cost_model(clock: Clock) -> None:
    save_calibration(CALIBRATION)
    predictor = StepPredictor(clock)
    hardware = this_machine()
    assert hardware is not None
    assert predictor.calibrated(INFO)
    for lane, name in ((FP32, "fp32"), (BF16, "bf16")):
        model = StepCostModel(model_spec(INFO), hardware, weights=name, kv=name)
        for shapes in (PREFILL, DECODE):
            cost = model.cost(list(starmap(SequenceShape, shapes)))
            prediction = predictor.predict(INFO, lane, shapes)
            assert prediction == StepPrediction(
                cost.flops, cost.bytes, cost.flops / cost.bytes, cost.time, cost.bound.value
            )


def test_decode_of_one_token_reads_the_weights_once(clock: Clock) -> None:
    save_calibration(CALIBRATION)
    prediction = StepPredictor(clock).predict(INFO, FP32, ((0, 1, True, 0),))
    assert prediction is not None
    spec = model_spec(INFO)
    weights = spec.num_streamed_parameters * 4
    assert weights < prediction.bytes < 1.2 * weights
    assert prediction.bound == "memory"
    assert prediction.time_s == pytest.approx(prediction.bytes / 10e9, rel=0.01)


@pytest.mark.parametrize(
    "info", [replace(INFO, device="cuda"), replace(INFO, device_name="another processor")]
)
def test_no_time_for_another_device(clock: Clock, info: EngineInfo) -> None:
    save_calibration(CALIBRATION)
    predictor = StepPredictor(clock)
    untimed(predictor, info)
    assert not predictor.calibrated(info)


def test_the_calibration_that_was_checked_is_the_one_that_is_used(clock: Clock) -> None:
    save_calibration(CALIBRATION)
    predictor = StepPredictor(clock)
    clock.now = 2.0
    expected = timed(predictor)
    # Another device is calibrated within the second in which the file is not looked at.
    save_calibration(replace(CALIBRATION, device_name="another", bandwidth_bytes_per_s=1e9))
    other_dtype = predictor.predict(INFO, BF16, PREFILL)
    restarted = predictor.predict(replace(INFO), FP32, PREFILL)
    assert restarted is not None
    assert restarted.time_s == expected
    assert other_dtype is not None
    assert other_dtype.time_s is not None
    assert other_dtype.time_s < expected


@pytest.mark.parametrize("where", ["LaneRoofline", "LaneRoofline.cost_of"])
def test_a_failure_is_no_prediction_and_one_line(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a test asked for this")

    monkeypatch.setattr(f"webapp.prediction.{where}", fail)
    with capture_logs() as lines:
        predictor = StepPredictor(clock)
        clock.now = 2.0
        for number in range(3):
            assert predictor.predict(INFO, FP32, ((0, 40 + number, True, 0),)) is None
    assert [line["event"] for line in lines] == ["prediction_failed"]


def test_nothing_without_an_engine(clock: Clock) -> None:
    save_calibration(CALIBRATION)
    predictor = StepPredictor(clock)
    assert predictor.predict(None, FP32, PREFILL) is None
    assert not predictor.calibrated(None)


def test_an_unknown_dtype_and_an_empty_batch_have_none(clock: Clock) -> None:
    save_calibration(CALIBRATION)
    predictor = StepPredictor(clock)
    assert predictor.predict(INFO, replace(FP32, weight_format="fp7"), PREFILL) is None
    assert predictor.predict(INFO, FP32, ()) is None


def test_a_new_calibration_is_taken_up(clock: Clock) -> None:
    predictor = StepPredictor(clock)
    untimed(predictor)
    save_calibration(CALIBRATION)
    clock.now = 0.5
    untimed(predictor)  # looked at once a second
    clock.now = 2.0
    first = timed(predictor)
    save_calibration(replace(CALIBRATION, bandwidth_bytes_per_s=5e9))
    clock.now = 4.0
    assert timed(predictor) > first


def test_an_unreadable_calibration_is_none(clock: Clock) -> None:
    save_calibration(CALIBRATION).write_text("{")
    untimed(StepPredictor(clock))


def test_a_restarted_engine_may_run_another_model(clock: Clock) -> None:
    save_calibration(CALIBRATION)
    predictor = StepPredictor(clock)
    small = predictor.predict(INFO, FP32, PREFILL)
    deeper = replace(INFO, model={**INFO.model, "num_layers": 4})
    large = predictor.predict(deeper, FP32, PREFILL)
    assert small is not None
    assert large is not None
    assert large.flops > small.flops


def test_is_cheap(clock: Clock) -> None:
    save_calibration(CALIBRATION)
    predictor = StepPredictor(clock)
    steps = [tuple((length + i, 1, True, 0) for i in range(16)) for length in range(400)]
    for shapes in steps:
        predictor.predict(INFO, FP32, shapes)
    began = time.process_time()
    for _ in range(16):
        predictor.predict(INFO, FP32, steps[-1])
    assert time.process_time() - began < 0.5


def test_a_request_adds_up_its_own_steps() -> None:
    request = RequestPrediction()
    assert (request.ttft_ms, request.itl_ms) == (None, None)
    for samples, seconds in ((False, 0.3), (True, 0.2), (True, 0.01), (False, 0.02), (True, 0.01)):
        request.add(samples, StepPrediction(1, 1, 1, seconds, "memory"))
    assert request.ttft_ms == pytest.approx(500)
    assert request.itl_ms == pytest.approx((10 + 30) / 2)


def test_accepted_drafts_share_the_time_of_their_step() -> None:
    request = RequestPrediction()
    request.add(True, StepPrediction(1, 1, 1, 0.5, "memory"))
    request.add(True, StepPrediction(1, 1, 1, 0.03, "memory"))
    request.accept(2)
    request.add(True, StepPrediction(1, 1, 1, 0.03, "memory"))
    request.accept(0)
    assert request.ttft_ms == pytest.approx(500)
    assert request.itl_ms == pytest.approx(60 / 4)


def test_a_window_reads_less_of_a_long_text_and_nothing_less_of_a_short_one(clock: Clock) -> None:
    save_calibration(CALIBRATION)
    predictor = StepPredictor(clock)
    narrow = replace(FP32, name="float32/paged-window-60-sinks-4", window=60, sinks=4)
    short, long = ((40, 1, True, 0),), ((1000, 1, True, 0),)
    full = predictor.predict(INFO, FP32, long)
    seen = predictor.predict(INFO, narrow, long)
    assert full is not None
    assert seen is not None
    # K and V of 1,001 positions without the window, of 64 with it.
    assert full.bytes - seen.bytes == pytest.approx((1001 - 64) * FP32.kv_bytes_per_token)
    assert predictor.predict(INFO, narrow, short) == predictor.predict(INFO, FP32, short)


@pytest.mark.parametrize(
    ("own", "every", "expected"),
    [(None, None, 64), (32, None, 32), (256, None, 64), (256, 6, 64)],
)
def test_the_narrower_window_counts(own: int | None, every: int | None, expected: int) -> None:
    info = replace(INFO, model={**INFO.model, "window": own, "global_every": every})
    spec = windowed(info, 64)
    assert spec is not None
    assert spec.attention == SlidingAttention(expected)


def test_layers_of_two_windows_have_no_prediction(clock: Clock) -> None:
    info = replace(INFO, model={**INFO.model, "window": 32, "global_every": 2})
    assert windowed(info, None) == replace(model_spec(info), attention=InterleavedAttention(32, 2))
    predictor = StepPredictor(clock)
    assert predictor.predict(info, FP32, PREFILL) is not None
    assert predictor.predict(info, replace(FP32, window=64), PREFILL) is None


def test_one_unknown_step_makes_the_sums_unknown() -> None:
    request = RequestPrediction()
    request.add(True, StepPrediction(1, 1, 1, 0.1, "memory"))
    request.add(True, StepPrediction(1, 1, 1))
    assert (request.ttft_ms, request.itl_ms) == (None, None)


# ── typical times ────────────────────────────────────────────────────────────────────────────────

STAGES = {"embed": 0.001, "layers": 0.03, "logits": 0.008, "sample": 0.001}
MEASURED_LANE = LaneCalibration(
    lane="float32",
    model=INFO.model,
    dtype="float32",
    weight_format="fp32",
    kv_format="fp32",
    native_rows=0,
    native_library="",
    launch={"torch": Overheads(0.001, 0.002)},
    between_steps={1: 0.005, 2: 0.006},
    steps=(
        MeasuredStep(1, 40, 1, (0.04,), STAGES),
        MeasuredStep(2, 40, 1, (0.05,), STAGES),
        MeasuredStep(1, 0, 40, (0.08,), STAGES),
        MeasuredStep(1, 0, 40, (0.06, 0.08, 0.10), STAGES, checks=True),
    ),
    date="2026-01-01T00:00:00+00:00",
)


def test_a_lane_that_was_measured_has_typical_times(clock: Clock) -> None:
    save_calibration(CALIBRATION.with_lane(MEASURED_LANE))
    predictor = StepPredictor(clock)
    prediction = predictor.predict(INFO, FP32, PREFILL)
    assert prediction is not None
    typical = prediction.typical
    assert typical is not None
    # What the step took, and beside it what the engine does before the next one.
    assert typical.time_s == pytest.approx(0.08, rel=0.01)
    assert typical.between_s == 0.005
    assert typical.p10_s == pytest.approx(0.064, rel=0.02)
    assert typical.p90_s == pytest.approx(0.096, rel=0.02)
    # The ideal time is the roofline's, as before.
    save_calibration(CALIBRATION)
    clock.now = 2.0
    assert predictor.predict(INFO, FP32, PREFILL) == replace(prediction, typical=None)


@pytest.mark.parametrize(
    "lane",
    [
        replace(MEASURED_LANE, model={**INFO.model, "num_layers": 3}),
        replace(MEASURED_LANE, kv_format="bf16"),
        replace(MEASURED_LANE, dtype="bfloat16"),
    ],
)
def test_other_lanes_lend_it_none(clock: Clock, lane: LaneCalibration) -> None:
    save_calibration(CALIBRATION.with_lane(lane))
    prediction = StepPredictor(clock).predict(INFO, FP32, PREFILL)
    assert prediction is not None
    assert prediction.time_s is not None
    assert prediction.typical is None


def test_a_window_uses_what_was_measured_of_the_whole(clock: Clock) -> None:
    save_calibration(CALIBRATION.with_lane(MEASURED_LANE))
    narrow = replace(FP32, name="float32/paged-window-60-sinks-4", window=60, sinks=4)
    prediction = StepPredictor(clock).predict(INFO, narrow, PREFILL)
    assert prediction is not None
    assert prediction.typical is not None


def test_levels_have_the_roof_of_8_bits_where_they_run_natively(clock: Clock) -> None:
    rates = {"fp32": 1e11, "bf16": 2e11, "int8": 8e11}
    save_calibration(replace(CALIBRATION, flops_per_s=rates, bandwidth_bytes_per_s=1e15))
    predictor = StepPredictor(clock)
    times = {}
    for rows in (0, 96):
        lane = replace(BF16, weight_format="mixed-8.5", native_rows=rows)
        prediction = predictor.predict(INFO, lane, PREFILL)
        assert prediction is not None
        assert prediction.time_s is not None
        times[rows] = prediction.time_s
    # All but the attention core, which takes 16 bits in both.
    assert 3 < times[0] / times[96] < 4


def test_a_request_adds_up_typical_steps_and_what_is_between_them() -> None:
    request = RequestPrediction()
    step = StepPrediction(1, 1, 1, 0.01, "memory", TypicalTime(0.03, 0.02, 0.04, 0.005))
    for samples in (False, True, True, True):
        request.add(samples, step)
    request.accept(1)
    assert request.ttft_ms == pytest.approx(20)
    assert request.typical_ttft_ms == pytest.approx(30 + 5 + 30)
    assert request.itl_ms == pytest.approx(20 / 3)
    assert request.typical_itl_ms == pytest.approx(70 / 3)


def test_a_step_without_a_typical_time_leaves_the_ideal_sums() -> None:
    request = RequestPrediction()
    request.add(True, StepPrediction(1, 1, 1, 0.01, "memory", TypicalTime(0.03, 0.02, 0.04, 0.0)))
    request.add(True, StepPrediction(1, 1, 1, 0.01, "memory"))
    assert (request.ttft_ms, request.itl_ms) == (pytest.approx(10), pytest.approx(10))
    assert (request.typical_ttft_ms, request.typical_itl_ms) == (None, None)
