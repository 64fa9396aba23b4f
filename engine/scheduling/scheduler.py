"""Which requests run in the next step, and on which KV blocks.

One rule covers prefill, chunked prefill, decode, forks, prefix hits, drafts and recomputing after a
preemption: the number of computed tokens of each request catches up with the number of its known
tokens. Whoever runs goes first; then the queue, as long as places, tokens of the step's budget and
blocks last; then drafts. When blocks run out, the running request that ranks last gives its own up.
Who goes before whom is the policy's word: by default, whoever came first.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from itertools import repeat

from engine.scheduling.blocks import BlockPool, blocks_for
from engine.scheduling.drafting import Propose, add_drafts
from engine.scheduling.limits import (
    SchedulerLimits,
    exceeds_share,
    session_has_room,
)
from engine.scheduling.live import LiveRequests
from engine.scheduling.plan import Sample, StepPlan, StepResult
from engine.scheduling.planning import Planned, Planning, Started
from engine.scheduling.policies import Policy, allot, charge
from engine.scheduling.request import FinishReason, Request, RequestState
from engine.scheduling.sharing import TakenOver, keep_full_blocks, must_wait_for_fork, take_over
from engine.scheduling.uniform import steps_within, uniform_steps_of


class Scheduler(LiveRequests):
    """Plans steps and books their results; never sees a tensor or a clock."""

    def __init__(
        self, pool: BlockPool, limits: SchedulerLimits, policy: Policy | None = None
    ) -> None:
        super().__init__(pool, limits, policy)
        self._step = 0

    def plan(self, propose: Propose | None = None, *, beside: bool = False) -> Planned:
        """Choose the next step. ``plan`` is None when nothing can run.

        ``propose`` is asked for drafts for requests that decode and want them. With ``beside``,
        where ``uniform_steps`` are possible, the plan holds only those that start: whoever runs
        gets its one token in the same step, and ``advance`` books it.
        """
        planning = Planning(self.limits.max_step_tokens)
        if beside:
            return self._plan_starts(planning)
        if not self.limits.split_prompts:
            self._start_waiting(planning)
            if planning.sequences:
                self._step += 1
                return planning.finish(self._step)
        num_yielded = -1
        while not planning.sequences and len(planning.preempted) > num_yielded:
            # A second time only if all tokens had fallen to a request that had to yield.
            num_yielded = len(planning.preempted)
            self._continue_running(planning)
        # Blocks were short a moment ago: letting someone in now would only push others out.
        if not planning.sequences or (not planning.preempted and self.limits.split_prompts):
            self._start_waiting(planning)
        if propose is not None and self.limits.keep_computed:
            add_drafts(planning, propose, self.running, self.limits, self.pool)
        if planning.sequences:
            self._step += 1
        return planning.finish(self._step)

    def _plan_starts(self, planning: Planning) -> Planned:
        for request in self.running:
            if request.num_computed_tokens == len(request.block_table) * self.pool.block_size:
                request.block_table.extend(self.pool.allocate(1))
        planning.budget -= len(self.running)
        self._start_waiting(planning)
        self._step += 1
        return planning.finish(self._step)

    def _continue_running(self, planning: Planning) -> None:
        size = self.pool.block_size
        running = self.running
        allotted = None if self.policy.turn_is_rank else self._allot()
        index = 0
        while index < len(running) and planning.budget > 0:
            request = running[index]
            start = request.num_computed_tokens
            if allotted is None:
                end = start + self._share_of(request.num_pending_tokens, planning)
            else:
                end = start + allotted[request.request_id]
            if end > len(request.block_table) * size and not self._grow(request, end, planning):
                continue
            index += 1
            if end > start:
                planning.schedule(request, start, end)
            elif allotted is None:  # a whole text that has to wait for the next step
                planning.budget = 0

    def _share_of(self, num_pending: int, planning: Planning) -> int:
        return self.limits.share_of_step(num_pending, planning.budget, first=not planning.sequences)

    def _allot(self) -> dict[str, int]:
        """Tokens of the step for each running request, by turn, which changes with every share.

        If it is a waiting request's turn before the budget is spent, its tokens are left over.
        """
        contenders = list(self.running)
        if len(self.running) < self.limits.max_running:
            candidate = self._next_waiting()
            if candidate is not None and self._room_for(candidate) is not None:
                contenders.append(candidate)
        return allot(contenders, self.limits, self.policy)

    def _start_waiting(self, planning: Planning) -> None:
        while planning.budget > 0 and len(self.running) < self.limits.max_running:
            request = self._next_waiting()
            # Nobody passes by one that does not fit yet, or a long prompt might wait for ever.
            if request is None or not self._start(request, planning):
                break

    def _next_waiting(self) -> Request | None:
        """Whose turn it is, of those that neither a fork nor a session's limit holds back."""
        ready = (
            request
            for request in self.waiting
            if not (self.limits.keep_computed and must_wait_for_fork(request))
            and session_has_room(request, self.limits, self.running, self.pool.block_size)
        )
        if self.policy.turn_is_rank:
            return next(ready, None)
        return min(ready, key=self.policy.turn, default=None)

    def _start(self, request: Request, planning: Planning) -> bool:
        """Move a request from the queue into the step; False if there are too few blocks."""
        taken = self._room_for(request)
        if taken is None:
            return False
        shared = taken.blocks
        start = taken.num_tokens
        end = start + self._share_of(request.num_known_tokens - start, planning)
        if end == start:
            return False
        self.waiting.remove(request)
        self.pool.share(shared)
        count = blocks_for(end, self.pool.block_size) - len(shared)
        request.block_table = [*shared, *self.pool.allocate(count)]
        request.num_computed_tokens = start
        request.state = RequestState.RUNNING
        insort(self.running, request, key=self.policy.rank)
        if taken.copied is not None:
            planning.copy(taken.copied, request.block_table[len(shared)])
        forked = start if taken.forked else 0
        planning.started.append(Started(request, start - forked, forked))
        charge(request, start, end, self.policy)
        planning.schedule(request, start, end)
        return True

    def _room_for(self, request: Request, reserved: int = 0) -> TakenOver | None:
        """What a waiting request would start with; None if there are too few blocks for it.

        The whole known text must fit, or a long prompt would start only to be preempted.
        ``reserved`` blocks are left for others.
        """
        taken = take_over(request, self.pool) if self.limits.keep_computed else TakenOver()
        missing = blocks_for(request.num_known_tokens, self.pool.block_size) - len(taken.blocks)
        idle = sum(map(self.pool.is_idle, taken.blocks))
        return taken if missing <= self.pool.num_available - idle - reserved else None

    def _grow(self, request: Request, num_tokens: int, planning: Planning) -> bool:
        """Grow the block table to ``num_tokens``; False if the request itself had to yield."""
        missing = blocks_for(num_tokens, self.pool.block_size) - len(request.block_table)
        while (victim := self._who_yields(request, missing)) is not None:
            planning.preempted.append((victim, self._preempt(victim)))
            if victim is request:
                return False
        request.block_table.extend(self.pool.allocate(missing))
        return True

    def _who_yields(self, request: Request, missing: int) -> Request | None:
        """Who must give blocks up so that a request can have more; None if there are enough.

        It never ranks before the request, so it has no part in the step that is being planned.
        """
        if self.limits.max_session_kv_blocks is not None:
            own = [other for other in self.running if other.session_id == request.session_id]
            if exceeds_share(missing, self.limits, own):
                return own[-1]
        return self.running[-1] if missing > self.pool.num_available else None

    def uniform_steps(self) -> int:
        """Steps from now on that could each give every running request one token.

        Until the first one at whose end a request has all its tokens, or before the first for
        which blocks are missing. 0 where somebody still has a prompt to compute, may stop or
        drafts. Whether others would join is the question of ``could_start``.
        """
        running, limits = self.running, self.limits
        plain = self.policy.turn_is_rank and limits.keep_computed
        if not running or not plain or limits.max_session_kv_blocks is not None:
            return 0
        if len(running) > limits.max_step_tokens:
            return 0
        steps = min(map(uniform_steps_of, running))
        return steps_within(running, steps, self.pool.num_available, self.pool.block_size)

    def could_start(self) -> bool:
        """Whether a waiting request may join the next step, beside one token of each that runs.

        As long as none can, none will until somebody ends: blocks only get fewer.
        """
        if not self.waiting or len(self.running) >= self.limits.max_running:
            return False
        budget, first = self.limits.max_step_tokens, True
        if self.limits.split_prompts:
            budget, first = budget - len(self.running), not self.running
        request = self._next_waiting()
        if request is None:  # it waits for what another one is doing
            return True
        size = self.pool.block_size
        growing = 0
        if self.limits.split_prompts:  # those that run come first and may need another block
            growing = sum(
                [r.num_computed_tokens == len(r.block_table) * size for r in self.running]
            )
        taken = self._room_for(request, growing) if budget > 0 else None
        if taken is None:
            return False
        pending = request.num_known_tokens - taken.num_tokens
        return self.limits.share_of_step(pending, budget, first=first) > 0

    def advance(
        self, steps: int, token_id: int, requests: Sequence[Request] | None = None
    ) -> list[Request]:
        """Book so many of the ``uniform_steps`` at once, each with that token for everybody.

        The same as to plan, commit and append that often, where nobody could start. ``requests``
        are those that ran before a step was planned ``beside`` them. Returns those that have all
        their tokens now, in the order of the plan; they are to be finished.
        """
        size = self.pool.block_size
        caches = self.pool.prefix_cache is not None
        if requests is None:
            requests = self.running
            self._step += steps
        ended: list[Request] = []
        for request in requests:
            table, output = request.block_table, request.output_token_ids
            computed = request.num_computed_tokens = request.num_computed_tokens + steps
            if computed > len(table) * size:
                table.extend(self.pool.allocate(blocks_for(computed, size) - len(table)))
            output.extend(repeat(token_id, steps))
            if caches:
                keep_full_blocks(request, self.pool)
            if len(output) >= request.max_tokens:
                ended.append(request)
        return ended

    def commit(
        self, plan: StepPlan, result: StepResult
    ) -> list[tuple[Request, tuple[Sample, ...]]]:
        """Book the positions of known tokens that a step has computed.

        Returns the requests that sampled, in the order of the plan, with their samples. Each sample
        has still to be booked by ``append``, until one ends the request; and then, where drafts ran
        or the cache is off, the request by ``settle``.
        """
        samples: dict[str, tuple[Sample, ...]] = {}
        for sample in result.samples:
            before = samples.get(sample.request_id)
            samples[sample.request_id] = (sample,) if before is None else (*before, sample)
        caches = self.limits.keep_computed and self.pool.prefix_cache is not None
        sampled: list[tuple[Request, tuple[Sample, ...]]] = []
        for sequence in plan.sequences:
            request = self._requests.get(sequence.request_id)
            if request is None:  # finished between plan and commit
                continue
            request.num_computed_tokens += len(sequence.token_ids) - sequence.num_drafts
            if sequence.samples:
                if caches:
                    keep_full_blocks(request, self.pool)
                sampled.append((request, samples[sequence.request_id]))
        return sampled

    def append(
        self, request: Request, token_id: int, *, after_draft: bool = False
    ) -> FinishReason | None:
        """Book a token that a request sampled; why it ends with it, if it does.

        It goes on running until it is finished by ``finish``. ``after_draft``: the token before it
        is a draft that was accepted in this step, so its position has been computed too.
        """
        if after_draft and request.state is RequestState.RUNNING:
            known = request.num_known_tokens
            charge(request, request.num_computed_tokens, known, self.policy)
            request.num_computed_tokens = known
        request.output_token_ids.append(token_id)
        return request.end()

    def settle(self, request: Request) -> None:
        """Close a running request's step: keep full blocks, give back those that drafts had taken.

        With the cache switched off, nothing stays computed.
        """
        if request.state is not RequestState.RUNNING:
            return
        if not self.limits.keep_computed:
            self._release_blocks(request)
            request.num_computed_tokens = 0
            return
        keep_full_blocks(request, self.pool)
        used = blocks_for(request.num_computed_tokens, self.pool.block_size)
        self.pool.release(reversed(request.block_table[used:]))
        del request.block_table[used:]
