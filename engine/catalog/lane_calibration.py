"""What was measured of one lane of the real engine: steps of known shapes, and how long they took.

Only measurements are kept. What follows from them, such as the rate of a product over its rows, is
worked out by whoever predicts, so that a better way of doing that needs no new measuring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from engine.catalog.json_values import as_flag, as_list, as_number, as_numbers, as_object, as_text

STAGES: tuple[str, ...] = ("embed", "layers", "logits", "sample")
"""The parts of a step that the engine tells, in the order in which they run."""

MAX_RUNS = 60
"""Runs of a step that are kept: those of the last sessions."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step of ``sequences`` that each had ``prefix_tokens`` cached and computed ``new_tokens``.

    All of them sampled one token. ``seconds`` are of the whole step, run by run; ``stages`` medians
    of its parts, empty where a device does not tell them. A step that ``checks`` takes no part in
    what is worked out of the others: it tells how far off that is.
    """

    sequences: int
    prefix_tokens: int
    new_tokens: int
    seconds: tuple[float, ...]
    stages: Mapping[str, float]
    checks: bool = False

    def __post_init__(self) -> None:
        if self.sequences < 1 or self.prefix_tokens < 0 or self.new_tokens < 1:
            raise ValueError("a step has sequences that compute at least one token each")
        if not self.seconds or not all(0 < number < math.inf for number in self.seconds):
            raise ValueError("times must be finite and above 0")
        if self.stages and (
            set(self.stages) != {*STAGES}
            or not all(0 <= number < math.inf for number in self.stages.values())
        ):
            raise ValueError(f"a step has the stages {', '.join(STAGES)}")

    @property
    def rows(self) -> int:
        """Tokens that the step computes."""
        return self.sequences * self.new_tokens

    @property
    def size(self) -> tuple[int, int, int]:
        """What makes two steps the same."""
        return (self.sequences, self.prefix_tokens, self.new_tokens)

    def with_runs_of(self, earlier: MeasuredStep) -> MeasuredStep:
        """The same step with the runs of an earlier session before its own."""
        before, now = len(earlier.seconds), len(self.seconds)
        stages = {
            name: (earlier.stages[name] * before + seconds * now) / (before + now)
            for name, seconds in self.stages.items()
            if name in earlier.stages
        }
        runs = (*earlier.seconds, *self.seconds)[-MAX_RUNS:]
        return replace(self, seconds=runs, stages=stages if earlier.stages else self.stages)


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds that a step takes whatever it computes: ``layer_s`` for each layer and ``step_s``
    once, from a model so small that nothing else is left."""

    step_s: float
    layer_s: float

    def __post_init__(self) -> None:
        if not (0 <= self.step_s < math.inf and 0 <= self.layer_s < math.inf):
            raise ValueError("overheads must be finite and not below 0")


@dataclass(frozen=True, slots=True)
class LaneCalibration:
    """One lane of one model, measured.

    ``lane`` is its name; ``model`` the architecture under the names of the catalogue's
    ``ModelSpec``; ``weight_format`` and ``kv_format`` the catalogue's names; ``dtype`` what torch
    computes in. Steps of at most ``native_rows`` tokens ran natively, the others, if any, in torch;
    ``native_library`` names what ran them. ``launch`` is by path, "native" or "torch".
    ``between_steps`` are the seconds that the engine takes between two decode steps, by sequences:
    planning, booking, text and messages. ``date`` is ISO 8601.
    """

    lane: str
    model: Mapping[str, object]
    dtype: str
    weight_format: str
    kv_format: str
    native_rows: int
    native_library: str
    launch: Mapping[str, Overheads]
    between_steps: Mapping[int, float]
    steps: tuple[MeasuredStep, ...]
    date: str

    def __post_init__(self) -> None:
        if self.native_rows < 0:
            raise ValueError("rows are not below 0")
        all_native = self.native_rows and all(s.rows <= self.native_rows for s in self.steps)
        if not all_native and "torch" not in self.launch:
            raise ValueError("the overheads of torch are needed")
        if self.native_rows and "native" not in self.launch:
            raise ValueError("the overheads of native steps are needed")
        between = self.between_steps
        if not between or not all(0 <= number < math.inf for number in between.values()):
            raise ValueError("times between steps must be finite and not below 0")

    def with_sessions_of(self, earlier: LaneCalibration) -> LaneCalibration:
        """This session's measurements together with those of earlier ones.

        A machine that others share is faster at one time and slower at another; several sessions
        know that, one does not. What was measured of other code is left out.
        """
        if _what_ran(earlier) != _what_ran(self):
            return self
        known = {(step.size, step.checks): step for step in earlier.steps}
        steps = tuple(
            step.with_runs_of(known[step.size, step.checks])
            if (step.size, step.checks) in known
            else step
            for step in self.steps
        )
        return replace(self, steps=steps)


