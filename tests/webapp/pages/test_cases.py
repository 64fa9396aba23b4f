"""The cases of lesson 12: solvable, of every kind, and with the simulator's own numbers."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from engine.errors import InvalidRequest
from engine.simulator.diagnosis.hypotheses import hypotheses
from engine.simulator.search.estimate import estimate
from webapp.i18n import Language, texts
from webapp.pages.cases import (
    CASES,
    EXPECTED,
    PHASES,
    USUAL,
    Case,
    case_view,
    get_case,
    measured,
    solution_view,
    solved,
)

ENGLISH = texts(Language.ENGLISH)
EVERY = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@EVERY
def test_a_case_can_be_solved(case: Case) -> None:
    found = solved(case.name)
    assert found.verdict in PHASES
    right = solution_view(case.name, found.verdict, case.cause, ENGLISH)
    assert right.phase_right
    assert right.cause_right
    wrong = solution_view(case.name, "", case.others[0], ENGLISH)
    assert not wrong.phase_right
    assert not wrong.cause_right


@EVERY
def test_its_cause_made_its_numbers(case: Case) -> None:
    times, usual = measured(case), estimate(case.cell)
    slower = times.ttft > 1.2 * usual.ttft or times.itl > 1.2 * usual.itl
    assert slower == (case.cause != EXPECTED)


@EVERY
def test_other_causes_would_have_made_others(case: Case) -> None:
    """The numbers speak more for the true cause than for those offered beside it."""
    names = {item.name for item in hypotheses(case.cell)}
    assert {case.cause, *case.others} <= names
    likely = {item.hypothesis.name: item.probability for item in solved(case.name).weighed}
    assert all(likely[case.cause] > likely[name] for name in case.others)


def test_the_cases_are_of_every_kind() -> None:
    assert {solved(case.name).verdict for case in CASES} == set(PHASES)
    assert hypotheses(CASES[0].cell)[0].words == USUAL


def test_choices_give_nothing_away() -> None:
    places = {list(case_view(case, ENGLISH).causes).index(case.cause) for case in CASES}
    assert len(places) > 1


def test_no_such_case() -> None:
    with pytest.raises(InvalidRequest):
        get_case("tuesday")


def test_fragment(client: TestClient) -> None:
    query = {"case": "monday", "phase": "slow to stream", "cause": "queueing"}
    page = client.get("/fragments/case", params=query).text
    assert "not as you said" in page
    assert "requests wait before their first step" in page
    assert "no case of this name" in client.get("/fragments/case?case=tuesday").text
