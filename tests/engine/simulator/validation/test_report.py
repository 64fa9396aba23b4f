"""Splits never mix devices, fits find what made the data, and the stored report is current."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.simulator.efficiency import calibrated_values, prior_table
from engine.simulator.intervals import segment
from engine.simulator.scenario import Scenario, simulate
from engine.simulator.validation.calibration import FOLDS, read_folds
from engine.simulator.validation.fitting import fit, row_weights
from engine.simulator.validation.measurement import read_measurements
from engine.simulator.validation.peers import compare, read_peers
from engine.simulator.validation.plans import Plan
from engine.simulator.validation.pricing import PlanPricer
from engine.simulator.validation.report import DATA, REPORT, markdown
from engine.simulator.validation.scoring import Scores, make_plans, score
from engine.simulator.validation.splitting import dealt, split_devices
from engine.simulator.validation.tables import coverage, goal_lines
from tests.engine.simulator.validation.services_stored import stored_scores


@pytest.fixture(scope="module")
def plans() -> tuple[Plan, ...]:
    return make_plans(read_measurements())[0]


@pytest.fixture(scope="module")
def scores() -> Scores:
    return score(read_measurements())


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return json.loads(DATA.read_text(encoding="utf-8"))


def test_no_device_is_on_both_sides(plans: tuple[Plan, ...]) -> None:
    split = split_devices(plans)
    devices = {plan.case.hardware.id for plan in plans}
    assert not split.calibration & split.held_out
    assert split.calibration | split.held_out == devices
    segments = {plan.case.hardware.id: segment(plan.case.hardware) for plan in plans}
    for side in (split.calibration, split.held_out):
        assert {segments[device] for device in side} == set(segments.values())
    hands = dealt(plans, FOLDS)
    assert sum(map(len, hands)) == len(devices)
    assert frozenset().union(*hands) == devices


def test_the_split_does_not_look_at_values(plans: tuple[Plan, ...]) -> None:
    assert split_devices(plans) == split_devices(tuple(reversed(plans)))


def test_stored_folds_are_those_of_the_rule(plans: tuple[Plan, ...]) -> None:
    half, *folds = read_folds()
    assert half.held_out == split_devices(plans).held_out
    assert tuple(fold.held_out for fold in folds) == dealt(plans, FOLDS)


def test_a_fit_finds_the_numbers_that_made_its_rows(plans: tuple[Plan, ...]) -> None:
    some = [p for p in plans if p.case.measurement.source_id in ("S02", "S05")]
    prior = prior_table().values
    true = {**prior, "device.a100.mbu": 0.62, "engine.compiled.kernels": 11.0}
    made = PlanPricer(some).predict(true)
    pricer = PlanPricer([_measuring(p, v) for p, v in zip(some, made.tolist(), strict=True)])
    before = np.abs(np.log(pricer.predict(prior) / made))
    found = fit(pricer, prior)
    after = np.abs(np.log(pricer.predict(found.values) / made))
    assert np.median(after) < 0.3 * np.median(before)
    assert found.values["device.a100.mbu"] < prior["device.a100.mbu"]


def _measuring(plan: Plan, value: float) -> Plan:
    row = replace(plan.case.measurement, value=value)
    return replace(plan, case=replace(plan.case, measurement=row))


def test_rows_of_one_kind_share_their_weight(plans: tuple[Plan, ...]) -> None:
    weights = row_weights(plans)
    assert weights.min() > 0
    assert weights.max() <= 1


def test_the_live_model_gives_the_validated_numbers(plans: tuple[Plan, ...]) -> None:
    """The same scenario through ``typical`` and through the arrays of the validation."""
    plan = next(
        p
        for p in plans
        if p.case.measurement.source_id == "S08"
        and p.case.engine == "vllm-v0"
        and p.case.hardware.id == "h100-sxm"
        and (p.case.model.id, p.case.prompt, p.case.batch) == ("llama-3.1-8b", 1024, 16)
        and p.case.layout.tensor == 2
        and p.case.measurement.metric == "e2e_latency_ms"
    )
    case = plan.case
    scenario = Scenario(
        case.model.id,
        case.hardware.id,
        devices=2,
        weights="fp16",
        kv="fp16",
        batch=16,
        prompt_tokens=case.prompt,
        output_tokens=case.output,
        engine="vllm-v0",
    )
    arrays = PlanPricer([plan]).predict()[0]
    assert 1e3 * simulate(scenario).typical.e2e.value == pytest.approx(arrays, rel=1e-9)


def test_the_stored_report_is_current(scores: Scores, stored: dict[str, Any]) -> None:
    assert stored["usable"] == len(scores.plans)
    assert stored["not_usable"] == scores.reasons
    assert [row[0] for row in stored["rows"]] == [p.case.measurement.row_id for p in scores.plans]
    numbers = np.array([row[3:] for row in stored["rows"]])
    now = np.array([scores.measured, scores.roofline, scores.shipped, scores.unseen]).T
    assert numbers == pytest.approx(now, rel=2e-3)
    for line, kept in zip(goal_lines(scores), stored["goals"], strict=True):
        assert kept["unseen"]["median"] == pytest.approx(line.line.unseen.median, abs=1e-3)
        assert kept["met"] == line.met
    assert stored["coverage"]["share"] == pytest.approx(coverage(scores)[0], abs=2e-3)


def test_the_text_and_the_data_agree(scores: Scores) -> None:
    text = REPORT.read_text(encoding="utf-8")
    heads = [
        line for line in markdown(scores, stored_scores()).splitlines() if line.startswith("#")
    ]
    assert [line for line in text.splitlines() if line.startswith("#")] == heads
    for line in goal_lines(scores):
        assert f"**{line.line.unseen.median:.1%}** {'met' if line.met else 'missed'}" in text


def test_typical_is_closer_than_the_roofline_everywhere_it_matters(scores: Scores) -> None:
    for line in goal_lines(scores):
        assert line.line.unseen.median < 0.5 * line.line.roofline.median


def test_peers_are_compared_on_the_same_rows(scores: Scores) -> None:
    peers, compared = compare(scores)
    assert {peer.tool for peer in peers} <= {item.tool for item in read_peers()}
    assert compared >= 20
    assert all(0 < peer.rows <= compared for peer in peers)


def test_calibration_stays_within_reason() -> None:
    prior, now = prior_table().values, calibrated_values()
    for name, value in now.items():
        if prior[name]:
            assert 0.1 < value / prior[name] < 10, name
        if name.endswith(".mbu"):
            assert value <= 0.96
