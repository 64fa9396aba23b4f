"""What is measured, and what one measurement is."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.scheduling.plan import SequenceShape


@dataclass(frozen=True, slots=True)
class Workload:
    """``new_tokens`` decode steps over ``batch`` sequences, or one prefill if there are none.

    Every sequence has its own prompt of ``prompt_tokens``; those are in the cache before a decode
    measurement starts, and are what a prefill measurement computes.
    """

    batch: int
    prompt_tokens: int
    new_tokens: int = 0

    @property
    def phase(self) -> str:
        return "decode" if self.new_tokens else "prefill"

    @property
    def name(self) -> str:
        if self.new_tokens:
            return f"decode, batch {self.batch}"
        return f"prefill {self.prompt_tokens}"

    @property
    def tokens(self) -> int:
        """The tokens that count: generated ones in a decode, prompt tokens in a prefill."""
        return self.batch * (self.new_tokens or self.prompt_tokens)

    @property
    def warm_up(self) -> Workload:
        """The same with a few steps: enough to load, pack and allocate what is used."""
        return replace(self, new_tokens=min(self.new_tokens, 4))

    def prompts(self, vocab_size: int) -> list[list[int]]:
        """Random token ids, the same at every call: speed does not depend on what they mean."""
        draw = random.Random(20_240_229)
        return [
            [draw.randrange(vocab_size) for _ in range(self.prompt_tokens)]
            for _ in range(self.batch)
        ]

    def steps(self) -> list[list[SequenceShape]]:
        """The shapes of the steps that are timed, for a cost model."""
        if not self.new_tokens:
            return [[SequenceShape(0, self.prompt_tokens, True)] * self.batch]
        return [
            [SequenceShape(self.prompt_tokens + step, 1, True)] * self.batch
            for step in range(self.new_tokens)
        ]


@dataclass(frozen=True, slots=True)
class Timing:
    """One run of a workload: how long, and which tokens each sequence got while timed."""

    seconds: float
    token_ids: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens per second over the runs of one workload on one engine."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, workload: Workload, timings: Sequence[Timing]) -> Throughput:
        rates = [workload.tokens / timing.seconds for timing in timings]
        return cls(statistics.median(rates), min(rates), max(rates))


FULL = (
    Workload(batch=1, prompt_tokens=128, new_tokens=128),
    Workload(batch=8, prompt_tokens=128, new_tokens=32),
    Workload(batch=32, prompt_tokens=128, new_tokens=32),
    Workload(batch=1, prompt_tokens=512),
    Workload(batch=1, prompt_tokens=2048),
)
QUICK = (
    Workload(batch=1, prompt_tokens=8, new_tokens=4),
    Workload(batch=3, prompt_tokens=8, new_tokens=4),
    Workload(batch=1, prompt_tokens=32),
)
