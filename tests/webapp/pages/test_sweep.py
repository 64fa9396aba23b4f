"""Sweeps as a page: the API's own cells, as a chart, a table and a file."""

from __future__ import annotations

import csv
import io
import re
from urllib.parse import parse_qsl

import pytest
from fastapi.testclient import TestClient

from engine.catalog.units import time_label
from engine.errors import InvalidRequest
from engine.simulator.search.axes import KNOBS, Axis, Sweep
from engine.simulator.search.axis_text import MOST_VALUES, read_values
from engine.simulator.search.cell import Cell
from engine.simulator.search.document import sweep_document
from engine.simulator.search.estimate import estimate
from engine.simulator.search.sweep import run_sweep
from webapp.i18n import Language, texts
from webapp.pages.own import OWN, Described, OwnDevice
from webapp.pages.sweep_view import (
    METRICS,
    MOST_LINES,
    MOST_ROWS,
    USUAL_VALUES,
    SweepQuestion,
    SweptView,
    read_sweep_question,
    swept_view,
)

ENGLISH = texts(Language.ENGLISH)


def swept(question: SweepQuestion) -> SweptView:
    body = question.body()
    axes = [Axis(axis["knob"], tuple(axis["values"])) for axis in body["axes"]]  # type: ignore[index, union-attr]
    result = run_sweep(Sweep(Cell(**body["base"]), tuple(axes)))  # type: ignore[arg-type]
    return swept_view(question, dict(sweep_document(result)), ENGLISH)


def test_every_knob_has_values_that_it_takes() -> None:
    assert USUAL_VALUES.keys() == KNOBS.keys()
    base = Cell("llama-3.1-8b", "h100-sxm")
    for knob, text in USUAL_VALUES.items():
        axis = Axis(knob, read_values(knob, text))
        assert 2 <= len(axis.values) <= 12
        run_sweep(Sweep(base, (axis,)))


@pytest.mark.parametrize(
    ("knob", "text", "values"),
    [
        ("batch", "1, 8,64", (1, 8, 64)),
        ("batch", "1:10:x2", (1, 2, 4, 8)),
        ("batch", "1:3:0.5", (1, 2, 3)),
        ("prompt_tokens", "128:512:128", (128, 256, 384, 512)),
        ("usd_per_hour", "0.5:2:x2", (0.5, 1.0, 2.0)),
        ("weights", "bf16, fp8", ("bf16", "fp8")),
    ],
)
def test_values_are_read_as_written(knob: str, text: str, values: tuple[object, ...]) -> None:
    assert read_values(knob, text) == values


@pytest.mark.parametrize(
    ("knob", "text"),
    [
        ("batch", "a"), ("batch", ""), ("batch", "1:2"), ("batch", "1:9:x1"), ("batch", "1:9:0"),
        ("batch", "9:1:1"), ("batch", "0:9:1"), ("batch", "1:9:x"), ("weights", "a:b:c"),
        ("prompt_tokens", f"1:{MOST_VALUES + 1}:1"),
    ],
)  # fmt: skip
def test_values_that_lead_nowhere_are_refused(knob: str, text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_values(knob, text)


def test_cells_are_those_of_the_simulator() -> None:
    view = swept(SweepQuestion(x_values="1, 16", y_values="bf16, fp8", prompt=500, output=64))
    assert view.table.corner == "batch"
    assert view.table.columns == ("bf16", "fp8")
    cell = Cell("llama-3.1-8b", "h100-sxm", weights="fp8", batch=16, times="typical",
                prompt_tokens=500, output_tokens=64)  # fmt: skip
    (_, ((alone, fits), _)), (_, (_, (shown, _))) = view.table.rows
    assert shown == time_label(estimate(cell).itl)
    assert fits
    assert alone != shown
    assert view.plot is not None
    assert view.plot.columns == ("bf16", "fp8")
    assert dict(view.plot.lines[1].points)[16.0] == pytest.approx(estimate(cell).itl)


def test_numbers_run_along_the_axis_whichever_knob_has_them() -> None:
    view = swept(SweepQuestion(x="weights", x_values="bf16,fp8", y="batch", y_values="1,2,4"))
    assert view.plot is not None
    assert view.plot.columns == ("bf16", "fp8")
    assert view.table.columns == ("1", "2", "4")
    names = swept(SweepQuestion(x="weights", x_values="bf16,fp8", y="kv", y_values="bf16,fp8"))
    assert names.plot is None
    assert len(names.table.rows) == 2


def test_one_knob_alone_and_what_does_not_fit() -> None:
    view = swept(SweepQuestion(y="", x_values="1, 4096", metric="memory"))
    assert view.table.columns == ("memory of all devices",)
    assert [cells[0][1] for _, cells in view.table.rows] == [True, False]
    assert not view.all_fit


def test_the_table_is_cut_and_says_so() -> None:
    view = swept(SweepQuestion(x_values="1:100:1", y="prompt_tokens", y_values="1:20:1"))
    assert len(view.table.rows) == MOST_ROWS
    assert len(view.table.columns) == MOST_LINES
    assert view.table.left_out == 2000 - MOST_ROWS * MOST_LINES
    assert view.plot is not None
    assert len(view.plot.lines[0].points) == 100


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_is_shown(client: TestClient, metric: str) -> None:
    text = client.get(f"/fragments/sweep?metric={metric}").text
    assert "<table>" in text
    assert "nan" not in text


def test_the_form_is_a_link_and_the_file_holds_every_metric(client: TestClient) -> None:
    device = OwnDevice(memory=80, bandwidth=2000, bf16=300)
    question = SweepQuestion(
        Described("llama-3.1-8b", OWN, device=device), devices=2, kv="fp8", usd=2.5,
        x="prompt_tokens", x_values="100,200", y="batch", y_values="1,2", metric="usd_per_mtok",
    )  # fmt: skip
    assert read_sweep_question(dict(parse_qsl(question.query))) == question
    answer = client.get(f"/simulator/sweep.csv?{question.query}")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["prompt_tokens"], row["batch"]) for row in rows] == [
        ("100", "1"), ("100", "2"), ("200", "1"), ("200", "2"),
    ]  # fmt: skip
    assert all(float(row["usd_per_mtok [US$/Mtok]"]) > 0 for row in rows)
    page = client.get(f"/simulator/sweep?{question.query}").text
    assert re.search(r'name="x_values" value="100,200"', page)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("x_values=a", '<code>x_values</code>: <span lang="en">batch takes whole numbers'),
        ("x_values=1:4000:1&y=prompt_tokens&y_values=1:4000:1", "100,000 cells at most"),
        ("x_values=0", "axes.0.values.0"),
        ("y_values=int3", "There is no prediction"),
        ("model=own&config={", "model.config"),
        ("x=batch&y=batch", "<table>"),
        ("metric=%3Cb%3E&x=nope", "<table>"),
    ],
)
def test_whatever_a_link_says_the_page_answers(client: TestClient, query: str, said: str) -> None:
    answer = client.get(f"/fragments/sweep?{query}")
    assert answer.status_code == 200
    assert said in answer.text


def test_a_wrong_file_is_refused(client: TestClient) -> None:
    assert client.get("/simulator/sweep.csv?x_values=a").status_code == 422
