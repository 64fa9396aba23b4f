"""Answers of the simulator's larger questions as bytes, ready to be sent.

They are made and compressed in a thread or in a process of their own (``webapp.computing``), so
that the event loop only passes them on.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from engine.errors import EngineError, InvalidRequest
from engine.simulator.diagnosis.diagnose import diagnose
from engine.simulator.diagnosis.document import diagnosis_document, read_observations
from engine.simulator.search.axes import KNOBS
from engine.simulator.search.cheapest import cheapest
from engine.simulator.search.confirming import confirm
from engine.simulator.search.document import at_field, placed, read_sweep, sweep_csv, sweep_document
from engine.simulator.search.search_document import read_requirement, search_document
from engine.simulator.search.sweep import METRICS, run_sweep
from webapp import json_codec
from webapp.pages.serving_export import export_run
from webapp.pages.serving_runs import make_runs

_GZIP_LEVEL = 5

Form = Literal["json", "csv"]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, as JSON values, and how the answer is wanted."""

    task: str
    body: Mapping[str, object]
    form: Form = "json"
    compressed: bool = False


def answer(question: Question) -> bytes:
    """The answer to a question.

    Raises:
        EngineError: whatever the engine refuses (names the field of the question).
        InvalidRequest: there is no such task.
    """
    task = _TASKS.get(question.task)
    if task is None:
        raise InvalidRequest("there is no such question", field="task")
    content = task(question)
    return gzip.compress(content, _GZIP_LEVEL) if question.compressed else content


def _sweep(question: Question) -> bytes:
    sweep = read_sweep(question.body)
    metrics = cast("list[str] | None", question.body.get("metrics")) or METRICS
    try:
        result = run_sweep(sweep)
    except EngineError as error:
        raise placed(error, sweep) from None
    if question.form == "csv":
        return "".join(sweep_csv(result, metrics)).encode()
    return json_codec.dumps(sweep_document(result, metrics)).encode()


def _search(question: Question) -> bytes:
    body = dict(question.body)
    finalists = cast("int", body.pop("finalists"))
    result = cheapest(read_requirement(body))
    runs = [confirm(result.requirement, item) for item in result.best[:finalists]]
    return json_codec.dumps(search_document(result, runs)).encode()


def _diagnose(question: Question) -> bytes:
    try:
        found = diagnose(read_observations(question.body))
    except EngineError as error:
        # A name that the catalogue does not have is found only now.
        raise (at_field(error, f"cell.{error.field}") if error.field in KNOBS else error) from None
    return json_codec.dumps(diagnosis_document(found)).encode()


def _serving_page(question: Question) -> bytes:
    return make_runs(question.body)


def _serving_export(question: Question) -> bytes:
    return export_run(question.body, question.form)


_TASKS: Mapping[str, Callable[[Question], bytes]] = {
    "sweep": _sweep,
    "search": _search,
    "diagnose": _diagnose,
    "serving-page": _serving_page,
    "serving-export": _serving_export,
}
