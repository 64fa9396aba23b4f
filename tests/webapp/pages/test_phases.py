"""Lesson 7's predictions: two lengths, their two times, and measured points on predicted lines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from engine.errors import EngineUnavailable, InvalidRequest
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import estimate
from webapp.charts import Roof
from webapp.i18n import Language, texts
from webapp.pages import phases_view
from webapp.pages.phases_forecast import (
    NOT_MEASURED,
    Elsewhere,
    StepPrice,
    compute_bound_from,
    forecast,
    here,
)
from webapp.pages.phases_view import LengthsQuestion, read_lengths, read_points, sweep_view
from webapp.prediction import StepPredictor

MODEL, HARDWARE = "llama-3.1-8b", "h100-sxm"


@pytest.mark.parametrize(("prompt", "output"), [(16, 2), (512, 64), (8000, 1000)])
def test_times_are_those_of_the_simulator(prompt: int, output: int) -> None:
    found = forecast(Elsewhere(MODEL, HARDWARE, "bf16"), prompt, output)
    cell = Cell(MODEL, HARDWARE, prompt_tokens=prompt, output_tokens=output)
    ideal, typical = estimate(cell), estimate(replace(cell, times="typical"))
    assert found.ttft == pytest.approx(typical.ttft, rel=1e-9)
    assert found.ttft_ideal == pytest.approx(ideal.ttft, rel=1e-9)
    assert found.itl == pytest.approx(typical.itl, rel=1e-3)
    assert found.itl_ideal == pytest.approx(ideal.itl, rel=1e-3)


def test_shares_of_the_roof() -> None:
    found = forecast(Elsewhere(MODEL, HARDWARE, "bf16"), 2048, 64)
    assert (found.prefill.bound, found.decode.bound) == ("compute", "memory")
    assert 0.2 < found.prefill.mfu < 1 > found.decode.mbu > 0.4
    assert found.decode.mfu < 0.02
    assert found.prefill.intensity > 400 * found.decode.intensity


def test_one_token_has_no_gap() -> None:
    found = forecast(Elsewhere(MODEL, HARDWARE, "bf16"), 64, 1)
    assert found.itl is None
    assert found.total == found.ttft


def test_more_than_the_context_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        forecast(Elsewhere(MODEL, HARDWARE, "bf16"), 131_072, 1)


def test_prefill_is_bound_by_arithmetic_from_the_ridge_on() -> None:
    pricer = Elsewhere(MODEL, HARDWARE, "bf16")
    first = compute_bound_from(pricer)
    assert first is not None
    assert pricer.price(0, first - 1).bound == "memory"
    assert pricer.price(0, first).bound == "compute"
    # Weights alone give 2 FLOP for 2 B a token, so their ridge is the first guess; activations and
    # the rounding of tiles move it up.
    assert pricer.roof.ridge <= first < 2.5 * pricer.roof.ridge


def test_nothing_is_predicted_of_an_engine_that_is_not_there() -> None:
    with pytest.raises(EngineUnavailable):
        here(None, StepPredictor())


def test_query() -> None:
    assert read_lengths({}) == LengthsQuestion()
    query = {"prompt": "0", "output": "99999", "weights": "int3", "hardware": HARDWARE}
    assert read_lengths(query) == LengthsQuestion(HARDWARE, prompt=1, output=4096)


def test_points() -> None:
    assert read_points(["32:4.5", "8:2", "x:1", "9", "7:nan"]) == ((8, 0.002), (32, 0.0045))
    assert len(read_points([f"{n}:1" for n in range(1, 100)])) == 12


def test_measured_points_stand_alone_where_nothing_is_predicted() -> None:
    said = texts(Language.ENGLISH)
    view = sweep_view(((8, 0.002), (32, 0.004)), (), None, StepPredictor(), said)
    assert view.refusal
    (plot,) = view.plots
    assert plot.columns == ("measured",)
    assert len(plot.wide.lines[0].dots) == 2


class Usual:
    """A machine that takes 1 ms a token, typically twice that, and cuts prompts at 100 tokens."""

    step_tokens = 100
    max_context = 1000
    roof = Roof(1e9, 1e10)
    before_first = 0.0

    def price(self, context: int, new: int) -> StepPrice:
        bound = "compute" if new > 10 else "memory"
        typical = 2e-3 * new
        return StepPrice(1e6 * new, 1e6, 1e-3 * new, bound, typical, (1e-3 * new, 4e-3 * new), 5e-4)


def test_typical_times_have_a_band_and_count_what_lies_between_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(phases_view, "here", lambda *_: Usual())
    said = texts(Language.ENGLISH)
    view = sweep_view(((8, 0.002),), ((12, 0.001),), None, StepPredictor(), said)
    start, stream = view.plots
    assert start.columns == ("predicted, ideal", "predicted, typical", "measured")
    typical = start.lines[1]
    assert dict(typical.points)[64] == pytest.approx(0.128)
    assert dict(typical.points)[256] == pytest.approx(0.512 + 2 * 5e-4), "three steps"
    assert typical.band[0] == pytest.approx((0.004, 0.016))
    assert dict(stream.lines[1].points)[64] == pytest.approx(2e-3 + 5e-4)
    assert view.from_tokens == 11
    assert start.wide.crosses


def test_fragments(client: TestClient) -> None:
    page = client.get(f"/fragments/phases/lengths?hardware={HARDWARE}&prompt=2048&output=64").text
    assert "arithmetic" in page
    assert "memory" in page
    assert 'data-prompt="2048"' in page
    assert NOT_MEASURED in client.get("/fragments/phases/lengths").text
    unknown = client.get("/fragments/phases/lengths?hardware=abacus").text
    assert "There is no prediction for this" in unknown
    drawn = client.get("/fragments/phases/sweep?ttft=8:2&ttft=32:4&itl=12:1.5").text
    assert drawn.count("<circle") == 6, "three points in two sizes"
