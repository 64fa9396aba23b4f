"""A run of the serving page as a file: the API's document, or a line for every request."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any, Literal, cast

from engine.simulator.serving.recorder import RequestTimes
from engine.simulator.serving.simulation import simulate_serving
from webapp import json_codec
from webapp.pages.serving_question import ServingQuestion

_SECONDS = frozenset({"arrival", "queued", "ttft", "tpot", "e2e"})
COLUMNS = tuple(f"{name} [s]" if name in _SECONDS else name for name in RequestTimes._fields)
"""Heads of the CSV file; times count from the request's arrival, the arrival from the start."""


def export_run(body: Mapping[str, object], form: Literal["json", "csv"]) -> bytes:
    """The run of a question, which comes as JSON values (``dataclasses.asdict``).

    Raises:
        EngineError: a knob is wrong, or the run is too long for the page (names the field).
    """
    question = ServingQuestion(**cast("dict[str, Any]", body))
    answered: list[RequestTimes] = []
    result = simulate_serving(question.scenario(), on_request=answered.append)
    if form == "json":
        return json_codec.dumps(result.to_document()).encode()
    answered.sort(key=lambda times: times.arrival)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows(answered)
    return text.getvalue().encode()
