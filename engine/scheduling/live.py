"""The requests that are here: taken in, forked, put back, ended; and what they are given.

What runs in a step is the scheduler's business, which is built on this.
"""

from __future__ import annotations

from bisect import bisect_right, insort

from engine.errors import InvalidRequest
from engine.refusals import refused
from engine.scheduling.blocks import BlockPool
from engine.scheduling.integrity import check_queues, check_running
from engine.scheduling.limits import (
    SchedulerLimits,
    check_change,
    check_fits,
    check_room,
)
from engine.scheduling.policies import FirstCome, Policy
from engine.scheduling.prefix_cache import PrefixChain
from engine.scheduling.request import FinishReason, Request, RequestState


class LiveRequests:
    """Owns the queue, the running set and the block tables.

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

    def configure(
        self,
        *,
        limits: SchedulerLimits | None = None,
        policy: Policy | None = None,
        usable_blocks: int | None = None,
    ) -> None:
        """Change what is given, between two steps.

        Nobody loses a place or a block at once: smaller limits hold back what would start or grow
        next. A new policy begins its accounts with everybody equal.

        Raises:
            InvalidRequest: a live request could never finish then (names the field).
        """
        limits = limits or self.limits
        num_usable = self.pool.num_usable if usable_blocks is None else usable_blocks
        check_change(limits, num_usable, self.pool, self._requests.values())
        self.limits = limits
        self.pool.limit(num_usable)
        if policy is None:
            return
        self.policy = policy
        by_arrival = sorted(self._requests.values(), key=lambda request: request.arrival)
        for index, request in enumerate(by_arrival):
            policy.joined(request, by_arrival[:index])
        self.waiting.sort(key=policy.rank)
        self.running.sort(key=policy.rank)

    def get(self, request_id: str) -> Request | None:
        """The live request of that id, or None once it has finished."""
        return self._requests.get(request_id)

    def add(self, request: Request, num_samples: int = 1) -> int:
        """Queue a request; its 1-based place in the queue is returned.

        ``num_samples``: room is asked for so many, because the caller is going to fork it.

        Raises:
            InvalidRequest: the prompt is empty, no token is wanted, the least is above the most,
                drafts are wanted where nothing stays computed, or the id is in use.
            NeverFits: prompt and answer exceed the context, the whole cache or a session's share.
            QueueFull: as many requests as allowed are already here.
        """
        if request.num_prompt_tokens == 0:
            raise refused("no_prompt_tokens", field="prompt")
        if request.max_tokens < 1:
            raise refused("at_least_one_token", field="max_tokens")
        if request.min_tokens > request.max_tokens:
            raise refused("min_tokens_above_max", field="min_tokens", high=request.max_tokens)
        if request.speculation is not None and not self.limits.keep_computed:
            raise refused("drafts_need_cache", field="speculation")
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
            min_tokens=source.min_tokens,
            ignore_eos=source.ignore_eos,
            speculation=source.speculation,
            output_token_ids=list(source.output_token_ids),
            forked_from=source,
            num_common_tokens=source.num_known_tokens,
        )
        return fork, self._take_in(fork)

    def _check_new_id(self, request_id: str) -> None:
        if request_id in self._requests:
            raise refused("id_in_use", field="request_id")

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
