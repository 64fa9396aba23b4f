"""How a model is divided over devices, as far as the time of a step depends on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from engine.refusals import refused
from engine.simulator.parallelism import TensorParallel

MAX_DEVICES = 1024


class Route(StrEnum):
    """Between which devices bytes travel; each way may have a link of its own."""

    GROUP = "between the devices that share every matrix"
    EXCHANGE = "to the devices that keep the experts, and back"
    STAGE = "from stage to stage"


@dataclass(frozen=True, slots=True)
class Layout:
    """``tensor`` devices share every matrix, ``data`` such groups work side by side.

    With ``experts`` the groups of data parallelism share out the routed experts and keep
    everything else whole. ``stages`` devices hold the layers one after the other.

    ``imbalance`` is the work of the group whose experts are asked for most over the mean: 1 where
    routing is uniform. ``per_node`` devices are joined by the devices' own link (None: all of
    them); beyond a node they talk over a network. Devices are numbered by tensor first, then by
    stage, then by group, so that those that talk most sit together.

    Raises:
        InvalidRequest: a number is out of its range (names the field).
    """

    tensor: int = 1
    data: int = 1
    experts: bool = False
    stages: int = 1
    imbalance: float = 1.0
    per_node: int | None = None

    def __post_init__(self) -> None:
        for name in ("tensor", "data", "stages"):
            if not 1 <= getattr(self, name) <= MAX_DEVICES:
                raise refused("devices_range", field=name, high=f"{MAX_DEVICES:,}")
        if not 1 <= self.imbalance < math.inf:
            raise refused("imbalance_below_mean", field="imbalance")
        if self.per_node is not None and not 1 <= self.per_node <= MAX_DEVICES:
            raise refused("devices_range", field="per_node", high=f"{MAX_DEVICES:,}")

    @property
    def devices(self) -> int:
        return self.tensor * self.data * self.stages

    @property
    def group(self) -> TensorParallel:
        """The devices that share every matrix."""
        return TensorParallel(self.tensor)

    @property
    def owners(self) -> int:
        """Groups among which the routed experts are shared out."""
        return self.data if self.experts else 1

    @property
    def skew(self) -> float:
        """The busiest device's part of the experts' work over the mean part."""
        return self.imbalance if self.owners > 1 else 1.0

    def leaves_node(self, route: Route) -> bool:
        """Whether bytes on this route cross the network between nodes."""
        span = {
            Route.GROUP: self.tensor,
            Route.STAGE: self.tensor * self.stages,
            Route.EXCHANGE: self.devices,
        }
        return self.per_node is not None and span[route] > self.per_node


ONE_DEVICE = Layout()
