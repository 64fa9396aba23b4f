"""Shapes of uniform batches, of any size and without listing their sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import DecoderStep, StepShape
from engine.simulator.work import Work

_GAUSS = 0.5 / math.sqrt(3)


def scaled_shape(step: DecoderStep, groups: Sequence[tuple[float, int, int]]) -> StepShape:
    """A step of groups of (sequences, prefix, new tokens) that all sample.

    Sequences may be a fraction, where a mean batch is priced: all counts are linear in them.
    """
    return repeated_shape(
        step, [(count, SequenceShape(prefix, new, True)) for count, prefix, new in groups]
    )


def repeated_shape(step: DecoderStep, groups: Sequence[tuple[float, SequenceShape]]) -> StepShape:
    """A step in which each shape comes so many times, a fraction where a mean is meant."""
    tokens = sampled = 0.0
    work = [[0.0, 0.0, 0.0] for _ in step.measures]
    for sequences, shape in groups:
        one = step.measure([shape])
        tokens += sequences * one.tokens
        sampled += sequences * one.sampled
        for total, each in zip(work, one.work, strict=True):
            for index, count in enumerate(each):
                total[index] += sequences * count
    counts = tuple(Work(*(whole_count(count) for count in total)) for total in work)
    return StepShape(whole_count(tokens), whole_count(sampled), counts)


def whole_count(count: float) -> int:
    """Counts are whole but for mean batches, whose fractions the linear formulas take as well."""
    return int(count) if count == int(count) else count  # pyright: ignore[reportReturnType]


def growing_contexts(start: int, steps: float) -> tuple[int, ...]:
    """Contexts whose mean cost is that of ``steps`` decode steps from ``start`` cached positions.

    The two points of Gauss' rule: exact for costs up to cubic in the context.
    """
    if steps < 2:
        return (max(start, 1),)
    middle = start + steps / 2
    return tuple(max(round(middle + sign * _GAUSS * steps), 1) for sign in (-1, 1))
