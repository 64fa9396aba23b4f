"""What is kept of a measured lane: read back as it was, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.catalog.lane_calibration import (
    MAX_RUNS,
    LaneCalibration,
    MeasuredStep,
    Overheads,
    lane_from_json,
    lane_to_json,
)
from engine.catalog.this_machine import load_calibration, save_calibration
from tests.engine.catalog.test_this_machine import MEASURED

STEP = MeasuredStep(
    sequences=2,
    prefix_tokens=100,
    new_tokens=1,
    seconds=(0.011, 0.010, 0.012),
    stages={"embed": 0.0, "layers": 0.008, "logits": 0.002, "sample": 0.0005},
)
LANE = LaneCalibration(
    lane="int8-g32-rtn",
    model={"id": "some", "num_layers": 2, "tied_embeddings": True, "window": None},
    dtype="bfloat16",
    weight_format="mixed-8.5",
    kv_format="bf16",
    native_rows=96,
    native_library="step-1.so",
    launch={"native": Overheads(1e-5, 2e-6), "torch": Overheads(1e-4, 5e-4)},
    between_steps={1: 4e-4, 8: 1e-3},
    steps=(STEP, replace(STEP, new_tokens=200, checks=True, stages={})),
    date="2026-11-30T09:00:00+00:00",
)


def test_what_is_written_is_read() -> None:
    assert lane_from_json(json.loads(json.dumps(lane_to_json(LANE)))) == LANE


def test_lanes_are_kept_with_the_calibration(state_dir: Path) -> None:
    save_calibration(MEASURED.with_lane(LANE))
    loaded = load_calibration()
    assert loaded is not None
    assert loaded.lanes == (LANE,)


def test_a_lane_that_is_measured_again_keeps_its_earlier_runs() -> None:
    slower = replace(STEP, seconds=(0.02,), stages={**STEP.stages, "layers": 0.016})
    newer = replace(LANE, steps=(slower, replace(STEP, new_tokens=7)), date="2026-12-01")
    other_model = replace(LANE, model={"id": "other"})
    both = MEASURED.with_lane(LANE).with_lane(other_model).with_lane(newer)
    assert both.lanes[0] == other_model
    again, new = both.lanes[1].steps
    assert again.seconds == (0.011, 0.010, 0.012, 0.02)
    assert again.stages["layers"] == pytest.approx((3 * 0.008 + 0.016) / 4)
    assert new == newer.steps[1]
    assert both.lanes[1].date == "2026-12-01"


def test_runs_of_other_code_are_left_behind() -> None:
    newer = replace(LANE, native_library="step-2.so")
    assert MEASURED.with_lane(LANE).with_lane(newer).lanes == (newer,)


def test_only_so_many_runs_are_kept() -> None:
    many = replace(STEP, seconds=tuple(0.01 + i / 1e4 for i in range(MAX_RUNS)))
    kept = replace(STEP, seconds=(0.5,)).with_runs_of(many)
    assert kept.seconds == (*many.seconds[1:], 0.5)


def test_a_file_from_before_lanes_has_none(state_dir: Path) -> None:
    path = save_calibration(MEASURED)
    values = json.loads(path.read_text(encoding="utf-8"))
    del values["lanes"]
    path.write_text(json.dumps(values), encoding="utf-8")
    assert load_calibration() == MEASURED


def _set(document: dict[str, Any], path: tuple[str | int, ...], value: object) -> None:
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("lane",), 7),
        (("model", "num_layers"), [2]),
        (("native_rows",), "96"),
        (("native_rows",), -1),
        (("launch",), {"native": {"step_s": 0.0, "layer_s": 0.0}}),
        (("launch",), {"torch": {"step_s": 0.0, "layer_s": 0.0}}),
        (("launch", "torch", "step_s"), -1.0),
        (("between_steps",), {}),
        (("between_steps", "1"), -0.1),
        (("between_steps",), {"one": 0.1}),
        (("steps", 0, "seconds"), []),
        (("steps", 0, "seconds"), [0.0]),
        (("steps", 0, "seconds"), [float("nan")]),
        (("steps", 0, "stages"), {"layers": 1.0}),
        (("steps", 0, "stages", "layers"), -1.0),
        (("steps", 0, "sequences"), 0),
        (("steps", 0, "checks"), 1),
        (("steps",), {}),
    ],
)
def test_what_cannot_be_is_refused(path: tuple[str | int, ...], value: object) -> None:
    document = lane_to_json(LANE)
    _set(document, path, value)
    with pytest.raises((TypeError, ValueError)):
        lane_from_json(document)


def test_a_missing_entry_is_refused() -> None:
    document = lane_to_json(LANE)
    del document["launch"]
    with pytest.raises(KeyError):
        lane_from_json(document)


@pytest.mark.parametrize("make", [lambda: [], lambda: "x", lambda: None])
def test_a_lane_is_an_object(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        lane_from_json(make())


def test_the_higher_of_two_measurements_of_a_rate_counts() -> None:
    other = replace(
        MEASURED,
        bandwidth_bytes_per_s=2 * MEASURED.bandwidth_bytes_per_s,
        flops_per_s={"fp32": 1.0, "bf16": 4e11},
        spread={"bandwidth": 0.5, "bf16": 0.25},
    )
    best = MEASURED.with_best_rates(other)
    assert best.bandwidth_bytes_per_s == other.bandwidth_bytes_per_s
    assert best.flops_per_s == {"fp32": 1.5e11, "bf16": 4e11, "int8": 5e11}
    assert best.spread == {"bandwidth": 0.5, "fp32": 0.01, "bf16": 0.25}
    assert other.with_best_rates(MEASURED).flops_per_s == best.flops_per_s
