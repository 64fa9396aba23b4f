"""An executor without a model: the next token is a function of the whole text before it.

Because it reads the text from its own record of the KV cache, by block, a scheduler that hands a
block to two requests or forgets to recompute one changes the tokens and so fails the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.scheduling.blocks import BlockPool
from engine.scheduling.drafting import Drafter
from engine.scheduling.events import Event, TokenProduced
from engine.scheduling.loop import SchedulingLoop, VirtualClock
from engine.scheduling.plan import Sample, ScheduledSequence, StepPlan, StepResult
from engine.scheduling.policies import Policy
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from engine.scheduling.speculation import TO_DRAFT, SpeculationMethod

VOCABULARY = 97


def next_token(text: Sequence[int]) -> int:
    value = 7
    for token in text:
        value = (value * 31 + token + 1) % 1_000_003
    return value % VOCABULARY


def expected_output(prompt: list[int], count: int) -> list[int]:
    """What a lone request must give: the slow way."""
    text = list(prompt)
    for _ in range(count):
        text.append(next_token(text))
    return text[len(prompt) :]


class FakeExecutor:
    """Stores token ids in the slots that the block tables name, as a cache stores K and V.

    As K and V do, what is stored of a token depends on all that came before it.
    """

    def __init__(self, block_size: int, step_seconds: float = 1.0) -> None:
        self.block_size = block_size
        self.step_seconds = step_seconds
        self.slots: dict[int, tuple[int, ...]] = {}
        self.released: list[str] = []
        self.fail_at: int | None = None
        self.fail_next = False

    def execute(self, plan: StepPlan) -> StepResult:
        if plan.step == self.fail_at or self.fail_next:
            raise RuntimeError("the device is gone")
        samples: list[Sample] = []
        self._copy(plan)
        drafted: dict[str, list[int]] = {}
        sequences = [self._drafted(sequence, drafted) for sequence in plan.sequences]
        for sequence in sequences:
            text = self._text(sequence.block_table, sequence.start)
            for offset, token in enumerate(sequence.token_ids):
                text = (*text, token)
                self.slots[self._slot(sequence.block_table, sequence.start + offset)] = text
        for sequence in sequences:
            if sequence.samples:
                samples += self._samples(sequence)
        return StepResult(tuple(samples), duration=self.step_seconds, drafts=drafted)

    def choose(self, request_id: str, text: Sequence[int]) -> int:
        """The token that a request says after a text."""
        return next_token(text)

    def draft(self, request_id: str, text: Sequence[int], count: int) -> list[int]:
        """What it drafts within the step: at most so many tokens."""
        raise AssertionError("nobody asked for drafts")

    def _drafted(
        self, sequence: ScheduledSequence, drafted: dict[str, list[int]]
    ) -> ScheduledSequence:
        if TO_DRAFT not in sequence.drafts:
            return sequence
        text = [*sequence.prompt_token_ids, *sequence.output_token_ids]
        drafts = self.draft(sequence.request_id, text, sequence.num_drafts)
        drafted[sequence.request_id] = drafts
        return sequence.with_drafts(drafts)

    def _samples(self, sequence: ScheduledSequence) -> list[Sample]:
        """One token, and one more for each draft that is the token before it."""
        end = sequence.start + sequence.num_tokens
        texts = [
            self._text(sequence.block_table, known)
            for known in range(end - sequence.num_drafts, end + 1)
        ]
        assert list(texts[0]) == [*sequence.prompt_token_ids, *sequence.output_token_ids]
        samples: list[Sample] = []
        for text, draft in zip(texts, [*sequence.drafts, None], strict=True):
            token = self.choose(sequence.request_id, text)
            samples.append(Sample(sequence.request_id, token, -1.0))
            if token != draft:
                break
        return samples

    def _copy(self, plan: StepPlan) -> None:
        sources = {source for source, _ in plan.copies}
        targets = [target for _, target in plan.copies]
        assert not sources & set(targets)
        assert len(set(targets)) == len(targets)
        for source, target in plan.copies:
            for offset in range(self.block_size):
                stored = self.slots.get(source * self.block_size + offset)
                if stored is not None:
                    self.slots[target * self.block_size + offset] = stored

    def _text(self, table: Sequence[int], length: int) -> tuple[int, ...]:
        """The text of the first positions; each slot must have been filled by the same text."""
        stored = [self.slots[self._slot(table, position)] for position in range(length)]
        text = stored[-1] if stored else ()
        assert stored == [text[: i + 1] for i in range(length)], "a slot holds another text"
        return text

    def release(self, request_id: str) -> None:
        self.released.append(request_id)

    def _slot(self, table: Sequence[int], position: int) -> int:
        return table[position // self.block_size] * self.block_size + position % self.block_size


def taste(request_id: str) -> int:
    """What a seed is to a real request: without it, all samples of a prompt would be the same."""
    return sum(map(ord, request_id))


def personal_output(request_id: str, prompt: list[int], count: int) -> list[int]:
    """What a request of that name must say: the slow way."""
    text = list(prompt)
    for _ in range(count):
        text.append((next_token(text) + taste(request_id)) % VOCABULARY)
    return text[len(prompt) :]


class PersonalExecutor(FakeExecutor):
    """Every request has a taste of its own, so that forks of one text go different ways."""

    def choose(self, request_id: str, text: Sequence[int]) -> int:
        return (next_token(text) + taste(request_id)) % VOCABULARY


def make_loop(
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    limits: SchedulerLimits | None = None,
    policy: Policy | None = None,
    prefix_cache: PrefixCache | None = None,
    drafters: Mapping[SpeculationMethod, Drafter] | None = None,
) -> tuple[SchedulingLoop, FakeExecutor, list[Event]]:
    events: list[Event] = []
    executor = FakeExecutor(block_size)
    pool = BlockPool(num_blocks, block_size, prefix_cache=prefix_cache)
    scheduler = Scheduler(pool, limits or SchedulerLimits(), policy)
    loop = SchedulingLoop(scheduler, executor, VirtualClock(), events.append, drafters)
    return loop, executor, events


def run_to_end(loop: SchedulingLoop, steps: int = 10_000) -> None:
    for _ in range(steps):
        if not loop.has_work:
            return
        loop.step()
        loop.scheduler.check_integrity()
    raise AssertionError("the loop did not come to an end")


def make_request(name: str, prompt: list[int], max_tokens: int, **options: object) -> Request:
    return Request(name, prompt, max_tokens, **options)  # type: ignore[arg-type]


def outputs_of(events: list[Event], said: Mapping[str, int] | None = None) -> dict[str, list[int]]:
    """Tokens by request. ``said``: how many a fork had taken over, which are not told again."""
    outputs: dict[str, list[int]] = {}
    for event in events:
        if isinstance(event, TokenProduced):
            output = outputs.setdefault(event.request_id, [])
            assert event.index == len(output) + (said or {}).get(event.request_id, 0)
            output.append(event.token_id)
    return outputs
