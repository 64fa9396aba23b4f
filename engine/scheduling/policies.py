"""Who goes first, when not everybody can.

A policy decides three things. ``rank`` orders requests once and for all: when blocks run out, the
running request that ranks last gives its own up, so the one that ranks first always gets on.
``turn`` orders those that wait, and those that run when a step's token budget is too small for
all; it may change with what was served. None of them takes a place from a running request.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Protocol

from engine.scheduling.limits import SchedulerLimits
from engine.scheduling.request import Request, RequestState

Order = tuple[int, ...]
"""Smaller goes first."""


class Policy(Protocol):
    """``name``: what settings and pages call it. ``turn_is_rank``: the two orders are one, and
    neither changes."""

    name: str
    turn_is_rank: bool

    def rank(self, request: Request) -> Order: ...

    def turn(self, request: Request) -> Order: ...

    def joined(self, request: Request, others: Iterable[Request]) -> None:
        """A request was taken in, beside the other live ones."""
        ...

    def served(self, request: Request, num_tokens: int) -> None:
        """So many more of a request's positions are going to be computed.

        Told of a policy whose turns can change; of another, only when a request starts.
        """
        ...


class _ByRank:
    """What policies with one fixed order share: they keep no account of anybody."""

    turn_is_rank = True

    def turn(self: Policy, request: Request) -> Order:
        return self.rank(request)

    def joined(self, request: Request, others: Iterable[Request]) -> None:
        """Makes no difference."""

    def served(self, request: Request, num_tokens: int) -> None:
        """Makes no difference."""


class FirstCome(_ByRank):
    """In order of arrival. Nobody starves; a long request delays all behind it."""

    name = "first-come"

    def rank(self, request: Request) -> Order:
        return (request.arrival,)


class ByPriority(_ByRank):
    """Smallest ``Request.priority`` first, then in order of arrival.

    A low priority starves for as long as there is enough of a higher one.
    """

    name = "priority"

    def rank(self, request: Request) -> Order:
        return (request.priority, request.arrival)


class ShortestFirst(_ByRank):
    """Least possible work first: prompt and allowed answer together. Gives the least mean wait.

    A long request starves for as long as there are enough short ones.
    """

    name = "shortest-first"

    def rank(self, request: Request) -> Order:
        return (request.max_total_tokens, request.arrival)


class FairBySession:
    """The session that was served least goes first, counted in computed tokens.

    The virtual token counter of Sheng et al. 2024 (arXiv 2401.00588): a session that comes (back)
    starts level with the least served of those that are here, so being away earns no credit. What
    is recomputed after a preemption is not charged twice, what a prefix cache gave not at all.
    """

    name = "fair"
    turn_is_rank = False

    def __init__(self) -> None:
        self._served: dict[str, int] = {}

    def rank(self, request: Request) -> Order:
        return (request.arrival,)

    def turn(self, request: Request) -> Order:
        return (self._served[request.session_id], request.arrival)

    def joined(self, request: Request, others: Iterable[Request]) -> None:
        active = {other.session_id for other in others}
        if request.session_id in active:
            return
        level = min((self._served[session] for session in active), default=0)
        if not active:
            self._served.clear()  # nobody is left to whom anything could be owed
        mine = max(self._served.get(request.session_id, 0), level)
        # Sessions that are away and not above the level would come back at the level anyway.
        self._served = {s: n for s, n in self._served.items() if s in active or n > level}
        self._served[request.session_id] = mine

    def served(self, request: Request, num_tokens: int) -> None:
        self._served[request.session_id] += num_tokens


POLICIES: dict[str, type[FirstCome | ByPriority | ShortestFirst | FairBySession]] = {
    policy.name: policy for policy in (FirstCome, ByPriority, ShortestFirst, FairBySession)
}
"""By the names that settings and pages use."""


def charge(request: Request, start: int, end: int, policy: Policy) -> None:
    """Tell the policy of those of these positions that are computed for the first time."""
    new = end - max(start, request.num_served_tokens)
    if new > 0:
        request.num_served_tokens = end
        policy.served(request, new)


def allot(contenders: Iterable[Request], limits: SchedulerLimits, policy: Policy) -> dict[str, int]:
    """Tokens of a step by request, given out by turn, which changes with every share.

    What falls to a request that is still waiting is not charged: it has yet to start.
    """
    turns = [(policy.turn(request), request) for request in contenders]
    allotted = dict.fromkeys([request.request_id for _, request in turns], 0)
    budget, first = limits.max_step_tokens, True
    heapify(turns)
    while turns and budget > 0:
        turn, request = heappop(turns)
        now = policy.turn(request)
        if now != turn:  # its session was served since: another may come before it
            heappush(turns, (now, request))
            continue
        start = request.num_computed_tokens
        num_new = limits.share_of_step(request.num_pending_tokens, budget, first=first)
        if num_new == 0:
            break
        allotted[request.request_id] = num_new
        budget -= num_new
        first = False
        if request.state is RequestState.RUNNING:
            charge(request, start, start + num_new, policy)
    return allotted
