"""The roofline: no work goes faster than its arithmetic or its memory traffic allows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.simulator.layout import Route
from engine.simulator.operators import Operator


class Bound(StrEnum):
    """What limits a time: arithmetic, memory traffic, or the link between devices."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class RooflineCurve:
    """The attainable rate over arithmetic intensity. ``bandwidth`` in B/s, ``peak`` in FLOP/s."""

    bandwidth: float
    peak: float

    @property
    def ridge_point(self) -> float:
        """FLOP/byte at which the slope meets the roof."""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """FLOP/s that work of this intensity (FLOP/byte) can reach at most."""
        return min(self.peak, intensity * self.bandwidth)


@dataclass(frozen=True, slots=True)
class Roofline:
    """One device's limits, in FLOP/s and B/s.

    ``link`` joins the devices of a group, ``exchange`` groups that share out experts and
    ``stage`` the stages; None where nothing is known of it.
    """

    bandwidth: float
    matmul: float
    attention: float
    link: float | None = None
    exchange: float | None = None
    stage: float | None = None

    def peak(self, operator: Operator) -> float:
        """FLOP/s of the format that the operator is computed in."""
        return self.attention if operator.is_attention else self.matmul

    def speed(self, route: Route) -> float | None:
        """B/s over the links of that route."""
        if route is Route.GROUP:
            return self.link
        return self.exchange if route is Route.EXCHANGE else self.stage

    def price(self, operator: Operator) -> PricedOperator:
        """The operator's time: the longer of arithmetic and memory, and the link after them."""
        compute = operator.skew * operator.flops / self.peak(operator)
        memory = operator.bytes / self.bandwidth
        speed = self.speed(operator.route)
        link = operator.skew * operator.link_bytes / speed if speed else 0.0
        if operator.link_bytes:
            bound = Bound.LINK
        else:
            bound = Bound.COMPUTE if compute > memory else Bound.MEMORY
        return PricedOperator(operator, max(compute, memory) + link, bound)


@dataclass(frozen=True, slots=True)
class PricedOperator:
    """An operator of one device with its time in seconds and what limits it."""

    operator: Operator
    time: float
    bound: Bound
