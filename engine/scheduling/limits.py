"""How much may be taken in and run at once, for everybody together and for one session."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.errors import EngineError, InvalidRequest, NeverFits, QueueFull
from engine.refusals import refused
from engine.scheduling.blocks import BlockPool, blocks_for
from engine.scheduling.request import Request, RequestState


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """``max_step_tokens`` is the token budget of a step, ``max_context`` the model's own limit.

    Limits per session are off at None; requests without a session share one. A session may have
    ``max_session_waiting`` requests beyond those for which a place to run is free, and block tables
    of ``max_session_kv_blocks`` in all; a block that two of its requests share counts twice.

    ``keep_computed`` False is the cache switched off: after a step nothing stays computed and no
    block stays taken, so every step runs the whole text of its requests. A text is never split
    then: a step takes whole texts as long as its budget lasts, and one at least.

    ``split_prompts`` False is prefill without chunks: a request starts with its whole text, in a
    step that starts requests and does nothing else, within the budget, and one at least. Whoever
    decodes waits meanwhile.

    Raises:
        InvalidRequest: with such a limit nothing could ever run (names the field).
    """

    max_running: int = 32
    max_waiting: int = 64
    max_step_tokens: int = 2048
    max_context: int = 8192
    max_session_running: int | None = None
    max_session_waiting: int | None = None
    max_session_kv_blocks: int | None = None
    keep_computed: bool = True
    split_prompts: bool = True

    def __post_init__(self) -> None:
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise InvalidRequest(f"{name} must be at least {lowest}", field=name)

    def share_of_step(self, num_pending: int, budget: int, *, first: bool) -> int:
        """Tokens of a request that run in a step, of those pending; ``first``: nobody's do yet."""
        if self.keep_computed and self.split_prompts:
            return min(num_pending, budget)
        return num_pending if first or num_pending <= budget else 0


_LOWEST = {
    "max_running": 1,
    "max_waiting": 0,
    "max_step_tokens": 1,
    "max_context": 1,
    "max_session_running": 1,
    "max_session_waiting": 0,
    "max_session_kv_blocks": 1,
}


def check_fits(request: Request, limits: SchedulerLimits, pool: BlockPool) -> None:
    """Refuse what could not run even if it had everything for itself.

    Raises:
        NeverFits: prompt and answer exceed the context, the whole cache or the session's share.
    """
    total = request.max_total_tokens
    if total > limits.max_context:
        raise refused(
            "context",
            kind=NeverFits,
            field="max_tokens",
            prompt=request.num_prompt_tokens,
            answer=request.max_tokens,
            context=limits.max_context,
        )
    needed = most_blocks(request, pool.block_size)
    if needed > pool.num_usable:
        raise _too_many_blocks("cache_blocks", total, needed, pool.num_usable)
    share = limits.max_session_kv_blocks
    if share is not None and needed > share:
        raise _too_many_blocks("session_blocks", total, needed, share)


def _too_many_blocks(reason: str, tokens: int, needed: int, usable: int) -> EngineError:
    return refused(
        reason, kind=NeverFits, field="max_tokens", tokens=tokens, needed=needed, usable=usable
    )


def most_blocks(request: Request, block_size: int) -> int:
    """Blocks that a request needs in the end if it uses all its tokens."""
    # The last sampled token is never fed back, so its K and V are never stored.
    return blocks_for(request.max_total_tokens - 1, block_size)


def check_change(
    limits: SchedulerLimits, num_usable: int, pool: BlockPool, live: Collection[Request]
) -> None:
    """Refuse limits under which a request that has been taken in could never finish.

    Raises:
        InvalidRequest: there are no such blocks, or too few for a live request (names the field).
    """
    if not 1 <= num_usable <= pool.num_blocks:
        raise InvalidRequest(f"choose 1 to {pool.num_blocks} KV blocks", field="usable_blocks")
    needed = max((most_blocks(request, pool.block_size) for request in live), default=0)
    asked = {"usable_blocks": num_usable, "max_session_kv_blocks": limits.max_session_kv_blocks}
    for field, count in asked.items():
        if count is not None and count < needed:
            raise InvalidRequest(
                f"a request that is here may need {needed} KV blocks; choose at least as many, "
                "or let it finish first",
                field=field,
            )


def check_room(
    session_id: str, num_new: int, limits: SchedulerLimits, live: Collection[Request]
) -> None:
    """Refuse requests of a session when too many are here already.

    Raises:
        QueueFull: as many requests as allowed are here, of all sessions or of this one.
    """
    if len(live) + num_new > limits.max_running + limits.max_waiting:
        waiting = sum(request.state is RequestState.WAITING for request in live)
        raise refused("queue_full", kind=QueueFull, waiting=waiting)
    if limits.max_session_waiting is None:
        return
    own = [request for request in live if request.session_id == session_id]
    own_running = sum(request.state is RequestState.RUNNING for request in own)
    places = limits.max_running - sum(request.state is RequestState.RUNNING for request in live)
    if limits.max_session_running is not None:
        places = min(places, limits.max_session_running - own_running)
    waiting = len(own) - own_running
    if waiting + num_new > places + limits.max_session_waiting:
        raise refused("session_queue_full", kind=QueueFull, waiting=waiting)


def session_has_room(
    request: Request, limits: SchedulerLimits, running: Collection[Request], block_size: int
) -> bool:
    """Whether the limits of its session let a waiting request start."""
    if limits.max_session_running is None and limits.max_session_kv_blocks is None:
        return True
    own = [other for other in running if other.session_id == request.session_id]
    if limits.max_session_running is not None and len(own) >= limits.max_session_running:
        return False
    needed = blocks_for(request.num_known_tokens, block_size)
    return not exceeds_share(needed, limits, own)


def exceeds_share(num_new: int, limits: SchedulerLimits, own: Collection[Request]) -> bool:
    """Whether so many more blocks are too many for a session with these running requests."""
    share = limits.max_session_kv_blocks
    return share is not None and num_new + sum(len(r.block_table) for r in own) > share


def spare_blocks(
    request: Request, limits: SchedulerLimits, running: Collection[Request], num_available: int
) -> int:
    """Of the available blocks, those that the limits let a running request have."""
    share = limits.max_session_kv_blocks
    if share is None:
        return num_available
    own = (other for other in running if other.session_id == request.session_id)
    return max(0, min(num_available, share - sum(len(other.block_table) for other in own)))
