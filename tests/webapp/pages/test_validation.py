"""The page of the validation report: it says what the report says, and draws every row."""

from __future__ import annotations

import json
import statistics

import pytest
from fastapi.testclient import TestClient

from engine.catalog.units import time_label
from engine.simulator.validation.this_machine import read_machine
from webapp.i18n import Language
from webapp.pages.validation_view import DATA, validation_view

REPORT = json.loads(DATA.read_text("utf-8"))
VIEW = validation_view(Language.ENGLISH)


def test_every_usable_row_is_a_dot() -> None:
    for chart in (VIEW.wide, VIEW.narrow):
        assert sum(kind.path.count("h0") for kind in chart.kinds) == REPORT["usable"]
        assert sum(kind.rows for kind in chart.kinds) == REPORT["usable"]
        for kind in chart.kinds:
            assert chart.left <= kind.low <= kind.middle <= kind.high <= chart.right


def test_the_median_of_a_kind_is_that_of_its_rows() -> None:
    columns = REPORT["columns"]
    kind, measured, unseen = (columns.index(name) for name in ("kind", "measured", "unseen"))
    ratios = [row[unseen] / row[measured] for row in REPORT["rows"] if row[kind] == "TTFT"]
    (shown,) = (dots for dots in VIEW.wide.kinds if dots.name == "TTFT")
    assert shown.words[1] == f"{statistics.median(ratios):.2f}"
    assert shown.beyond == sum(not 0.25 <= ratio <= 4 for ratio in ratios)


def test_goals_stand_with_their_bounds(client: TestClient) -> None:
    page = client.get("/simulator/validation").text
    for goal in REPORT["goals"]:
        assert goal["name"] in page
        assert f"{goal['unseen']['median']:.1%}" in page
        assert f"at most {goal['at_most']:.0%}" in page
    goals = REPORT["goals"] + REPORT["serving"]["goals"]
    lanes = sum(not lane.met for lane in read_machine())
    assert page.count("missed") == sum(not goal["met"] for goal in goals) + lanes


@pytest.mark.parametrize("language", ["en", "zh-Hans"])
def test_all_rows_are_accounted_for(client: TestClient, language: str) -> None:
    page = client.get(f"/simulator/validation?lang={language}").text
    left_out = sum(REPORT["not_usable"].values())
    assert f"{REPORT['usable'] + left_out:,}" in page
    for peer in REPORT["peers"]["tools"]:
        assert peer["tool"] in page


def test_services_under_load_stand_with_their_goals_and_runs(client: TestClient) -> None:
    page = client.get("/simulator/validation").text
    serving = REPORT["serving"]
    for goal in serving["goals"]:
        assert goal["name"] in page
        assert f"{goal['unseen']['median']:.1%}" in page
        assert f"at most {goal['at_most']:.0%}, over {goal['unseen']['runs']} runs" in page
    assert len(VIEW.services.runs) == len(serving["runs"])
    for run, shown in zip(serving["runs"], VIEW.services.runs, strict=True):
        assert f'id="{run["id"]}"' in page
        for metric, time in zip(("ttft", "itl", "e2e"), shown.times, strict=True):
            if run["measured"][metric] is None:
                assert time is None
                continue
            assert time is not None
            error = run["unseen"][metric] / run["measured"][metric] - 1
            assert float(time.error.rstrip("%")) / 100 == pytest.approx(error, abs=7e-4)


def test_the_machine_s_part_is_the_stored_one(client: TestClient) -> None:
    page = client.get("/simulator/validation").text
    for lane in read_machine():
        assert f'<th scope="row">{lane.name}</th>' in page
        assert f"<td>{lane.median_error:.1%}</td>" in page
        for cell in lane.cells[:2]:
            assert f"<td>{time_label(cell.measured)}</td>" in page
    assert "Missed by int4-g32-rtn." in page
    assert {"int4-g32-rtn"} == set(VIEW.machine.missed)
    for chart in (VIEW.machine_wide, VIEW.machine_narrow):
        assert sum(kind.rows for kind in chart.kinds) == VIEW.machine.medians
