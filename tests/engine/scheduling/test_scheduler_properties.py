"""Random programs of add, step, abort, preempt, finish, fork and configure, under every setting.

Blocks are conserved after each operation, everybody finishes, and each gets the tokens that it
would get alone, whatever was drafted for it. FIRSTTOKEN_PROGRAMS sets how many programs run; 10,000
take some minutes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.errors import InvalidRequest, NeverFits, QueueFull, StepFailed
from engine.scheduling.blocks import blocks_for
from engine.scheduling.drafting import InStepDrafter
from engine.scheduling.events import (
    Configured,
    DraftsVerified,
    Event,
    RequestFinished,
    RequestPreempted,
    RequestStarted,
    StepCompleted,
)
from engine.scheduling.policies import POLICIES
from engine.scheduling.prefix_cache import PrefixCache, chain_hash
from engine.scheduling.request import FinishReason, Request
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from tests.engine.scheduling.fakes import (
    VOCABULARY,
    PersonalExecutor,
    make_loop,
    outputs_of,
    personal_output,
)

PROGRAMS = int(os.environ.get("FIRSTTOKEN_PROGRAMS", "500"))

# None: no prefix cache. A weak hash makes different texts collide all the time.
HASHES = [
    None,
    chain_hash,
    lambda previous, tokens: chain_hash(previous, tokens) % 3,
    lambda _previous, tokens: sum(tokens) % 5,
]

LIMITS = st.builds(
    SchedulerLimits,
    max_running=st.integers(1, 6),
    max_waiting=st.just(6),
    max_step_tokens=st.integers(1, 16),
    max_context=st.just(60),
    max_session_running=st.none() | st.integers(1, 3),
    max_session_waiting=st.none() | st.integers(0, 4),
    max_session_kv_blocks=st.none() | st.integers(2, 20),
    keep_computed=st.sampled_from([True, True, True, False]),
)

SPECULATION = st.none() | st.builds(
    SpeculationSettings,
    method=st.sampled_from([SpeculationMethod.NGRAM, SpeculationMethod.EARLY_EXIT]),
    draft_tokens=st.integers(1, 6),
)

STOPS = st.sampled_from([frozenset[int](), frozenset(range(0, VOCABULARY, 8))])

# Few different tokens and a few common beginnings, so that prefixes are often hit.
TOKENS = st.integers(0, 2)
PROMPTS = st.builds(
    lambda length, own: [1, 2, 0, 1, 1, 2, 2, 0, 1, 0, 2, 1][:length] + own,
    st.integers(0, 12),
    st.lists(TOKENS, min_size=1, max_size=8),
)


class GuessingExecutor(PersonalExecutor):
    """Drafts what a request will say, right with a fixed chance, before a step or within it."""

    def __init__(self, block_size: int, chance: float, seed: int) -> None:
        super().__init__(block_size)
        self.chance = chance
        self.random = random.Random(seed)

    def draft(self, request_id: str, text: Sequence[int], count: int) -> list[int]:
        wanted = self.random.choice([count, count, self.random.randint(0, count)])
        drafts = personal_output(request_id, list(text), wanted)
        return [
            token if self.random.random() < self.chance else self.random.randrange(VOCABULARY)
            for token in drafts
        ]


class Guesser:
    """The same guesses, made before the step."""

    def __init__(self, executor: GuessingExecutor) -> None:
        self.executor = executor
        self.released: list[str] = []

    def check(self, settings):
        pass

    def propose(self, request: Request) -> list[int]:
        settings = request.speculation
        assert settings is not None
        text = [*request.prompt_token_ids, *request.output_token_ids]
        return self.executor.draft(request.request_id, text, settings.draft_tokens)

    def release(self, request_id: str) -> None:
        self.released.append(request_id)


@dataclass
class Given:
    """A request, and what it went on from: the tokens of another one that it was forked from."""

    request: Request
    said: list[int]

    @property
    def guessed(self) -> bool:
        settings = self.request.speculation
        return settings is not None and settings.method is SpeculationMethod.NGRAM

    def expected(self) -> tuple[list[int], FinishReason]:
        """What it says alone and undisturbed, and how that ends: the slow way."""
        request = self.request
        text = [*request.prompt_token_ids, *self.said]
        new = personal_output(request.request_id, text, request.max_tokens - len(self.said))
        for index, token in enumerate(new, start=len(self.said)):
            may_stop = index >= request.min_tokens and not request.ignore_eos
            if may_stop and token in request.stop_token_ids:
                return new[: index + 1 - len(self.said)], FinishReason.STOP
        return new, FinishReason.LENGTH


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(2, 24),
        block_size=st.integers(1, 5),
        limits=LIMITS,
        policy=st.sampled_from(sorted(POLICIES)),
        block_hash=st.sampled_from(HASHES),
        chance=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
        seed=st.integers(0, 1000),
    )
    def start(self, num_blocks, block_size, limits, policy, block_hash, chance, seed):
        self.executor = GuessingExecutor(block_size, chance, seed)
        self.guesser = Guesser(self.executor)
        self.loop, _, self.events = make_loop(
            num_blocks=num_blocks,
            block_size=block_size,
            limits=limits,
            policy=POLICIES[policy](),
            prefix_cache=None if block_hash is None else PrefixCache(block_hash),
            drafters={
                SpeculationMethod.NGRAM: self.guesser,
                SpeculationMethod.EARLY_EXIT: InStepDrafter(),
            },
        )
        self.loop.executor = self.executor
        self.kept_at_first = limits.keep_computed
        self.accepted: dict[str, Given] = {}
        self.ended_by_hand: set[str] = set()
        self.count = 0
        self.remember_excess()

    def remember_excess(self):
        """What is in use when the limits change may stay, and be more than they allow."""
        running = self.loop.scheduler.running
        self.excess_running = len(running)
        self.excess_used = self.loop.scheduler.pool.num_used
        self.excess_of: dict[str, tuple[int, int]] = {}
        for request in running:
            count, blocks = self.excess_of.get(request.session_id, (0, 0))
            more = blocks + len(request.block_table)
            self.excess_of[request.session_id] = (count + 1, more)

    def new_name(self) -> str:
        self.count += 1
        return f"r{self.count}"

    @rule(
        prompt=PROMPTS,
        tokens=st.integers(1, 12),
        session=st.sampled_from(["", "s", "t"]),
        priority=st.integers(-1, 1),
        samples=st.sampled_from([1, 1, 1, 2, 3]),
        stops=STOPS,
        min_tokens=st.sampled_from([0, 0, 2, 5]),
        ignore_eos=st.booleans(),
        speculation=SPECULATION,
    )
    def add(
        self, prompt, tokens, session, priority, samples, stops, min_tokens, ignore_eos, speculation
    ):
        names = [self.new_name() for _ in range(samples)]
        request = Request(
            names[0],
            prompt,
            tokens,
            stops,
            session,
            priority=priority,
            min_tokens=min_tokens,
            ignore_eos=ignore_eos,
            speculation=speculation,
        )
        before = len(self.events)
        try:
            self.loop.add(request, sample_ids=names[1:])
        except (NeverFits, QueueFull):
            assert len(self.events) == before
            return
        except InvalidRequest:
            off = not self.loop.scheduler.limits.keep_computed
            assert min_tokens > tokens or (off and speculation is not None)
            assert len(self.events) == before
            return
        for name in names:
            live = self.loop.scheduler.get(name)
            assert live is not None
            self.accepted[name] = Given(live, [])

    @rule()
    def step(self):
        assert self.loop.step() == self.had_work

    @rule()
    def failing_step(self):
        self.executor.fail_next = True
        before = {request.request_id for request in self.loop.scheduler.running}
        before |= {request.request_id for request in self.loop.scheduler.waiting}
        with suppress(StepFailed):
            self.loop.step()
        self.ended_by_hand |= {name for name in before if self.loop.scheduler.get(name) is None}
        self.executor.fail_next = False

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), reason=st.sampled_from([FinishReason.ABORT, FinishReason.STOP]))
    def finish(self, data, reason):
        name = self.draw_name(data)
        if self.loop.finish(name, reason):
            self.ended_by_hand.add(name)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def preempt(self, data):
        name = self.draw_name(data)
        running = any(request.request_id == name for request in self.loop.scheduler.running)
        assert self.loop.preempt(name) == running

    @precondition(lambda self: self.loop.scheduler.running or self.loop.scheduler.waiting)
    @rule(data=st.data())
    def fork(self, data):
        live = [*self.loop.scheduler.running, *self.loop.scheduler.waiting]
        source = data.draw(st.sampled_from(sorted(live, key=lambda r: r.arrival)))
        name = self.new_name()
        try:
            self.loop.fork(source.request_id, name)
        except QueueFull:
            return
        fork = self.loop.scheduler.get(name)
        assert fork is not None
        self.accepted[name] = Given(fork, list(source.output_token_ids))

    @rule(
        limits=st.none() | LIMITS,
        policy=st.none() | st.sampled_from(sorted(POLICIES)),
        usable=st.none() | st.integers(1, 24),
    )
    def configure(self, limits, policy, usable):
        before = len(self.events)
        try:
            self.loop.configure(
                limits=limits,
                policy=None if policy is None else POLICIES[policy](),
                usable_blocks=usable,
            )
        except InvalidRequest:
            assert len(self.events) == before
            return
        self.remember_excess()

    def draw_name(self, data) -> str:
        return data.draw(st.sampled_from(sorted(self.accepted)))

    @invariant()
    def consistent(self):
        scheduler, limits = self.loop.scheduler, self.loop.scheduler.limits
        scheduler.check_integrity()
        self.had_work = self.loop.has_work
        assert len(scheduler.running) <= max(limits.max_running, self.excess_running)
        pool = scheduler.pool
        assert pool.num_used <= max(pool.num_usable, self.excess_used)
        for session in {request.session_id for request in scheduler.running}:
            most_running, most_blocks = self.excess_of.get(session, (0, 0))
            own = [r for r in scheduler.running if r.session_id == session]
            most_running = max(limits.max_session_running or limits.max_running, most_running)
            assert len(own) <= most_running
            blocks = sum(len(request.block_table) for request in own)
            assert blocks <= max(limits.max_session_kv_blocks or blocks, most_blocks)
        for request in scheduler.running:
            # No draft that was not accepted keeps a block.
            held = blocks_for(request.num_computed_tokens, pool.block_size)
            assert len(request.block_table) == held

    def teardown(self):
        if not hasattr(self, "loop"):
            return
        for _ in range(20_000):
            if not self.loop.has_work:
                break
            self.loop.step()
            self.loop.scheduler.check_integrity()
        assert not self.loop.has_work, "a request never finished"
        pool = self.loop.scheduler.pool
        assert pool.num_used == 0
        assert pool.num_free + pool.num_cached == pool.num_blocks
        assert sorted(self.executor.released) == sorted(self.accepted)
        guessed = [name for name, given in self.accepted.items() if given.guessed]
        assert sorted(self.guesser.released) == sorted(guessed)
        self.check_outputs()
        check_progress(self.events, list(self.accepted), self.kept_at_first)

    def check_outputs(self):
        said = {name: len(given.said) for name, given in self.accepted.items()}
        outputs = outputs_of(self.events, said)
        ends = {e.request_id: e for e in self.events if isinstance(e, RequestFinished)}
        assert ends.keys() == self.accepted.keys()
        for name, given in self.accepted.items():
            got = outputs.get(name, [])
            expected, reason = given.expected()
            assert ends[name].completion_tokens == said[name] + len(got)
            if name in self.ended_by_hand:
                assert got == expected[: len(got)]
            else:
                assert got == expected
                assert ends[name].reason is reason


def check_progress(events: list[Event], names: list[str], kept: bool) -> None:
    """Each step goes on where the last one of a request ended, or where a start said it would.

    ``kept``: whether computed positions stay, at first.
    """
    computed = dict.fromkeys(names, 0)
    for event in events:
        if isinstance(event, Configured):
            kept = event.limits.keep_computed
        elif isinstance(event, RequestStarted):
            assert not (event.cached_tokens and event.forked_tokens)
            computed[event.request_id] = event.cached_tokens + event.forked_tokens
        elif isinstance(event, RequestPreempted):
            assert event.lost_tokens == computed[event.request_id]
        elif isinstance(event, DraftsVerified):
            assert 0 <= event.num_accepted <= len(event.proposed)
            computed[event.request_id] += event.num_accepted
        elif isinstance(event, StepCompleted):
            for sequence in event.sequences:
                shape = sequence.shape
                assert shape.new_tokens > shape.drafts
                assert shape.prefix_tokens == computed[sequence.request_id]
                known = shape.new_tokens - shape.drafts
                computed[sequence.request_id] = shape.prefix_tokens + known if kept else 0


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=PROGRAMS, stateful_step_count=40, deadline=None)
