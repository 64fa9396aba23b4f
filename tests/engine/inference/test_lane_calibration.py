"""Measuring lanes of the real engine: on the tiny model, with few runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from engine.__main__ import app
from engine.catalog.this_machine import Calibration, load_calibration, save_calibration
from engine.errors import InvalidRequest
from engine.inference import calibration as machine
from engine.inference import lane_calibration as subject
from engine.inference.device import Device, open_device
from engine.inference.lane_calibration import Point, calibrate_lanes, measure_lane, offered_lanes
from engine.inference.native.build import library_name
from engine.inference.native.decoder import ALL_ROWS, MAX_PLAIN_ROWS
from engine.inference.options import EngineOptions
from engine.simulator.machine.typical import fitted

TINY = EngineOptions(model="tiny", device="cpu", kv_tokens=2_048)


def a_calibration(device: Device) -> Calibration:
    return Calibration(
        bandwidth_bytes_per_s=2e10,
        flops_per_s={"fp32": 1e11, "bf16": 4e11},
        memory_bytes=8 * 2**30,
        device_name=device.name,
        device_kind=device.kind,
        torch_version=torch.__version__,
        threads=device.threads,
        date="2026-01-01T00:00:00+00:00",
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, state_dir: Path) -> None:
    """Few runs, and no measuring of the machine."""
    for name, value in (
        ("_ROUNDS", 1),
        ("_ROUNDS_OF_LONG", 1),
        ("_IN_A_ROW", 2),
        ("_OVERHEAD_RUNS", 3),
        ("_LOOP_BATCHES", (1, 3)),
        ("_LOOP_STEPS", 4),
    ):
        monkeypatch.setattr(subject, name, value)
    for module in (subject, machine):
        monkeypatch.setattr(module, "measure_machine", a_calibration)


def test_a_lane_is_measured_on_its_paths() -> None:
    lane = measure_lane("int8", TINY)
    assert (lane.lane, lane.dtype) == ("int8-g32-rtn", open_device("cpu").default_dtype)
    assert lane.model["id"] == "tiny-random"
    native = lane.native_rows
    assert (native, lane.native_library) in (
        (ALL_ROWS, library_name()),
        (MAX_PLAIN_ROWS, library_name()),
        (0, ""),
    )
    paths = {"native": native > 0, "torch": native < ALL_ROWS}
    assert set(lane.launch) == {path for path, there in paths.items() if there}
    assert set(lane.between_steps) == {1, 3}
    sizes = {(step.sequences, step.prefix_tokens, step.new_tokens) for step in lane.steps}
    # A text of 3,000 tokens is longer than the model takes.
    assert (1, 512, 1) in sizes
    assert (1, 3_000, 1) not in sizes
    assert {step.rows > MAX_PLAIN_ROWS for step in lane.steps if step.checks} == {False, True}
    assert all(set(step.stages) == set(subject.STAGES) for step in lane.steps)


def test_what_was_measured_can_be_predicted_from() -> None:
    calibration = a_calibration(open_device("cpu"))
    curves = fitted(calibration, measure_lane("float32", TINY))
    for path in (curves.torch, curves.path(1)):
        assert 0 < path.p10 <= path.p90


def test_lanes_are_kept_one_by_one_with_the_best_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    known = a_calibration(open_device("cpu"))
    save_calibration(known)
    faster = replace(known, bandwidth_bytes_per_s=3e10)
    monkeypatch.setattr(subject, "measure_machine", lambda _: faster)
    told: list[str] = []
    calibrated = calibrate_lanes(["float32", "bfloat16"], TINY, known, told.append)
    assert [lane.lane for lane in calibrated.lanes] == ["float32", "bfloat16"]
    assert calibrated.bandwidth_bytes_per_s == 3e10
    assert load_calibration() == calibrated
    assert told == ["measuring float32", "measuring bfloat16"]


def test_measuring_the_machine_again_keeps_its_lanes() -> None:
    known = a_calibration(open_device("cpu"))
    calibrated = calibrate_lanes(["float32"], TINY, known, lambda _: None)
    assert machine.calibrate_now("cpu").lanes == calibrated.lanes
    other = replace(calibrated, device_name="another processor")
    save_calibration(other)
    assert machine.calibrate_now("cpu").lanes == ()


@pytest.mark.parametrize(
    ("name", "field"), [("int9", "weights"), ("float32/off", "kv_cache"), ("file", "weights")]
)
def test_lanes_that_cannot_be_measured(name: str, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        measure_lane(name, TINY)
    assert caught.value.field == field


def test_blocks_of_the_file_are_offered_where_there_are_any() -> None:
    assert offered_lanes(TINY) == ("float32", "bfloat16", "int8", "int4")


def test_no_step_both_makes_and_checks_the_curves() -> None:
    points = (*subject.DECODE_POINTS, *subject.CHUNK_POINTS, *subject.PROMPT_POINTS)
    sizes = [point[:3] for point in points]
    assert len(set(sizes)) == len(sizes)
    assert all(isinstance(point, Point) for point in points)


def test_the_command_measures_the_lanes_that_are_named() -> None:
    arguments = ["calibrate", "--model", "tiny", "--lane", "float32", "--device", "cpu", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    (lane,) = json.loads(result.stdout)["lanes"]
    assert (lane["lane"], lane["model"]) == ("float32", "tiny-random")
    assert lane["batch_1_decode"]["kind"] == "measured"
    assert lane["batch_1_decode"]["value"] > 0
    table = CliRunner().invoke(app, ["calibrate", "--device", "cpu"]).stdout
    assert "float32 of tiny-random: typical predictions" in table


def test_the_command_names_the_option_at_fault() -> None:
    result = CliRunner().invoke(app, ["calibrate", "--model", "tiny", "--lane", "int9"])
    assert result.exit_code == 2
    assert "--lane" in result.output
