"""Which of several equal units takes a request."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from engine.scheduling.request import Request


class Routing(StrEnum):
    """One after the other; to where fewest requests are; or to where the prompt is known."""

    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"
    PREFIX_AWARE = "prefix-aware"


MAX_IMBALANCE = 8
"""A prefix-aware router looks no further than to units with so many more requests than the least
loaded one: a hit saves one prompt's computation, a queue costs that of many."""


class RoutedUnit(Protocol):
    """What a router may know of a unit at the time of an arrival."""

    def in_flight(self, time: float) -> int:
        """Requests that were sent there and have no answer yet at that time."""
        ...

    def known_tokens(self, request: Request) -> int:
        """Positions of the prompt that its prefix cache holds."""
        ...


class Router:
    """``choose`` gives the place of the unit that takes a request. Ties go to the lowest."""

    def __init__(self, routing: Routing) -> None:
        self.routing = routing
        self._next = 0

    @property
    def looks(self) -> bool:
        """Whether it has to know the units' states: they must have come to the arrival's time."""
        return self.routing is not Routing.ROUND_ROBIN

    def choose(self, units: Sequence[RoutedUnit], request: Request, time: float) -> int:
        """The place of the unit that takes a request which arrives at that time."""
        if self.routing is Routing.ROUND_ROBIN:
            place = self._next
            self._next = (place + 1) % len(units)
            return place
        loads = [unit.in_flight(time) for unit in units]
        least = min(loads)
        if self.routing is Routing.LEAST_LOADED:
            return loads.index(least)
        near = [place for place, load in enumerate(loads) if load <= least + MAX_IMBALANCE]
        return min(
            near, key=lambda place: (-units[place].known_tokens(request), loads[place], place)
        )
