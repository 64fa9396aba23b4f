"""When requests come: an open stream, whatever the service does, or clients that wait for it.

Open streams are renewal processes: gaps between arrivals are drawn independently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Protocol

from engine.simulator.serving.checks import number, whole

MAX_RATE = 1e6
MAX_THINK_S = 86_400.0
MAX_CLIENTS = 65_536
_REGULAR = 1e-6
"""Variation below which gaps are all the same to any clock."""


class OpenArrivals(Protocol):
    """Requests that come whatever the service does; ``rate`` in requests/s."""

    @property
    def rate(self) -> float: ...

    def gaps(self, random: Random) -> Iterator[float]:
        """Seconds from one arrival to the next, without end."""
        ...


@dataclass(frozen=True, slots=True)
class PoissonArrivals:
    """Independent users: gaps are exponential, of the mean 1 / ``rate`` seconds.

    Raises:
        InvalidRequest: the rate is out of range (field "rate").
    """

    rate: float
    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        number(self.rate, 1 / MAX_RATE, MAX_RATE, "rate")

    def gaps(self, random: Random) -> Iterator[float]:
        """Seconds from one arrival to the next, without end."""
        while True:
            yield random.expovariate(self.rate)


@dataclass(frozen=True, slots=True)
class GammaArrivals:
    """Gaps from a gamma distribution: ``cv`` is their standard deviation over their mean.

    1 is Poisson, above it requests come in bursts, 0 is one every 1 / ``rate`` seconds.

    Raises:
        InvalidRequest: a number is out of range (field "rate" or "cv").
    """

    rate: float
    cv: float = 1.0
    kind: ClassVar[str] = "gamma"

    def __post_init__(self) -> None:
        number(self.rate, 1 / MAX_RATE, MAX_RATE, "rate")
        number(self.cv, 0, 100, "cv")

    def gaps(self, random: Random) -> Iterator[float]:
        """Seconds from one arrival to the next, without end."""
        mean = 1 / self.rate
        if self.cv < _REGULAR:
            while True:
                yield mean
        shape = 1 / self.cv**2
        while True:
            yield random.gammavariate(shape, mean / shape)


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """``clients`` that each wait for their answer, think, and ask again.

    ``think_s`` is the time that each thinks, or the mean of an exponential one with ``exponential``
    (as in the machine-repair model). All ask first at 0.

    Raises:
        InvalidRequest: a number is out of range (field "clients" or "think_s").
    """

    clients: int
    think_s: float = 0.0
    exponential: bool = False
    kind: ClassVar[str] = "closed-loop"

    def __post_init__(self) -> None:
        whole(self.clients, 1, MAX_CLIENTS, "clients")
        number(self.think_s, 0, MAX_THINK_S, "think_s")

    def think(self, random: Random) -> float:
        """Seconds from an answer to the next question of the same client."""
        if self.exponential and self.think_s > 0:
            return random.expovariate(1 / self.think_s)
        return self.think_s


Arrivals = PoissonArrivals | GammaArrivals | ClosedLoop
