"""A diagnosis as JSON, and the observations that a document holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from engine.errors import EngineError, InvalidRequest
from engine.simulator.diagnosis.diagnose import CLEAR, SURE, Cause, Diagnosis, Phase
from engine.simulator.diagnosis.observation import Observation
from engine.simulator.diagnosis.remedies import Remedy
from engine.simulator.diagnosis.weighing import NOISE, TAIL_NOISE
from engine.simulator.quantity import Document
from engine.simulator.search.cell import Cell
from engine.simulator.search.document import at_field, cell_document, inside, read_cell
from engine.simulator.search.sensitivity import Elasticity

MEASURED = ("ttft", "itl", "itl_p99", "queue", "tokens_per_s")
OF_EACH = ("batch", "prompt_tokens", "output_tokens", "context_tokens")
"""Knobs that each observation has for itself."""
ASSUMPTIONS = (
    "Typical times and their p10 and p90 are calibrated on published measurements of this kind of "
    "device; how far one deployment lies from them is the same in all of its measurements.",
    f"Repeated measurements differ by {NOISE:.0%}, 99th percentiles by {TAIL_NOISE:.0%}: assumed.",
    "Causes are about as likely as one another before measuring, all together as likely as none; "
    "only offloading of a model that fits, and an answer that does not stream, are a tenth as "
    "likely. One cause at a time is weighed.",
    f"A cause is named for sure from a probability of {SURE:.0%}, if it is {CLEAR:g} times as "
    "likely as the next.",
    "Requests come one by one, so that a first token takes the prefill of one prompt, unless they "
    "are said to arrive together.",
)


def diagnosis_document(found: Diagnosis) -> Document:
    """The diagnosis as JSON values; times in s, each with its kind."""
    first = found.observations[0]
    return {
        "cell": cell_document(first.cell),
        "verdict": found.verdict,
        "most_time": found.most_time,
        "sure": found.sure,
        "start": _phase(found.start),
        "stream": _phase(found.stream),
        "causes": [_cause(cause) for cause in found.causes],
        "remedies": [_remedy(remedy, first) for remedy in found.remedies],
        "sensitivity": [_slope(slope) for slope in found.sensitivities],
        "assumptions": list(ASSUMPTIONS),
    }


def read_observations(document: Mapping[str, object]) -> tuple[Observation, ...]:
    """The observations of ``{"cell": {…}, "observations": [{"ttft": …, "batch": …}, …]}``.

    An observation may have a batch and tokens of its own beside what it measured; what it does
    not name is as in ``cell``.

    Raises:
        InvalidRequest: a field is missing, unknown or wrong (names it).
    """
    cell, listed = document.get("cell"), document.get("observations")
    if not isinstance(cell, Mapping):
        raise InvalidRequest("give an object", field="cell")
    if not isinstance(listed, list):
        raise InvalidRequest("give an array of measurements", field="observations")
    try:
        base = read_cell(cast("Mapping[str, object]", cell))
    except EngineError as error:
        raise inside(error, "cell") from None
    found: list[Observation] = []
    for place, item in enumerate(cast("list[object]", listed)):
        if not isinstance(item, Mapping):
            raise InvalidRequest("give an object", field=f"observations.{place}")
        values = cast("Mapping[str, object]", item)
        try:
            found.append(_observation(base, values))
        except EngineError as error:
            raise at_field(error, f"observations.{place}.{error.field}") from None
    return tuple(found)


def _observation(base: Cell, values: Mapping[str, object]) -> Observation:
    own = {name: values[name] for name in OF_EACH if values.get(name) is not None}
    measured: dict[str, float] = {}
    for name in MEASURED:
        value = values.get(name)
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InvalidRequest("give a number of seconds, or of tokens/s", field=name)
        measured[name] = value
    cell = replace(base, **own)
    return Observation(cell, together=values.get("together") is True, **measured)


def _phase(phase: Phase) -> Document:
    def seconds(value: float | None, kind: str) -> Document:
        nothing = value is None or math.isnan(value)
        return {"value": None if nothing else value, "unit": "s", "kind": kind}

    return {
        "measured": seconds(phase.measured, "measured"),
        "ideal": seconds(phase.ideal, "predicted"),
        "typical": {
            **seconds(phase.typical, "predicted"),
            "p10": seconds(phase.p10, "predicted")["value"],
            "p90": seconds(phase.p90, "predicted")["value"],
        },
        "over_ideal": _ratio(phase.measured, phase.ideal),
        "over_typical": _ratio(phase.measured, phase.typical),
        "slow": phase.slow,
        "bound": phase.bound,
        "parts": [
            {"cause": name, **seconds(value, "predicted")} for name, value in phase.parts.items()
        ],
    }


def _ratio(measured: float | None, predicted: float) -> float | None:
    return None if measured is None or math.isnan(predicted) else measured / predicted


def _cause(cause: Cause) -> Document:
    return {
        "name": cause.name,
        "words": cause.words,
        "evidence": cause.evidence,
        "probability": cause.probability,
        "share": cause.share,
    }


def _slope(slope: Elasticity) -> Document:
    return {
        "metric": slope.metric,
        "knob": slope.knob,
        "elasticity": slope.value,
        "kind": "predicted",
        "formula": slope.formula,
    }


def _remedy(remedy: Remedy, observation: Observation) -> Document:
    return {
        "name": remedy.name,
        "words": remedy.words,
        "ttft": remedy.ttft,
        "itl": remedy.itl,
        "saves": remedy.saving(observation),
        "saves_of": observation.measured_part,
        "unit": "s",
        "kind": "predicted",
        "fits": remedy.fits,
    }
