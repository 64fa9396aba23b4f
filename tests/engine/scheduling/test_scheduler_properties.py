"""Random programs of add, step, abort, preempt, finish and fork, under every setting.

Blocks are conserved after each operation, everybody finishes, and each gets the tokens that it
would get alone. FIRSTTOKEN_PROGRAMS sets how many programs run; 10,000 take some minutes.
"""

from __future__ import annotations

import os
from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.errors import NeverFits, QueueFull, StepFailed
from engine.scheduling.events import (
    Event,
    RequestFinished,
    RequestPreempted,
    RequestStarted,
    StepCompleted,
)
from engine.scheduling.policies import POLICIES
from engine.scheduling.prefix_cache import PrefixCache, chain_hash
from engine.scheduling.request import FinishReason
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.scheduling.fakes import (
    PersonalExecutor,
    make_loop,
    make_request,
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
)

# Few different tokens and a few common beginnings, so that prefixes are often hit.
TOKENS = st.integers(0, 2)
PROMPTS = st.builds(
    lambda length, own: [1, 2, 0, 1, 1, 2, 2, 0, 1, 0, 2, 1][:length] + own,
    st.integers(0, 12),
    st.lists(TOKENS, min_size=1, max_size=8),
)


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(2, 24),
        block_size=st.integers(1, 5),
        limits=LIMITS,
        policy=st.sampled_from(sorted(POLICIES)),
        block_hash=st.sampled_from(HASHES),
    )
    def start(self, num_blocks, block_size, limits, policy, block_hash):
        self.loop, _, self.events = make_loop(
            num_blocks=num_blocks,
            block_size=block_size,
            limits=limits,
            policy=POLICIES[policy](),
            prefix_cache=None if block_hash is None else PrefixCache(block_hash),
        )
        self.executor = PersonalExecutor(block_size)
        self.loop.executor = self.executor
        # What each request was given to go on from, and how many tokens it may say.
        self.accepted: dict[str, tuple[list[int], int]] = {}
        self.said: dict[str, int] = {}
        self.count = 0

    def new_name(self) -> str:
        self.count += 1
        return f"r{self.count}"

    @rule(
        prompt=PROMPTS,
        tokens=st.integers(1, 12),
        session=st.sampled_from(["", "s", "t"]),
        priority=st.integers(-1, 1),
        samples=st.sampled_from([1, 1, 1, 2, 3]),
    )
    def add(self, prompt, tokens, session, priority, samples):
        names = [self.new_name() for _ in range(samples)]
        request = make_request(names[0], prompt, tokens, session_id=session, priority=priority)
        before = len(self.events)
        try:
            self.loop.add(request, sample_ids=names[1:])
        except (NeverFits, QueueFull):
            assert len(self.events) == before
            return
        self.accepted |= dict.fromkeys(names, (prompt, tokens))

    @rule()
    def step(self):
        assert self.loop.step() == self.had_work

    @rule()
    def failing_step(self):
        self.executor.fail_next = True
        with suppress(StepFailed):
            self.loop.step()
        self.executor.fail_next = False

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), reason=st.sampled_from([FinishReason.ABORT, FinishReason.STOP]))
    def finish(self, data, reason):
        self.loop.finish(self.draw_name(data), reason)

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
        said = list(source.output_token_ids)
        text = [*source.prompt_token_ids, *said]
        self.accepted[name] = (text, source.max_tokens - len(said))
        self.said[name] = len(said)

    def draw_name(self, data) -> str:
        return data.draw(st.sampled_from(sorted(self.accepted)))

    @invariant()
    def consistent(self):
        scheduler, limits = self.loop.scheduler, self.loop.scheduler.limits
        scheduler.check_integrity()
        self.had_work = self.loop.has_work
        assert len(scheduler.running) <= limits.max_running
        for session in {request.session_id for request in scheduler.running}:
            own = [r for r in scheduler.running if r.session_id == session]
            assert len(own) <= (limits.max_session_running or limits.max_running)
            blocks = sum(len(request.block_table) for request in own)
            assert blocks <= (limits.max_session_kv_blocks or blocks)

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
        self.check_outputs()
        check_progress(self.events, self.accepted)

    def check_outputs(self):
        outputs = outputs_of(self.events, self.said)
        ends = {e.request_id: e.reason for e in self.events if isinstance(e, RequestFinished)}
        assert ends.keys() == self.accepted.keys()
        for name, (text, tokens) in self.accepted.items():
            got = outputs.get(name, [])
            assert got == personal_output(name, text, len(got))
            if ends[name] is FinishReason.LENGTH:
                assert len(got) == tokens


def check_progress(events: list[Event], accepted: dict[str, tuple[list[int], int]]) -> None:
    """Each step goes on where the last one of a request ended, or where a start said it would."""
    computed = dict.fromkeys(accepted, 0)
    for event in events:
        if isinstance(event, RequestStarted):
            assert not (event.cached_tokens and event.forked_tokens)
            computed[event.request_id] = event.cached_tokens + event.forked_tokens
        elif isinstance(event, RequestPreempted):
            assert event.lost_tokens == computed[event.request_id]
        elif isinstance(event, StepCompleted):
            for sequence in event.sequences:
                shape = sequence.shape
                assert shape.new_tokens > 0
                assert shape.prefix_tokens == computed[sequence.request_id]
                computed[sequence.request_id] += shape.new_tokens


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=PROGRAMS, stateful_step_count=40, deadline=None)
