"""Runs of the serving page, also as JSON values: a process of its own makes the long ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from engine.simulator.serving.quantiles import Distribution
from engine.simulator.serving.recorder import RequestTimes, Totals
from engine.simulator.serving.result import ServingResult
from engine.simulator.serving.series import TimeSeries
from engine.simulator.serving.simulation import simulate_serving
from webapp.pages.serving_question import ServingQuestion

MOST_SHOWN = 48
"""Requests that the picture of single requests shows: the first ones."""
_DISTRIBUTIONS = ("ttft", "itl", "tpot", "e2e", "queued")
_PLAIN = ("kv_blocks", "span", "mfu", "mbu")


@dataclass(frozen=True, slots=True)
class ServedRun:
    """A run, and the times of its first requests in the order in which they came."""

    result: ServingResult
    first: tuple[RequestTimes, ...]


def run_serving(question: ServingQuestion) -> ServedRun:
    """The run that a question asks for.

    Raises:
        EngineError: a knob is wrong, or the run is too long for the page (names the field).
    """
    served: list[RequestTimes] = []

    def hear(times: RequestTimes) -> None:
        served.append(times)

    result = simulate_serving(question.scenario(), on_request=hear)
    served.sort(key=lambda times: times.arrival)
    return ServedRun(result, tuple(served[:MOST_SHOWN]))


def body_of(questions: Sequence[ServingQuestion]) -> dict[str, object]:
    """Questions as JSON values, for ``make_runs``."""
    return {"questions": [asdict(question) for question in questions]}


def make_runs(body: Mapping[str, object]) -> bytes:
    """The runs of a ``body_of`` as JSON, for ``read_runs``.

    Raises:
        EngineError: as for ``run_serving``.
    """
    asked = cast("list[dict[str, Any]]", body["questions"])
    return json.dumps([_values(run_serving(ServingQuestion(**each))) for each in asked]).encode()


def read_runs(made: bytes, questions: Sequence[ServingQuestion]) -> tuple[ServedRun, ...]:
    """What ``make_runs`` made of the questions."""
    return tuple(map(_rebuilt, questions, json.loads(made)))


def _values(run: ServedRun) -> dict[str, object]:
    result = run.result
    found: dict[str, Distribution | None] = {name: getattr(result, name) for name in _DISTRIBUTIONS}
    return {
        **{name: getattr(result, name) for name in _PLAIN},
        **{name: None if each is None else asdict(each) for name, each in found.items()},
        "totals": asdict(result.totals),
        "series": asdict(result.series),
        "first": run.first,
    }


def _rebuilt(question: ServingQuestion, values: dict[str, Any]) -> ServedRun:
    scenario, series = question.scenario(), values["series"]
    distributions: dict[str, Any] = {name: _distribution(values[name]) for name in _DISTRIBUTIONS}
    result = ServingResult(
        scenario=scenario,
        cost_model=scenario.deployment.cost_model(),
        totals=Totals(**values["totals"]),
        series=TimeSeries(
            series["width"], {name: tuple(means) for name, means in series["means"].items()}
        ),
        **{name: values[name] for name in _PLAIN},
        **distributions,
    )
    return ServedRun(result, tuple(RequestTimes(*times) for times in values["first"]))


def _distribution(values: dict[str, Any] | None) -> Distribution | None:
    if values is None:
        return None
    percentiles: tuple[float, ...] = tuple(values.pop("percentiles"))
    return Distribution(percentiles=percentiles, **values)
