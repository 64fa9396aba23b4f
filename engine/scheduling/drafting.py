"""Drafts join a step with what everybody else has left over, and never keep a block.

They are the last tokens of a sequence, after its known ones. They take no token of the budget and
no block that known tokens could use in the step, so they never cost another request its place;
those that are not accepted give their blocks back when the step is booked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from engine.errors import InvalidRequest
from engine.scheduling.blocks import BlockPool, blocks_for
from engine.scheduling.limits import SchedulerLimits, spare_blocks
from engine.scheduling.planning import Planning
from engine.scheduling.request import Request
from engine.scheduling.speculation import TO_DRAFT, SpeculationSettings

Propose = Callable[[Request], Sequence[int]]


class Drafter(Protocol):
    """Guesses how a request's text goes on.

    ``check`` raises ``InvalidRequest`` where it can not draft with such settings. ``propose`` is
    asked when the request is part of a step that has room for drafts; what does not fit is cut off.
    ``release`` tells that a request has ended.
    """

    def check(self, settings: SpeculationSettings) -> None: ...

    def propose(self, request: Request) -> Sequence[int]: ...

    def release(self, request_id: str) -> None: ...


class InStepDrafter:
    """Keeps places for drafts that the executor makes within the step.

    ``num_layers``: those of the model, which an early exit can not come after.
    """

    def __init__(self, num_layers: int | None = None) -> None:
        self._num_layers = num_layers

    def check(self, settings: SpeculationSettings) -> None:
        if self._num_layers is not None and (settings.exit_layer or 0) > self._num_layers:
            raise InvalidRequest(
                f"exit_layer must be at most {self._num_layers}, the layers of this model",
                field="speculation",
            )

    def propose(self, request: Request) -> Sequence[int]:
        if request.speculation is None:
            return ()
        return (TO_DRAFT,) * request.speculation.draft_tokens

    def release(self, request_id: str) -> None:
        """Nothing is kept."""


def add_drafts(
    planning: Planning,
    propose: Propose,
    running: Collection[Request],
    limits: SchedulerLimits,
    pool: BlockPool,
) -> None:
    """Ask for drafts for each request that decodes in this step and wants them."""
    requests = {request.request_id: request for request in running}
    for index, sequence in enumerate(planning.sequences):
        request = requests[sequence.request_id]
        if request.speculation is None or sequence.num_tokens > 1 or not sequence.samples:
            continue
        spare = spare_blocks(request, limits, running, pool.num_available)
        room = (len(request.block_table) + spare) * pool.block_size - request.num_known_tokens
        # One more token than there are accepted drafts is sampled.
        wanted = request.max_total_tokens - request.num_known_tokens - 1
        most = min(planning.budget, room, wanted)
        drafts = propose(request)[:most] if most > 0 else ()
        if not drafts:
            continue
        needed = blocks_for(request.num_known_tokens + len(drafts), pool.block_size)
        request.block_table.extend(pool.allocate(max(0, needed - len(request.block_table))))
        planning.add_drafts(index, drafts)