def _what_ran(lane: LaneCalibration) -> tuple[object, ...]:
    formats = (lane.dtype, lane.weight_format, lane.kv_format)
    return (lane.lane, dict(lane.model), formats, lane.native_rows, lane.native_library)


def lane_to_json(lane: LaneCalibration) -> dict[str, object]:
    """As JSON values, which ``lane_from_json`` reads back."""
    return {
        "lane": lane.lane,
        "model": dict(lane.model),
        "dtype": lane.dtype,
        "weight_format": lane.weight_format,
        "kv_format": lane.kv_format,
        "native_rows": lane.native_rows,
        "native_library": lane.native_library,
        "launch": {
            path: {"step_s": cost.step_s, "layer_s": cost.layer_s}
            for path, cost in lane.launch.items()
        },
        "between_steps": {str(count): number for count, number in lane.between_steps.items()},
        "steps": [_step_to_json(step) for step in lane.steps],
        "date": lane.date,
    }


def _step_to_json(step: MeasuredStep) -> dict[str, object]:
    return {
        "sequences": step.sequences,
        "prefix_tokens": step.prefix_tokens,
        "new_tokens": step.new_tokens,
        "seconds": list(step.seconds),
        "stages": dict(step.stages),
        "checks": step.checks,
    }


def lane_from_json(value: object) -> LaneCalibration:
    """Read ``lane_to_json`` back.

    Raises:
        KeyError, TypeError, ValueError: it is not what that wrote.
    """
    entry = as_object(value)
    return LaneCalibration(
        lane=as_text(entry["lane"]),
        model=MappingProxyType({key: _scalar(v) for key, v in as_object(entry["model"]).items()}),
        dtype=as_text(entry["dtype"]),
        weight_format=as_text(entry["weight_format"]),
        kv_format=as_text(entry["kv_format"]),
        native_rows=int(as_number(entry["native_rows"])),
        native_library=as_text(entry["native_library"]),
        launch=MappingProxyType(
            {path: _overheads(cost) for path, cost in as_object(entry["launch"]).items()}
        ),
        between_steps=MappingProxyType(
            {int(count): number for count, number in as_numbers(entry["between_steps"]).items()}
        ),
        steps=tuple(_step(step) for step in as_list(entry["steps"])),
        date=as_text(entry["date"]),
    )


def _scalar(value: object) -> object:
    if not isinstance(value, str | int | float | bool | None):
        raise TypeError("a number, a text or a flag was expected")
    return value


def _overheads(value: object) -> Overheads:
    entry = as_object(value)
    return Overheads(as_number(entry["step_s"]), as_number(entry["layer_s"]))


def _step(value: object) -> MeasuredStep:
    entry = as_object(value)
    return MeasuredStep(
        sequences=int(as_number(entry["sequences"])),
        prefix_tokens=int(as_number(entry["prefix_tokens"])),
        new_tokens=int(as_number(entry["new_tokens"])),
        seconds=tuple(as_number(item) for item in as_list(entry["seconds"])),
        stages=as_numbers(entry["stages"]),
        checks=as_flag(entry["checks"]),
    )
