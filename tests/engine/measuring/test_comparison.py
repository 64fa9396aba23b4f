"""Measured points beside predictions: points are made out of predicted times, so that what a
comparison and a diagnosis have to find is known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from engine.catalog.hardware import get_hardware
from engine.measuring.comparison import catalogue_id, compare, observation
from engine.measuring.document import report_document
from engine.measuring.page import report_page
from engine.measuring.plan import Plan
from engine.measuring.point import Point
from engine.measuring.reply import Arrival, Failure, Reply, Usage
from engine.measuring.report import Report
from engine.measuring.text import report_text
from engine.simulator.scenario import Scenario, simulate
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import estimate

BASE = Cell("llama-3.1-8b", "h100-sxm", times="typical")
OUTPUT = 33


def predicted(prompt: int, batch: int, start: float = 1.0, stream: float = 1.0) -> Point:
    """A point whose answers take so many times the typical times."""
    cell = replace(BASE, batch=batch, prompt_tokens=prompt, output_tokens=OUTPUT)
    ttft = start * estimate(replace(cell, batch=1)).ttft
    itl = stream * estimate(cell).itl
    arrivals = tuple(Arrival(ttft + place * itl, 1) for place in range(OUTPUT))
    total = arrivals[-1].at
    usage = Usage(prompt, OUTPUT)
    replies = tuple(
        Reply(place * total, total, arrivals=arrivals, usage=usage)
        for place in range(4)
        for _ in range(batch)
    )
    return Point(prompt, batch, len(replies), replies)


def report(*points: Point, base: Cell | None = BASE, model: str = "m") -> Report:
    found = None if base is None else compare(base, points)
    plan = Plan(tuple({p.wanted_tokens: 1 for p in points}), (1,), OUTPUT)
    why = "" if base else "nothing is known"
    return Report("http://h/v1", model, "chat", "2026-01-02T03:04:05+00:00", plan, points, found,
                  why)  # fmt: skip


def test_what_is_typical_is_judged_as_usual() -> None:
    found = compare(BASE, [predicted(512, 1), predicted(512, 8)])
    assert [item.found.verdict for item in found.points] == ["as usual", "as usual"]
    assert found.diagnosis is not None
    assert found.diagnosis.verdict == "as usual"
    assert all(item.farthest == pytest.approx(1.0) for item in found.points)


def test_the_point_that_is_farthest_off_is_explained() -> None:
    points = [predicted(512, 1), predicted(512, 8, stream=3.0), predicted(2048, 1)]
    found = compare(BASE, points)
    assert found.explained is not None
    assert found.explained.point is points[1]
    assert found.diagnosis is not None
    assert found.diagnosis.verdict == "slow to stream"
    assert len(found.diagnosis.observations) == 3


def test_a_late_start_is_told_from_a_slow_stream() -> None:
    found = compare(BASE, [predicted(512, 4, start=8.0)])
    assert found.diagnosis is not None
    assert found.diagnosis.verdict == "slow to start"


def test_bytes_and_flops_are_those_of_the_simulator() -> None:
    """The decode step at one request: the same operators, added up another way."""
    point = predicted(512, 1)
    (item,) = compare(BASE, [point]).points
    dots = {dot.phase: dot for dot in item.dots}
    step = simulate(
        Scenario("llama-3.1-8b", "h100-sxm", prompt_tokens=512, output_tokens=OUTPUT)
    ).decode
    decode = dots["decode"]
    assert decode.intensity == pytest.approx(step.intensity, rel=1e-3)
    assert point.itl is not None
    assert decode.measured == pytest.approx(step.flops / point.itl.p50, rel=1e-3)
    assert decode.bandwidth == pytest.approx(step.bytes / point.itl.p50, rel=1e-3)
    device = get_hardware("h100-sxm")
    assert decode.mbu == pytest.approx(decode.bandwidth / device.bandwidth)
    assert decode.measured == pytest.approx(decode.typical)
    assert dots["prefill"].mfu == pytest.approx(
        dots["prefill"].measured / device.dense_flops["bf16"]
    )


def test_more_devices_share_a_step() -> None:
    (alone,) = compare(BASE, [predicted(512, 1)]).points
    (shared,) = compare(replace(BASE, devices=2), [predicted(512, 1)]).points
    assert shared.dots[1].measured == pytest.approx(alone.dots[1].measured / 2, rel=0.02)


def test_without_enough_answers_nothing_is_explained() -> None:
    point = predicted(512, 1)
    assert observation(BASE, replace(point, replies=point.replies[:2])) is None
    failed = Point(512, 1, 4, (Reply(0.0, 1.0, failure=Failure.TIMEOUT),) * 4)
    found = compare(BASE, [failed])
    assert (found.points, found.diagnosis) == ((), None)
    assert "no diagnosis" in report_text(report(failed))
    assert "No point has enough whole answers" in report_page(report(failed))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("my-llama-3.1-8b", None),
        ("", None),
    ],
)
def test_models_are_found_by_their_whole_name_only(name: str, found: str | None) -> None:
    assert catalogue_id(name) == found


def test_the_document_is_json_and_tells_kinds_apart() -> None:
    points = [predicted(512, 1), predicted(512, 8, stream=3.0)]
    document = json.loads(json.dumps(report_document(report(*points)), allow_nan=False))
    assert (document["schema"], document["version"]) == ("firsttoken.measurement", 1)
    first = document["points"][0]
    assert first["measured"]["kind"] == "measured"
    assert first["predicted"]["kind"] == "predicted"
    assert first["measured"]["ttft_s"]["p50"] == pytest.approx(
        first["predicted"]["ttft_s"]["typical"]
    )
    assert document["comparison"]["diagnosis"]["verdict"] == "slow to stream"
    assert document["comparison"]["explained"]["concurrency"] == 8
    bare = json.loads(json.dumps(report_document(report(predicted(8, 1), base=None))))
    assert bare["comparison"] is None
    assert bare["not_compared_because"] == "nothing is known"


class Page(HTMLParser):
    """Tags that are open, and the addresses and elements of a page."""

    VOID = ("meta", "path", "rect", "circle")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_stands_alone_and_escapes_names() -> None:
    page = report_page(report(predicted(512, 1), model="<script>alert(1)</script>"))
    parser = Page()
    parser.feed(page)
    assert parser.open == []
    assert "script" not in parser.elements
    assert not [name for name, _ in parser.attributes if name in ("src", "href", "style")]
    assert "url(" not in page
    assert "&lt;script&gt;" in page
    assert "One device reads 3.35 TB/s and computes 989 TFLOP/s" in page


def test_measured_marks_lie_on_the_picture_and_under_the_roof() -> None:
    page = report_page(report(predicted(512, 1), predicted(2048, 16)))
    circles = re.findall(r'class="decode measured" cx="([\d.]+)" cy="([\d.]+)" r="5"><title>', page)
    assert len(circles) == 2
    assert all(90 <= float(x) <= 660 and 20 <= float(y) <= 350 for x, y in circles)
    roof = re.search(r'class="roof" d="M([\d. L]+)"', page)
    assert roof is not None
    corners = [tuple(map(float, corner.split())) for corner in roof[1].split("L")]
    (x0, y0), (x1, y1), _ = corners
    for x, y in ((float(x), float(y)) for x, y in circles):
        assert y > y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def test_cautions_name_what_was_off() -> None:
    point = predicted(512, 1)
    good = point.replies[0]
    uncounted = replace(point, replies=(replace(good, usage=Usage()),) * 4)
    cached = replace(point, replies=(replace(good, usage=Usage(700, 9, 400)),) * 4)
    stopped = replace(point, planned=100)
    words = {
        "each chunk is taken for one": uncounted,
        "prompts had 700 tokens": cached,
        "400 prompt tokens came from the server's cache": cached,
        "answers ended after 9.0 tokens": cached,
        "ended after 4 of 100 requests": stopped,
    }
    for expected, case in words.items():
        assert expected in "\n".join(report(case).cautions)
    assert report(point).cautions == []
    failed = replace(point, replies=(*point.replies, Reply(0, 1, failure=Failure.CUT)), planned=5)
    assert "1 of 5 requests failed" in report(failed).cautions[0]
    assert "1 × stream cut off" in report_text(report(failed))


def test_one_token_has_no_time_between_tokens() -> None:
    reply = Reply(0.0, 0.1, arrivals=(Arrival(0.1, 1),), usage=Usage(512, 1))
    found = report(Point(512, 1, 4, (reply,) * 4))
    assert found.points[0].itl is None
    document = json.loads(json.dumps(report_document(found), allow_nan=False))
    assert document["points"][0]["measured"]["itl_s"] is None
    assert document["points"][0]["predicted"]["itl_s"]["typical"] is None
    assert "nan" not in report_text(found)
