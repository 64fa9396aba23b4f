"""Requests that wait for lanes which are being opened, and what they are told meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.inference.lane_orders import LaneOrder, OpeningStage
from engine.inference.messages import Message, Opening
from engine.inference.preparing import PreparedRequest
from engine.inference.telling import never_started


@dataclass(slots=True)
class _Held:
    order: LaneOrder
    ahead: int
    requests: list[PreparedRequest] = field(default_factory=list[PreparedRequest])
    stage: OpeningStage = OpeningStage.WAITING
    share: float = 0.0
    part: str = ""

    def told_to(self, request_id: str) -> Opening:
        name = self.order.settings.name
        return Opening(request_id, name, self.ahead, self.stage, self.share, self.part)


class HeldRequests:
    """Orders in the order in which they came, each with the requests that wait for it.

    Orders that take long are opened one after the other, and so are the others, beside them: an
    order's place counts those before it of its own kind.
    """

    def __init__(self, emit: Callable[[Message], None]) -> None:
        self._emit = emit
        self._held: dict[str, _Held] = {}

    def __len__(self) -> int:
        """Lanes that are being opened or are to be."""
        return len(self._held)

    def __contains__(self, request_id: str) -> bool:
        return any(
            prepared.generate.request_id == request_id
            for held in self._held.values()
            for prepared in held.requests
        )

    def waiting_for(self, lane: str) -> int | None:
        """Samples of the requests that wait for a lane; None if it has not been ordered."""
        held = self._held.get(lane)
        return None if held is None else sum(p.generate.n for p in held.requests)

    def add(self, prepared: PreparedRequest) -> None:
        """One more request waits for a lane that has been ordered."""
        held = self._held[prepared.lane.name]
        held.requests.append(prepared)
        self._emit(held.told_to(prepared.generate.request_id))

    def order(self, prepared: PreparedRequest, *, takes_long: bool) -> LaneOrder:
        """A request is the first to wait for its lane."""
        order = LaneOrder(prepared.lane, takes_long)
        ahead = sum(held.order.takes_long == takes_long for held in self._held.values())
        self._held[prepared.lane.name] = _Held(order, ahead)
        self.add(prepared)
        return order

    def progressed(self, order: LaneOrder, stage: OpeningStage, share: float, part: str) -> None:
        """Tell those who wait for a lane how far it is."""
        held = self._held.get(order.settings.name)
        if held is None or held.order is not order:
            return  # told just before it was abandoned
        held.stage, held.share, held.part = stage, share, part
        self._tell(held)

    def settle(self, lane: str) -> list[PreparedRequest]:
        """The lane is there, or never will be: whoever waited for it, and no longer does."""
        held = self._held.pop(lane, None)
        if held is None:
            return []
        held.order.abandoned = True  # if another order has brought the lane, this one may stop
        self._tell_places()
        return held.requests

    def is_current(self, order: LaneOrder) -> bool:
        """Whether requests wait for this very order."""
        held = self._held.get(order.settings.name)
        return held is not None and held.order is order

    def abort(self, request_id: str) -> None:
        """End a request that waits here; an order that nobody waits for is abandoned."""
        for name, held in list(self._held.items()):
            for prepared in [p for p in held.requests if p.generate.request_id == request_id]:
                held.requests.remove(prepared)
                self._emit(never_started(prepared))
            if not held.requests:
                self.settle(name)

    def _tell_places(self) -> None:
        """Tell those whose place has changed."""
        before = {True: 0, False: 0}
        for held in self._held.values():
            ahead = before[held.order.takes_long]
            before[held.order.takes_long] += 1
            if held.ahead != ahead:
                held.ahead = ahead
                self._tell(held)

    def _tell(self, held: _Held) -> None:
        for prepared in held.requests:
            self._emit(held.told_to(prepared.generate.request_id))
