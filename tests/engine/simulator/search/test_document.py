"""Sweeps as JSON and CSV say the same as the arrays, and name what they are."""

from __future__ import annotations

import csv
import itertools
import json
import math
from dataclasses import replace
from typing import Any

import pytest

from engine.catalog.hardware import get_hardware
from engine.errors import InvalidRequest
from engine.simulator.intervals import Metric, interval
from engine.simulator.scenario import Scenario, simulate
from engine.simulator.search.axes import KNOBS, Axis, Sweep
from engine.simulator.search.cell import Cell
from engine.simulator.search.document import (
    UNITS,
    cell_document,
    estimate_document,
    read_sweep,
    sweep_csv,
    sweep_document,
)
from engine.simulator.search.estimate import estimate
from engine.simulator.search.sweep import METRICS, run_sweep

BASE = Cell("llama-3.1-8b", "h100-sxm", times="typical", output_tokens=4)
SWEEP = Sweep(BASE, (Axis("hardware", ("rtx-4090", "m4-max", "h100-sxm")), Axis("batch", (1, 4))))


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(json.dumps(sweep_document(run_sweep(SWEEP)), allow_nan=False))


def test_values_are_row_major(document: Any) -> None:
    assert document["shape"] == [3, 2]
    assert [axis["knob"] for axis in document["axes"]] == ["hardware", "batch"]
    places = list(itertools.product(range(3), range(2)))
    for name in METRICS:
        metric = document["metrics"][name]
        assert metric["unit"] == UNITS[name]
        assert metric["kind"] == "predicted"
        assert metric["formula"]
        expected = [getattr(estimate(SWEEP.at(*place)), name) for place in places]
        values = [math.nan if value is None else value for value in metric["values"]]
        assert values == pytest.approx(expected, rel=1e-9, nan_ok=True)


def test_intervals_are_those_of_a_scenario(document: Any) -> None:
    """Those of a whole answer too, which are as sure as its parts or as whole ones measured."""
    names = SWEEP.axes[0].values
    for place, (name, batch) in enumerate(itertools.product(names, (1, 4))):
        found = simulate(Scenario(str(BASE.model), str(name), batch=int(batch), output_tokens=4))
        one = estimate_document(replace(BASE, hardware=str(name), batch=int(batch)))
        for metric, said in (
            ("ttft", found.typical.ttft),
            ("itl", found.typical.tpot),
            ("e2e", found.typical.e2e),
            ("tokens_per_s", found.typical.tokens_per_s),
        ):
            assert said is not None
            swept, alone = document["metrics"][metric], one[metric]
            for end in ("p10", "p90"):
                factor = getattr(said, end) / said.value
                assert swept[end][place] == pytest.approx(factor, rel=1e-6)
                assert alone[end] == pytest.approx(getattr(said, end), rel=1e-4)  # pyright: ignore


def test_one_interval_for_all_is_one_number_and_ideal_times_have_none() -> None:
    same = sweep_document(run_sweep(Sweep(BASE, (Axis("prompt_tokens", (1, 2)),))))
    assert same["metrics"]["ttft"]["p10"] == interval(Metric.TTFT, get_hardware("h100-sxm"))[0]  # pyright: ignore
    ideal = sweep_document(run_sweep(Sweep(replace(BASE, times="ideal"))))
    assert "p10" not in ideal["metrics"]["ttft"]  # pyright: ignore
    both: Any = sweep_document(run_sweep(Sweep(BASE, (Axis("times", ("ideal", "typical")),))))
    assert both["metrics"]["ttft"]["p90"] == [
        None,
        interval(Metric.TTFT, get_hardware("h100-sxm"))[1],
    ]


def test_nothing_predicted_is_null_and_empty() -> None:
    base = replace(BASE, hardware="i9-13900k", output_tokens=1, usd_per_hour=None)
    result = run_sweep(Sweep(base))
    document: Any = sweep_document(result, ["itl", "usd_per_mtok", "fits"])
    assert list(document["metrics"]) == ["itl", "usd_per_mtok", "fits"]
    assert document["metrics"]["itl"]["values"] == [None]
    assert document["metrics"]["usd_per_mtok"]["values"] == [None]
    assert document["metrics"]["fits"]["values"] == [True]
    rows = list(csv.reader("".join(sweep_csv(result, ["itl", "fits"])).splitlines()))
    assert rows == [["itl [s]", "fits [bool]"], ["", "True"]]


def test_csv_has_a_row_a_cell_whatever_its_pieces() -> None:
    sweep = Sweep(BASE, (Axis("batch", tuple(range(1, 101))), Axis("prompt_tokens", (7,) * 50)))
    result = run_sweep(sweep)
    pieces = list(sweep_csv(result))
    assert len(pieces) == 3
    rows = list(csv.DictReader("".join(pieces).splitlines()))
    assert len(rows) == sweep.cells
    assert rows[4321]["batch"] == "87"
    assert float(rows[4321]["ttft [s]"]) == result.metrics["ttft"][86, 21]


def test_the_document_asks_for_the_same_sweep_again(document: Any) -> None:
    axes = [{"knob": axis["knob"], "values": axis["values"]} for axis in document["axes"]]
    assert read_sweep({"base": document["base"], "axes": axes}) == SWEEP
    assert set(cell_document(BASE)) == set(KNOBS)


def test_unknown_metrics_are_refused() -> None:
    result = run_sweep(Sweep(BASE))
    with pytest.raises(InvalidRequest) as caught:
        sweep_document(result, ["ttft", "speed"])
    assert caught.value.field == "metrics.1"
