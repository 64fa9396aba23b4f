"""Prices steps of plain decoding in a row, whose sequences each grow by one token a step.

The shape of each step is the one that counting its sequences would give, from sums: so a stretch
takes exactly the time that its steps would take one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.scheduling.plan import SequenceShape
from engine.simulator.cost_model import CostModel
from engine.simulator.decoder_step import StepShape
from engine.simulator.work import CausalWork, LatentWork, Measure, StateWork, Work


class Stretch(NamedTuple):
    """Steps of the same sequences, told at once. ``ends`` are the times at which they end."""

    start: float
    ends: Sequence[float]
    shapes: Sequence[StepShape]

    @property
    def batch(self) -> int:
        return self.shapes[0].tokens


class DecodeShapes:
    """Shapes of the coming decode steps of sequences that have ``contexts`` cached positions."""

    def __init__(self, measures: Sequence[Measure], contexts: Sequence[int], steps: int) -> None:
        self._measures = measures
        self._contexts = contexts
        self._batch = len(contexts)
        seen = sum(contexts) + self._batch  # each new token sees itself too
        shortest, longest = min(contexts), max(contexts) + steps
        # Work of the first step and what each further one adds; None where it is not that simple.
        self._lines = tuple(self._line(item, seen, shortest, longest) for item in measures)

    def _line(
        self, measure: Measure, seen: int, shortest: int, longest: int
    ) -> tuple[int, int, int, int] | None:
        batch = self._batch
        if isinstance(measure, StateWork):
            return 0, batch, 0, batch
        if isinstance(measure, LatentWork):
            return (seen, seen, batch, batch) if measure.absorbed else (0, 0, 0, 0)
        if isinstance(measure, CausalWork):
            window = measure.window
            if window is None or longest <= window:
                return seen, seen, batch, batch
            if shortest + 1 >= window:
                return batch * window, batch * window, 0, batch
        return None

    def at(self, index: int) -> StepShape:
        """The shape of the step of that index, from 0."""
        work = tuple(
            self._count(measure, index)
            if line is None
            else Work(line[0] + index * line[2], line[1] + index * line[2], line[3])
            for measure, line in zip(self._measures, self._lines, strict=True)
        )
        return StepShape(self._batch, self._batch, work)

    def _count(self, measure: Measure, index: int) -> Work:
        return measure.count([SequenceShape(c + index, 1, True) for c in self._contexts])


def price_stretch(
    cost_model: CostModel, contexts: Sequence[int], steps: int, start: float, until: float
) -> Stretch:
    """Times of up to ``steps`` decode steps; none of them starts at ``until`` or later."""
    coming = DecodeShapes(cost_model.step.measures, contexts, steps)
    ends: list[float] = []
    shapes: list[StepShape] = []
    now = start
    for index in range(steps):
        if now >= until:
            break
        shape = coming.at(index)
        now += cost_model.cost_of(shape).time
        ends.append(now)
        shapes.append(shape)
    return Stretch(start, ends, shapes)
