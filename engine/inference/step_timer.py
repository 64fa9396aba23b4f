"""Times single steps of an executor: any batch over any context, without computing that context.

The time of a step depends on how much is cached and not on what, so one computed stretch of text
is copied into all blocks of the cache, and every sequence then has as long a past as is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from engine.inference.executor import TorchExecutor
from engine.inference.sampling import SamplingParams
from engine.scheduling.blocks import blocks_for
from engine.scheduling.plan import Phase, ScheduledSequence, StepPlan

_NAME = "timed-{}"
_PRIMED_TOKENS = 1_024
_ID_STRIDE = 7_919  # a prime: neighbours in the text are not neighbours in the table


class StepTimer:
    """Runs steps of uniform batches on an executor that nobody else uses meanwhile."""

    def __init__(self, executor: TorchExecutor, max_context: int, num_tokens: int) -> None:
        """``num_tokens``: ids are below it."""
        self._executor = executor
        self._longest = min(max_context, executor.num_blocks * executor.block_size)
        self._num_tokens = num_tokens
        self._known = 0
        self._prime()

    def fits(self, sequences: int, prefix: int, new: int) -> bool:
        """Whether the cache has room for such a batch, and the model for such a text."""
        blocks = blocks_for(prefix + new, self._executor.block_size)
        return prefix + new <= self._longest and sequences * blocks <= self._executor.num_blocks

    def run(self, sequences: int, prefix: int, new: int) -> tuple[float, Mapping[str, float]]:
        """Seconds of one step that fits, and of its stages where the device tells them."""
        plan = StepPlan(0, self._sequences(sequences, prefix, new))
        started = time.perf_counter()
        result = self._executor.execute(plan)
        return time.perf_counter() - started, result.stages

    def release(self) -> None:
        """Let the executor forget the sequences."""
        for index in range(self._known):
            self._executor.release(_NAME.format(index))
        self._known = 0

    def _sequences(self, count: int, prefix: int, new: int) -> tuple[ScheduledSequence, ...]:
        for index in range(self._known, count):
            self._executor.add_request(_NAME.format(index), SamplingParams())
        self._known = max(self._known, count)
        blocks = blocks_for(prefix + new, self._executor.block_size)
        phase = Phase.DECODE if prefix and new == 1 else Phase.PREFILL
        return tuple(
            ScheduledSequence(
                _NAME.format(index),
                phase,
                prefix,
                [(index + position) * _ID_STRIDE % self._num_tokens for position in range(new)],
                range(index * blocks, (index + 1) * blocks),
                samples=True,
            )
            for index in range(count)
        )

    def _prime(self) -> None:
        """Compute one stretch of text, and copy its blocks into all others."""
        executor = self._executor
        new = min(_PRIMED_TOKENS, self._longest)
        executor.execute(StepPlan(0, self._sequences(1, 0, new)))
        made = blocks_for(new, executor.block_size)
        copies = tuple((block % made, block) for block in range(made, executor.num_blocks))
        executor.execute(StepPlan(0, self._sequences(1, 0, 1), copies))
