"""Random programs of add, step, abort and finish: blocks conserved, nobody starves, same tokens."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.errors import NeverFits, QueueFull
from engine.scheduling.events import RequestFinished
from engine.scheduling.request import FinishReason
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.scheduling.fakes import expected_output, make_loop, make_request, outputs_of


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(2, 24),
        block_size=st.integers(1, 5),
        max_running=st.integers(1, 6),
        max_step_tokens=st.integers(1, 16),
    )
    def start(self, num_blocks, block_size, max_running, max_step_tokens):
        limits = SchedulerLimits(max_running, 6, max_step_tokens, max_context=60)
        self.loop, self.executor, self.events = make_loop(
            num_blocks=num_blocks, block_size=block_size, limits=limits
        )
        self.accepted = {}
        self.count = 0

    @rule(prompt=st.lists(st.integers(0, 96), min_size=1, max_size=20), tokens=st.integers(1, 12))
    def add(self, prompt, tokens):
        name = f"r{self.count}"
        self.count += 1
        try:
            self.loop.add(make_request(name, prompt, tokens))
        except (NeverFits, QueueFull):
            return
        self.accepted[name] = (prompt, tokens)

    @rule()
    def step(self):
        assert self.loop.step() == self.had_work

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), reason=st.sampled_from([FinishReason.ABORT, FinishReason.STOP]))
    def finish(self, data, reason):
        self.loop.finish(data.draw(st.sampled_from(sorted(self.accepted))), reason)

    @invariant()
    def consistent(self):
        self.loop.scheduler.check_integrity()
        self.had_work = self.loop.has_work

    def teardown(self):
        if not hasattr(self, "loop"):
            return
        for _ in range(20_000):
            if not self.loop.has_work:
                break
            self.loop.step()
            self.loop.scheduler.check_integrity()
        assert not self.loop.has_work, "a request never finished"
        assert self.loop.scheduler.pool.num_used == 0
        outputs = outputs_of(self.events)
        ends = {e.request_id: e.reason for e in self.events if isinstance(e, RequestFinished)}
        assert ends.keys() == self.accepted.keys()
        for name, (prompt, tokens) in self.accepted.items():
            got = outputs.get(name, [])
            assert got == expected_output(prompt, len(got))
            if ends[name] is FinishReason.LENGTH:
                assert len(got) == tokens


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
