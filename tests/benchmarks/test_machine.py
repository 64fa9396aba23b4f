"""Predictions beside measurements: scores follow from both, and no cell was calibrated with."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from engine.catalog.this_machine import calibrated_hardware, save_calibration
from engine.inference import calibration as machine
from engine.inference import lane_calibration
from engine.inference.calibration import calibrate_now
from engine.inference.lane_calibration import calibrate_lanes
from engine.inference.options import EngineOptions
from engine.scheduling.plan import Phase, ScheduledSequence, SequenceShape, StepPlan
from engine.simulator.machine.ideal import LaneRoofline
from engine.simulator.machine.typical import LaneTypical, dense_spec, fitted
from tests.benchmarks.machine.__main__ import main
from tests.benchmarks.machine.grid import BATCHES, CELLS, CONTEXTS, PROMPTS, Cell
from tests.benchmarks.machine.report import LaneRun, read_runs, to_json, to_markdown
from tests.benchmarks.machine.scoring import Score, drift_free_error, median_error, score
from tests.benchmarks.machine.timing import DECODE_STEPS, PromptsAreThere, TimedSteps
from tests.engine.simulator.machine.made_up import ARCHITECTURE, BARE, FORMATS, made_up_lane

SCORE = Score(
    "bfloat16", "decode", 3, 256, 16, 0.010, 0.009, 0.012, ideal=0.008, typical=0.011,
    p10=0.0105, p90=0.013,
)  # fmt: skip
RUN = LaneRun(
    lane="bfloat16",
    model="Some",
    calibrated="2026-11-30T09:00:00+00:00",
    scored="2026-11-30T10:00:00+00:00",
    bandwidth_calibrated=2e10,
    bandwidth_scored=3e10,
    machine={
        "device": "cpu", "device_name": "Some CPU", "threads": 2, "torch": "2",
        "bandwidth": 3e10, "flops_per_s": {"bf16": 1e11},
    },
    scores=(SCORE, replace(SCORE, kind="prefill", batch=1, typical=0.008)),
)  # fmt: skip


def test_the_promised_ranges_are_scored() -> None:
    assert (min(PROMPTS), max(PROMPTS)) == (64, 2_048)
    assert (min(CONTEXTS), max(CONTEXTS)) == (64, 4_096)
    assert (min(BATCHES), max(BATCHES)) == (1, 32)


def test_no_cell_is_calibrated_with() -> None:
    decoded = {point[:2] for point in lane_calibration.DECODE_POINTS}
    computed = {
        point[1:3]
        for point in (*lane_calibration.CHUNK_POINTS, *lane_calibration.PROMPT_POINTS)
        if point.sequences == 1
    }
    for cell in CELLS:
        if cell.kind == "decode":
            steps = range(cell.tokens, cell.tokens + DECODE_STEPS + 8)
            assert not any((cell.batch, context) in decoded for context in steps), cell
        else:
            chunks = {
                (start, min(1_024, cell.tokens - start)) for start in range(0, cell.tokens, 1_024)
            }
            assert not chunks & computed, cell


def test_a_score_compares_with_the_steps_that_ran() -> None:
    calibration = BARE.with_lane(made_up_lane((0.9, 1.1)))
    ideal = LaneRoofline(dense_spec(ARCHITECTURE), calibrated_hardware(calibration), FORMATS)
    typical = LaneTypical(ideal, fitted(calibration, calibration.lanes[0]))
    shapes = tuple((SequenceShape(300 + i, 1, True),) * 3 for i in range(2))
    costs = [typical.cost(each) for each in shapes]
    own = [cost.time - cost.parts.scheduler for cost in costs]
    decode = [TimedSteps(shapes, (0.9 * own[0], 0.9 * own[1])), TimedSteps(shapes, (own[0],) * 2)]
    found = score("lane", Cell("decode", 3, 300), decode, ideal, typical)
    assert found.runs == 4
    assert found.typical == pytest.approx(sum(own) / 2)
    assert found.measured == pytest.approx((own[0] + 0.9 * own[1]) / 2)
    assert found.ideal == pytest.approx(sum(c.ideal.time for c in costs) / 2)
    assert found.p10 < found.typical < found.p90
    prefill = score("lane", Cell("prefill", 1, 9), [decode[0]], ideal, typical)
    assert prefill.typical == pytest.approx(sum(own))
    assert prefill.error == pytest.approx(1 / 0.9 - 1)
    assert not prefill.held or prefill.p10 <= prefill.measured


def test_scores_say_how_far_off_they_are() -> None:
    assert SCORE.error == pytest.approx(0.1)
    assert SCORE.roof_share == pytest.approx(0.8)
    assert not SCORE.held
    assert replace(SCORE, p10=0.0095).held
    assert median_error([SCORE, replace(SCORE, typical=0.007), replace(SCORE, typical=0.0102)]) == (
        pytest.approx(0.1)
    )


def test_a_common_factor_is_the_machine_and_not_the_model() -> None:
    slower = [replace(SCORE, typical=0.013), replace(SCORE, measured=0.02, typical=0.026)]
    assert drift_free_error(slower) == pytest.approx(0)
    assert drift_free_error([*slower, replace(SCORE, typical=0.0143)]) == pytest.approx(0)
    assert drift_free_error([SCORE, replace(SCORE, typical=0.0121)]) > 0.04


def test_a_report_is_read_back_and_lanes_are_added(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    assert read_runs(path) == {}
    path.write_text(to_json([RUN, replace(RUN, lane="int8")]), encoding="utf-8")
    assert read_runs(path) == {"bfloat16": RUN, "int8": replace(RUN, lane="int8")}
    page = to_markdown([RUN])
    assert "| bfloat16 | 20.0% | — | 10.0% | 15.0% | missed |" in page
    assert "| decode, batch 3, context 256 | 10.00 | 9.00 – 12.00 | 8.00 | 11.00 |" in page
    assert "and 0 above the roofline" in page


def test_prompts_are_taken_as_computed_and_decode_steps_run() -> None:
    class Recorder:
        plans: list[StepPlan] = []  # noqa: RUF012

        def execute(self, plan: StepPlan):
            self.plans.append(plan)

        def release(self, request_id: str) -> None: ...

    real = Recorder()
    executor = PromptsAreThere(real)  # pyright: ignore[reportArgumentType]
    prompt = ScheduledSequence("a", Phase.PREFILL, 0, (1, 2, 3), (0,), samples=True)
    decode = ScheduledSequence("b", Phase.DECODE, 3, (1,), (1,), samples=True)
    result = executor.execute(StepPlan(0, (prompt, decode)))
    assert [sample.request_id for sample in result.samples] == ["a", "b"]
    assert all(math.isnan(sample.logprob) for sample in result.samples)
    assert real.plans == []
    executor.execute(StepPlan(1, (decode,)))
    assert [plan.step for plan in real.plans] == [1]


def test_a_quick_run_scores_the_tiny_model(
    tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    for name, value in (("_ROUNDS", 1), ("_ROUNDS_OF_LONG", 1), ("_OVERHEAD_RUNS", 3)):
        monkeypatch.setattr(lane_calibration, name, value)
    for name in ("_MIN_REPEATS", "_REPEATS"):
        monkeypatch.setattr(machine, name, 1)
    arguments = ["--quick", "--model", "tiny", "--device", "cpu", "--lane", "float32"]
    arguments += ["--repeats", "1", "--output", str(tmp_path)]
    with pytest.raises(SystemExit, match="not been calibrated"):
        main(arguments)
    save_calibration(calibrate_now("cpu"))
    with pytest.raises(SystemExit, match="float32 has not been calibrated"):
        main(arguments)
    options = EngineOptions(model="tiny", device="cpu", kv_tokens=2_048)
    calibrate_lanes(["float32"], options, calibrate_now("cpu"), lambda _: None)
    main(arguments)
    (lane,) = json.loads((tmp_path / "machine.json").read_text(encoding="utf-8"))["lanes"]
    assert [(s["kind"], s["batch"], s["tokens"]) for s in lane["scores"]] == [
        ("prefill", 1, 20), ("decode", 1, 40), ("decode", 3, 24),
    ]  # fmt: skip
    assert [s["runs"] for s in lane["scores"]] == [1, DECODE_STEPS, DECODE_STEPS]
    assert all(0 < s["fastest"] <= s["measured"] <= s["slowest"] for s in lane["scores"])
    assert all(s["typical"] > 0 and s["ideal"] > 0 for s in lane["scores"])
    assert "## float32: median error" in (tmp_path / "MACHINE.md").read_text(encoding="utf-8")
