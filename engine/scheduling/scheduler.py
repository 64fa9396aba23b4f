"""Which requests run in the next step, and on which KV blocks.

One rule covers prefill, chunked prefill, decode and recomputing after a preemption: the number of
computed tokens of each request catches up with the number of its known tokens. Whoever runs goes
first, oldest first; then the queue in order of arrival, as long as places, tokens of the step's
budget and blocks last. When blocks run out, the youngest running request gives its own up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from engine.errors import InvalidRequest, NeverFits, QueueFull
from engine.scheduling.blocks import BlockPool, blocks_for
from engine.scheduling.plan import Phase, ScheduledSequence, StepPlan, StepResult
from engine.scheduling.request import FinishReason, Request, RequestState


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """``max_step_tokens`` is the token budget of a step, ``max_context`` the model's own limit."""

    max_running: int = 32
    max_waiting: int = 64
    max_step_tokens: int = 2048
    max_context: int = 8192


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with the changes of state that planning it made."""

    plan: StepPlan | None
    started: tuple[Request, ...]
    preempted: tuple[tuple[Request, int], ...]


class Scheduler:
    """Owns the queue, the running set and the block tables; never sees a tensor or a clock."""

    def __init__(self, pool: BlockPool, limits: SchedulerLimits) -> None:
        self.pool = pool
        self.limits = limits
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._requests: dict[str, Request] = {}
        self._step = 0

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    def get(self, request_id: str) -> Request | None:
        """The live request of that id, or None once it has finished."""
        return self._requests.get(request_id)

    def add(self, request: Request) -> int:
        """Queue a request; its 1-based place in the queue is returned.

        Raises:
            InvalidRequest: the prompt is empty, no token is wanted, or the id is in use.
            NeverFits: prompt and answer exceed the context or the whole cache.
            QueueFull: as many requests as allowed are already here.
        """
        if request.num_prompt_tokens == 0:
            raise InvalidRequest("the prompt has no tokens; write at least one", field="prompt")
        if request.max_tokens < 1:
            raise InvalidRequest("at least one token must be asked for", field="max_tokens")
        if request.request_id in self._requests:
            raise InvalidRequest("this id is in use; choose another", field="request_id")
        self._check_fits(request)
        if len(self._requests) >= self.limits.max_running + self.limits.max_waiting:
            raise QueueFull(f"{len(self.waiting)} requests are waiting; try again in a moment")
        self._requests[request.request_id] = request
        self.waiting.append(request)
        return len(self.waiting)

    def _check_fits(self, request: Request) -> None:
        total = request.max_total_tokens
        if total > self.limits.max_context:
            raise NeverFits(
                f"{request.num_prompt_tokens} prompt tokens and {request.max_tokens} more exceed "
                f"the context of {self.limits.max_context}; shorten the prompt or the answer",
                field="max_tokens",
            )
        # The last sampled token is never fed back, so its K and V are never stored.
        needed = blocks_for(total - 1, self.pool.block_size)
        if needed > self.pool.num_blocks:
            raise NeverFits(
                f"{total} tokens need {needed} KV blocks and the cache has "
                f"{self.pool.num_blocks}; shorten the prompt or the answer",
                field="max_tokens",
            )

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
        return request

    # ── steps ────────────────────────────────────────────────────────────────────────────────

    def plan(self) -> Planned:
        """Choose the next step. ``plan`` is None when nothing can run."""
        sequences: list[ScheduledSequence] = []
        budget = self.limits.max_step_tokens
        preempted: list[tuple[Request, int]] = []
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            num_new = min(request.num_pending_tokens, budget)
            if self._make_room(request, request.num_computed_tokens + num_new, preempted):
                sequences.append(_schedule(request, num_new))
                budget -= num_new
                index += 1
        # Blocks were short a moment ago: letting someone in now would only push others out.
        started = [] if preempted else self._start_waiting(sequences, budget)
        if not sequences:
            return Planned(None, tuple(started), tuple(preempted))
        self._step += 1
        return Planned(StepPlan(self._step, tuple(sequences)), tuple(started), tuple(preempted))

    def _start_waiting(self, sequences: list[ScheduledSequence], budget: int) -> list[Request]:
        started: list[Request] = []
        while self.waiting and len(self.running) < self.limits.max_running and budget > 0:
            request = self.waiting[0]
            # The whole known text must fit, or a long prompt would start only to be preempted.
            count = blocks_for(request.num_known_tokens, self.pool.block_size)
            if count > self.pool.num_free:
                break
            self.waiting.popleft()
            num_new = min(request.num_pending_tokens, budget)
            request.block_table = self.pool.allocate(blocks_for(num_new, self.pool.block_size))
            request.state = RequestState.RUNNING
            self.running.append(request)
            started.append(request)
            sequences.append(_schedule(request, num_new))
            budget -= num_new
        return started

    def _make_room(
        self, request: Request, num_tokens: int, preempted: list[tuple[Request, int]]
    ) -> bool:
        """Grow the block table to ``num_tokens``; False if the request itself had to yield."""
        missing = blocks_for(num_tokens, self.pool.block_size) - len(request.block_table)
        if missing <= 0:
            return True
        while missing > self.pool.num_free:
            victim = self.running[-1]
            preempted.append((victim, self._preempt(victim)))
            if victim is request:
                return False
        request.block_table.extend(self.pool.allocate(missing))
        return True

    def _preempt(self, victim: Request) -> int:
        """Take the victim's blocks and put it at the head of the queue; tokens lost."""
        lost = victim.num_computed_tokens
        self.running.remove(victim)
        self._release_blocks(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        victim.state = RequestState.WAITING
        self.waiting.appendleft(victim)
        return lost

    def commit(self, plan: StepPlan, result: StepResult) -> tuple[list[Request], list[Request]]:
        """Book a step's result: computed positions, new tokens, requests that end.

        Returns the requests that got a token, in the order of the plan, and those that finished
        by a stop token or by length.
        """
        sampled = {sample.request_id: sample.token_id for sample in result.samples}
        produced: list[Request] = []
        finished: list[Request] = []
        for sequence in plan.sequences:
            request = self._requests.get(sequence.request_id)
            if request is None:  # finished between plan and commit
                continue
            request.num_computed_tokens += sequence.num_tokens
            if not sequence.samples:
                continue
            token_id = sampled[sequence.request_id]
            request.output_token_ids.append(token_id)
            produced.append(request)
            reason = _end_of(request, token_id)
            if reason is not None:
                self.finish(request.request_id, reason)
                finished.append(request)
        return produced, finished

    def _release_blocks(self, request: Request) -> None:
        self.pool.release(request.block_table)
        request.block_table = []

    def check_integrity(self) -> None:
        """For tests after each operation: blocks conserved, states and queues consistent.

        Raises:
            AssertionError: something does not add up.
        """
        live: Iterable[Request] = self._requests.values()
        self.pool.check_integrity(request.block_table for request in live)
        if len(self._requests) != len(self.running) + len(self.waiting):
            raise AssertionError("a request is in no queue, or in two")
        for request in self.waiting:
            if request.block_table or request.num_computed_tokens:
                raise AssertionError("a waiting request holds blocks")
        for request in self.running:
            capacity = len(request.block_table) * self.pool.block_size
            if not 0 <= request.num_computed_tokens <= min(capacity, request.num_known_tokens):
                raise AssertionError("a request computed more than it knows or has room for")


def _schedule(request: Request, num_new: int) -> ScheduledSequence:
    start = request.num_computed_tokens
    end = start + num_new
    decodes = num_new == 1 and start >= request.num_prompt_tokens
    return ScheduledSequence(
        request_id=request.request_id,
        phase=Phase.DECODE if decodes else Phase.PREFILL,
        start=start,
        token_ids=request.known_slice(start, end),
        block_table=request.block_table,
        samples=end == request.num_known_tokens,
    )


def _end_of(request: Request, token_id: int) -> FinishReason | None:
    if token_id in request.stop_token_ids:
        return FinishReason.STOP
    if len(request.output_token_ids) >= request.max_tokens:
        return FinishReason.LENGTH
    return None
