"""Which requests run in the next step, and on which KV blocks.

One rule covers prefill, chunked prefill, decode, forks, prefix hits and recomputing after a
preemption: the number of computed tokens of each request catches up with the number of its known
tokens. Whoever runs goes first; then the queue, as long as places, tokens of the step's budget and
blocks last. When blocks run out, the running request that ranks last gives its own up. Who goes
before whom is the policy's word: by default, whoever came first.
"""

from __future__ import annotations

from bisect import bisect_right, insort

from engine.errors import InvalidRequest
from engine.scheduling.blocks import BlockPool, blocks_for
from engine.scheduling.integrity import check_queues, check_running
from engine.scheduling.limits import (
    SchedulerLimits,
    check_fits,
    check_room,
    exceeds_share,
    session_has_room,
)
from engine.scheduling.plan import StepPlan, StepResult
from engine.scheduling.planning import Draft, Planned, Started
from engine.scheduling.policies import FirstCome, Policy, allot, charge
from engine.scheduling.prefix_cache import PrefixChain
from engine.scheduling.request import FinishReason, Request, RequestState
from engine.scheduling.sharing import TakenOver, keep_full_blocks, must_wait_for_fork, take_over


class Scheduler:
    """Owns the queue, the running set and the block tables; never sees a tensor or a clock.

    ``waiting`` and ``running`` are in the policy's order of rank.
    """

    def __init__(
        self, pool: BlockPool, limits: SchedulerLimits, policy: Policy | None = None
    ) -> None:
        self.pool = pool
        self.limits = limits
        self.policy = policy or FirstCome()
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self._requests: dict[str, Request] = {}
        self._num_arrived = 0
        self._step = 0

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    def get(self, request_id: str) -> Request | None:
        """The live request of that id, or None once it has finished."""
        return self._requests.get(request_id)

    def add(self, request: Request, num_samples: int = 1) -> int:
        """Queue a request; its 1-based place in the queue is returned.

        ``num_samples``: room is asked for so many, because the caller is going to fork it.

        Raises:
            InvalidRequest: the prompt is empty, no token is wanted, or the id is in use.
            NeverFits: prompt and answer exceed the context, the whole cache or a session's share.
            QueueFull: as many requests as allowed are already here.
        """
        if request.num_prompt_tokens == 0:
            raise InvalidRequest("the prompt has no tokens; write at least one", field="prompt")
        if request.max_tokens < 1:
            raise InvalidRequest("at least one token must be asked for", field="max_tokens")
        self._check_new_id(request.request_id)
        check_fits(request, self.limits, self.pool)
        check_room(request.session_id, num_samples, self.limits, self._requests.values())
        return self._take_in(request)

    def fork(self, request_id: str, new_id: str) -> tuple[Request, int]:
        """Queue a request with the text of a live one, to go its own way from here on.

        The new request and its place in the queue are returned. When it starts, it shares the
        blocks of the other if that one is running then, and computes all by itself otherwise. It
        waits while the other computes what they share: fork a request that has just been added,
        and its prompt is computed once for all samples.

        Raises:
            InvalidRequest: there is no live request of that id, or the new id is in use.
            QueueFull: as many requests as allowed are already here.
        """
        source = self._requests.get(request_id)
        if source is None:
            raise InvalidRequest("there is no such request (any more)", field="request_id")
        self._check_new_id(new_id)
        check_room(source.session_id, 1, self.limits, self._requests.values())
        fork = Request(
            new_id,
            source.prompt_token_ids,
            source.max_tokens,
            stop_token_ids=source.stop_token_ids,
            session_id=source.session_id,
            priority=source.priority,
            output_token_ids=list(source.output_token_ids),
            forked_from=source,
            num_common_tokens=source.num_known_tokens,
        )
        return fork, self._take_in(fork)

    def _check_new_id(self, request_id: str) -> None:
        if request_id in self._requests:
            raise InvalidRequest("this id is in use; choose another", field="request_id")

    def _take_in(self, request: Request) -> int:
        self._num_arrived += 1
        request.arrival = self._num_arrived
        self.policy.joined(request, self._requests.values())
        self._requests[request.request_id] = request
        index = bisect_right(self.waiting, self.policy.rank(request), key=self.policy.rank)
        self.waiting.insert(index, request)
        if self.policy.turn_is_rank:
            return index + 1
        turn = self.policy.turn(request)
        return sum(self.policy.turn(other) <= turn for other in self.waiting)

    def finish(self, request_id: str, reason: FinishReason) -> Request | None:
        """End a request now, wherever it is, and free its blocks; None if it is not live."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return None
        if request.state is RequestState.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self._release_blocks(request)
        request.state = RequestState.FINISHED
        request.finish_reason = reason
        request.forked_from = None
        return request

    # ── steps ────────────────────────────────────────────────────────────────────────────────

    def plan(self) -> Planned:
        """Choose the next step. ``plan`` is None when nothing can run."""
        draft = Draft(self.limits.max_step_tokens)
        num_yielded = -1
        while not draft.sequences and len(draft.preempted) > num_yielded:
            # A second time only if all tokens had fallen to a request that had to yield.
            num_yielded = len(draft.preempted)
            self._continue_running(draft)
        # Blocks were short a moment ago: letting someone in now would only push others out.
        if not draft.preempted or not draft.sequences:
            self._start_waiting(draft)
        if draft.sequences:
            self._step += 1
        return draft.finish(self._step)

    def _continue_running(self, draft: Draft) -> None:
        size = self.pool.block_size
        running = self.running
        allotted = None if self.policy.turn_is_rank else self._allot(draft.budget)
        index = 0
        while index < len(running) and draft.budget > 0:
            request = running[index]
            start = request.num_computed_tokens
            if allotted is None:
                end = min(request.num_known_tokens, start + draft.budget)
            else:
                end = start + allotted[request.request_id]
            if end > len(request.block_table) * size and not self._grow(request, end, draft):
                continue
            index += 1
            if end > start:
                draft.schedule(request, start, end)

    def _allot(self, budget: int) -> dict[str, int]:
        """Tokens of the step for each running request, by turn, which changes with every share.

        If it is a waiting request's turn before the budget is spent, its tokens are left over.
        """
        contenders = list(self.running)
        if len(self.running) < self.limits.max_running:
            candidate = self._next_waiting()
            if candidate is not None and self._room_for(candidate) is not None:
                contenders.append(candidate)
        return allot(contenders, budget, self.policy)

    def _start_waiting(self, draft: Draft) -> None:
        while draft.budget > 0 and len(self.running) < self.limits.max_running:
            request = self._next_waiting()
            # Nobody passes by one that does not fit yet, or a long prompt might wait for ever.
            if request is None or not self._start(request, draft):
                break

    def _next_waiting(self) -> Request | None:
        """Whose turn it is, of those that neither a fork nor a session's limit holds back."""
        ready = (
            request
            for request in self.waiting
            if not must_wait_for_fork(request)
            and session_has_room(request, self.limits, self.running, self.pool.block_size)
        )
        if self.policy.turn_is_rank:
            return next(ready, None)
        return min(ready, key=self.policy.turn, default=None)

    def _start(self, request: Request, draft: Draft) -> bool:
        """Move a request from the queue into the step; False if there are too few blocks."""
        taken = self._room_for(request)
        if taken is None:
            return False
        shared = taken.blocks
        self.waiting.remove(request)
        start = taken.num_tokens
        end = min(request.num_known_tokens, start + draft.budget)
        self.pool.share(shared)
        count = blocks_for(end, self.pool.block_size) - len(shared)
        request.block_table = [*shared, *self.pool.allocate(count)]
        request.num_computed_tokens = start
        request.state = RequestState.RUNNING
        insort(self.running, request, key=self.policy.rank)
        if taken.copied is not None:
            draft.copy(taken.copied, request.block_table[len(shared)])
        forked = start if taken.forked else 0
        draft.started.append(Started(request, start - forked, forked))
        charge(request, start, end, self.policy)
        draft.schedule(request, start, end)
        return True

    def _room_for(self, request: Request) -> TakenOver | None:
        """What a waiting request would start with; None if there are too few blocks for it.

        The whole known text must fit, or a long prompt would start only to be preempted.
        """
        taken = take_over(request, self.pool)
        missing = blocks_for(request.num_known_tokens, self.pool.block_size) - len(taken.blocks)
        idle = sum(map(self.pool.is_idle, taken.blocks))
        return taken if missing <= self.pool.num_available - idle else None

    def _grow(self, request: Request, num_tokens: int, draft: Draft) -> bool:
        """Grow the block table to ``num_tokens``; False if the request itself had to yield."""
        missing = blocks_for(num_tokens, self.pool.block_size) - len(request.block_table)
        while (victim := self._who_yields(request, missing)) is not None:
            draft.preempted.append((victim, self._preempt(victim)))
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

    def preempt(self, request_id: str) -> int | None:
        """Put a running request back into the queue, to recompute later; tokens lost.

        None if it is not running. Between ``plan`` and ``commit`` nobody may be preempted.
        """
        request = self._requests.get(request_id)
        if request is None or request.state is not RequestState.RUNNING:
            return None
        return self._preempt(request)

    def _preempt(self, victim: Request) -> int:
        lost = victim.num_computed_tokens
        self.running.remove(victim)
        self._release_blocks(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        victim.state = RequestState.WAITING
        insort(self.waiting, victim, key=self.policy.rank)
        return lost

    def commit(self, plan: StepPlan, result: StepResult) -> tuple[list[Request], list[Request]]:
        """Book a step's result: computed positions, new tokens, requests that end.

        Returns the requests that got a token, in the order of the plan, and those that finished
        by a stop token or by length.
        """
        sampled = {sample.request_id: sample.token_id for sample in result.samples}
        caches = self.pool.prefix_cache is not None
        produced: list[Request] = []
        finished: list[Request] = []
        for sequence in plan.sequences:
            request = self._requests.get(sequence.request_id)
            if request is None:  # finished between plan and commit
                continue
            request.num_computed_tokens += len(sequence.token_ids)
            if not sequence.samples:
                continue
            if caches:
                keep_full_blocks(request, self.pool)
            token_id = sampled[sequence.request_id]
            request.output_token_ids.append(token_id)
            produced.append(request)
            reason = _end_of(request, token_id)
            if reason is not None:
                self.finish(request.request_id, reason)
                finished.append(request)
        return produced, finished

    def _release_blocks(self, request: Request) -> None:
        self.pool.release(reversed(request.block_table))
        request.block_table = []
        request.chain = PrefixChain()

    def check_integrity(self) -> None:
        """For tests after each operation: blocks conserved, states and queues consistent.

        Raises:
            AssertionError: something does not add up.
        """
        self.pool.check_integrity(request.block_table for request in self._requests.values())
        if sorted(self._requests) != sorted(r.request_id for r in [*self.running, *self.waiting]):
            raise AssertionError("a request is in no queue, or in two")
        check_queues(self.waiting, self.running, self.policy.rank)
        for request in self.running:
            check_running(request, self.pool)


def _end_of(request: Request, token_id: int) -> FinishReason | None:
    if token_id in request.stop_token_ids:
        return FinishReason.STOP
    if len(request.output_token_ids) >= request.max_tokens:
        return FinishReason.LENGTH
    return None
