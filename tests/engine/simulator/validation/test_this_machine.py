"""The stored runs of the real engine: whole, and what the report says of them is so."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from engine.simulator.validation.report import REPORT
from engine.simulator.validation.this_machine import (
    GOAL,
    MachineCell,
    by_kind,
    drift_free_error,
    machine_section,
    median_error,
    read_machine,
)

LANES = {lane.name: lane for lane in read_machine()}
TABLES = Path(__file__).parents[3] / "benchmarks" / "MACHINE.md"


def cell(measured: float, typical: float) -> MachineCell:
    return MachineCell("decode", 1, 64, measured, 0.5 * measured, typical, 0.9, 1.1)


def test_every_lane_has_all_promised_cells() -> None:
    assert len(LANES) == 5
    for lane in LANES.values():
        assert {c.tokens for c in lane.cells if c.kind == "prefill"} == {
            64, 128, 256, 512, 1024, 2048,
        }  # fmt: skip
        assert {c.batch for c in lane.cells if c.kind == "decode"} == {1, 3, 6, 12, 20, 32}
        assert lane.scored[:10] >= lane.calibrated[:10]


def test_errors_are_as_defined() -> None:
    cells = [cell(1.0, 0.8), cell(1.0, 1.1), cell(2.0, 2.6)]
    assert median_error(cells) == pytest.approx(0.2)
    assert [c.held for c in cells] == [True, True, False]
    assert drift_free_error([1.2, 1.2, 1.2]) == 0
    assert drift_free_error([1.0, 1.25, 2.5]) == pytest.approx(0.2)


def test_the_tables_of_the_benchmark_say_the_same() -> None:
    text = TABLES.read_text(encoding="utf-8")
    for lane in LANES.values():
        assert f"## {lane.name}: median error {lane.median_error:.1%}" in text
        assert f"| {lane.name} | {' | '.join(f'{e:.1%}' for e in by_kind(lane))} |" in text


def test_the_report_has_the_section_as_it_is_now() -> None:
    assert machine_section(read_machine()) in REPORT.read_text(encoding="utf-8")


def test_what_is_said_of_the_lane_that_misses() -> None:
    missed = [lane for lane in LANES.values() if not lane.met]
    assert [lane.name for lane in missed] == ["int4-g32-rtn"]
    (lane,) = missed
    assert lane.median_error > GOAL
    assert all(c.ratio < 1 for c in lane.cells)
    assert f"{lane.drift_free_error:.1%}" == "3.6%"
    assert 1 - lane.bandwidth_scored / lane.bandwidth_calibrated == pytest.approx(0.03, abs=0.005)


def test_what_is_said_of_bfloat16() -> None:
    lane = LANES["bfloat16"]

    def bias(kind: str, most: int) -> float:
        chosen = [c.ratio for c in lane.cells if c.kind == kind and c.batch == 1]
        return statistics.median(chosen[:most]) - 1

    assert bias("decode", 3) == pytest.approx(-0.2, abs=0.02)
    assert bias("prefill", 3) == pytest.approx(0.2, abs=0.02)
    assert (round(lane.bandwidth_calibrated / 1e9), round(lane.bandwidth_scored / 1e9)) == (44, 32)
