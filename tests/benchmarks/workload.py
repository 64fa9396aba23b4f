"""What is measured, and what one measurement is."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.inference.quantization.calibration_text import HELD_OUT, text_of
from engine.inference.tokenizer import Tokenizer
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
class Prompt:
    """A text and its token ids, for the time to the first token."""

    text: str
    token_ids: tuple[int, ...]

    @classmethod
    def of_length(cls, tokenizer: Tokenizer, num_tokens: int) -> Prompt:
        """The held-out text's beginning that is so many tokens, a begin token included.

        Raises:
            ValueError: no beginning is.
        """
        text = tokenizer.decode(tokenizer.encode(text_of(HELD_OUT))[:num_tokens])
        # The last tokens may be others when the text ends there, so a few characters less may do.
        for end in range(len(text), 0, -1):
            token_ids = tokenizer.encode_prompt(text[:end])
            if len(token_ids) == num_tokens:
                return cls(text[:end], tuple(token_ids))
        raise ValueError(f"no beginning of the text is {num_tokens} tokens")

    @property
    def steps(self) -> list[list[SequenceShape]]:
        """The one step that gives the first token, for a cost model."""
        return [[SequenceShape(0, len(self.token_ids), True)]]


@dataclass(frozen=True, slots=True)
class FirstToken:
    """How long one engine took to its first token, and which it was."""

    seconds: float
    token_id: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several runs, and the ends of their range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


def tokens_per_second(workload: Workload, timings: Sequence[Timing]) -> Spread:
    """Over the runs of one workload on one engine."""
    return Spread.of([workload.tokens / timing.seconds for timing in timings])


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run in each lane: the workloads, and a prompt of so many tokens to its first."""

    workloads: tuple[Workload, ...]
    first_token_after: int

    @property
    def names(self) -> list[str]:
        return [*(w.name for w in self.workloads), f"TTFT at {self.first_token_after}"]


FULL = Plan(
    (
        Workload(batch=1, prompt_tokens=128, new_tokens=128),
        Workload(batch=8, prompt_tokens=128, new_tokens=32),
        Workload(batch=32, prompt_tokens=128, new_tokens=32),
        Workload(batch=1, prompt_tokens=512),
        Workload(batch=1, prompt_tokens=2048),
    ),
    first_token_after=512,
)
QUICK = Plan(
    (
        Workload(batch=1, prompt_tokens=8, new_tokens=4),
        Workload(batch=3, prompt_tokens=8, new_tokens=4),
        Workload(batch=1, prompt_tokens=32),
    ),
    first_token_after=32,
)
