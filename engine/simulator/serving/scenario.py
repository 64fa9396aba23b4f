"""A question to the serving simulator: what is served, how, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.simulator.deployment import Deployment
from engine.simulator.serving.checks import whole
from engine.simulator.serving.routing import Routing
from engine.simulator.serving.settings import EngineSettings, ServiceLevel
from engine.simulator.serving.workload import AnyWorkload

MAX_REPLICAS = 1024
MAX_SEED = 2**53 - 1


@dataclass(frozen=True, slots=True)
class ServingScenario:
    """``replicas`` equal deployments behind one router, under a workload.

    Each data-parallel group of a replica schedules by itself, so that ``units`` of them share the
    requests. The same ``seed`` gives the same run, to the bit.

    Raises:
        InvalidRequest: a number is out of range (field "replicas" or "seed").
    """

    deployment: Deployment
    workload: AnyWorkload
    engine: EngineSettings = field(default_factory=EngineSettings)
    replicas: int = 1
    routing: Routing = Routing.ROUND_ROBIN
    slo: ServiceLevel = field(default_factory=ServiceLevel)
    seed: int = 0

    def __post_init__(self) -> None:
        whole(self.replicas, 1, MAX_REPLICAS, "replicas")
        whole(self.seed, 0, MAX_SEED, "seed")

    @property
    def units(self) -> int:
        """Schedulers that share the requests."""
        return self.replicas * self.deployment.layout.data

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.replicas * self.deployment.layout.devices

    def kv_blocks(self) -> int:
        """Blocks of cache of each unit.

        Raises:
            InvalidRequest: the weights leave no room for any (field "hardware").
        """
        if self.engine.kv_blocks is not None:
            return self.engine.kv_blocks
        return self.deployment.kv_blocks(
            round(self.workload.mean_tokens),
            step_tokens=self.engine.max_step_tokens,
            sequences=self.engine.max_running,
        )
