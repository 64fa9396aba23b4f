"""The two phases of a batch of equal requests in closed form: all prompts, then token by token.

Costs come from any ``CostModel``: the same lines give ideal and typical times. Where the model is
in stages, prompts find the pipeline empty and decode steps find it full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.scheduling.plan import SequenceShape
from engine.simulator.cost_model import CostModel
from engine.simulator.features import Speculation
from engine.simulator.pipeline import PipelinedCostModel
from engine.simulator.step_shape import growing_contexts, repeated_shape

_MOST_SUMMED_CHUNKS = 32
Group = tuple[float, SequenceShape]


@dataclass(frozen=True, slots=True)
class Prompts:
    """``sequences`` prompts that arrive together: ``cached`` positions each, and ``new`` ones.

    ``chunk`` tokens run in one step at most; None runs all prompts in one step.
    """

    sequences: int
    cached: int
    new: int
    chunk: int | None = None

    @property
    def tokens(self) -> int:
        return self.cached + self.new


@dataclass(frozen=True, slots=True)
class Prefill:
    """Seconds: ``mean`` and ``total`` until the mean and the last prompt are done.

    ``gap`` is the longest a decoding neighbour waits for its next token meanwhile: a step that
    runs as much of one prompt as a step may.
    """

    steps: int
    mean: float
    total: float
    gap: float


@dataclass(frozen=True, slots=True)
class Decode:
    """Seconds of a step: ``step`` to compute known tokens and drafts, ``drafting`` before it.

    Each sequence gets ``tokens`` of a step, on average.
    """

    step: float
    drafting: float
    tokens: float
    plain: float

    @property
    def tpot(self) -> float:
        """Seconds a token."""
        return (self.step + self.drafting) / self.tokens

    @property
    def speedup(self) -> float:
        """Plain decoding's time a token over this one's."""
        return self.plain / self.tpot


def step_time(model: CostModel, *groups: Group, from_empty: bool = False) -> float:
    """Seconds of a step of so many sequences of each shape."""
    shape = repeated_shape(model.step, groups)
    if not isinstance(model, PipelinedCostModel):
        return model.cost_of(shape).time
    cost = model.divide(shape, sum(count for count, _ in groups))
    return cost.time_from_empty if from_empty else cost.time


def prefill(model: CostModel, prompts: Prompts) -> Prefill:
    """Prompts in one step, or in chunks first come, first served."""
    if prompts.chunk is None or prompts.sequences * prompts.new <= prompts.chunk:
        prompt = SequenceShape(prompts.cached, prompts.new, True)
        time = step_time(model, (prompts.sequences, prompt), from_empty=True)
        gap = step_time(model, (1, prompt), *_beside(prompts, prompts.sequences - 1))
        return Prefill(1, time, time, gap)
    if prompts.new <= prompts.chunk:
        return _several_a_step(model, prompts, prompts.chunk // prompts.new)
    return _chunks(model, prompts, prompts.chunk)


def _several_a_step(model: CostModel, prompts: Prompts, together: int) -> Prefill:
    """Steps of a few whole prompts each; those that are done decode beside the next."""
    count = prompts.sequences
    steps = math.ceil(count / together)
    one = SequenceShape(prompts.cached, prompts.new, True)
    elapsed = weighed = longest = 0.0
    for done in range(0, count, together):
        size = min(together, count - done)
        time = step_time(model, (size, one), *_beside(prompts, done), from_empty=not done)
        elapsed += time
        weighed += size * elapsed
        longest = max(longest, time)
    return Prefill(steps, weighed / count, elapsed, longest)


def _beside(prompts: Prompts, done: float) -> tuple[Group, ...]:
    """The decodes of so many sequences whose prompts are done."""
    return ((done, SequenceShape(prompts.tokens, 1, True)),) if done else ()


def _chunks(model: CostModel, prompts: Prompts, chunk: int) -> Prefill:
    """One prompt after the other in steps of ``chunk`` tokens, beside the decodes of the done.

    On average half of the others are done. A pipeline takes a chunk as soon as its first stage
    has passed on the one before.
    """
    count, steps = prompts.sequences, math.ceil(prompts.new / chunk)
    beside = _beside(prompts, (count - 1) / 2)

    undivided = model.whole if isinstance(model, PipelinedCostModel) else model

    def run(start: int, new: int, *, samples: bool) -> float:
        return step_time(undivided, (1, SequenceShape(start, new, samples)), *beside)

    full = steps - 1
    last_start = prompts.cached + full * chunk
    if full <= _MOST_SUMMED_CHUNKS:
        before = math.fsum(
            run(prompts.cached + index * chunk, chunk, samples=False) for index in range(full)
        )
    else:
        starts = growing_contexts(prompts.cached - chunk // 2, full * chunk)
        before = full * math.fsum(run(start, chunk, samples=False) for start in starts) / 2
    last = run(last_start, prompts.tokens - last_start, samples=True)
    share = model.pipeline.slowest if isinstance(model, PipelinedCostModel) else 1.0
    each = share * (before + last)
    drain = (1 - share) * last
    longest = run(last_start - chunk, chunk, samples=True)
    return Prefill(steps * count, each * (count + 1) / 2 + drain, each * count + drain, longest)


def decode(
    model: CostModel,
    sequences: float,
    start: int,
    steps: int,
    speculation: Speculation | None = None,
    drafter: CostModel | None = None,
) -> Decode:
    """The mean step of ``sequences`` whose context grows by ``steps`` tokens from ``start``.

    With ``speculation`` a step verifies γ drafts beside the last known token, priced as the
    multi-token step that it is. ``drafter`` makes them one after the other.
    """
    contexts = growing_contexts(start, steps)
    plain = _mean(model, sequences, contexts, 1)
    if speculation is None:
        return Decode(plain, 0.0, 1.0, plain)
    count = speculation.drafts
    verify = _mean(model, sequences, contexts, count + 1)
    if drafter is None:
        drafting = count * speculation.draft_fraction * plain
    else:
        drafting = count * _mean(drafter, sequences, [c + count // 2 for c in contexts], 1)
    return Decode(verify, drafting, speculation.tokens_per_step, plain)


def _mean(model: CostModel, sequences: float, contexts: Sequence[int], new: int) -> float:
    times = [
        step_time(model, (sequences, SequenceShape(context, new, True, new - 1)))
        for context in contexts
    ]
    return math.fsum(times) / len(times)
