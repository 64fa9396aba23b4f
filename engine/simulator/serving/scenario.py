"""A question to the serving simulator: what is served, how, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.refusals import refused
from engine.scheduling.policies import POLICIES
from engine.simulator.deployment import Deployment
from engine.simulator.serving.checks import whole
from engine.simulator.serving.routing import Routing
from engine.simulator.serving.settings import EngineSettings, ServiceLevel
from engine.simulator.serving.workload import AnyWorkload

MAX_REPLICAS = 1024
MAX_UNITS = 1024
MAX_CACHED_BLOCKS = 2**23
"""Blocks of all prefix caches together: each that is kept takes some hundred bytes here."""
MAX_SEED = 2**53 - 1


@dataclass(frozen=True, slots=True)
class ServingScenario:
    """``replicas`` equal deployments behind one router, under a workload.

    Each data-parallel group of a replica schedules by itself, so that ``units`` of them share the
    requests. The same ``seed`` gives the same run, to the bit.

    Raises:
        InvalidRequest: a number is out of range (field "replicas" or "seed"), or there are more
            than ``MAX_UNITS`` units (field "replicas").
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
        if self.units > MAX_UNITS:
            raise refused("units_at_most", field="replicas", high=f"{MAX_UNITS:,}")

    @property
    def units(self) -> int:
        """Schedulers that share the requests."""
        return self.replicas * self.deployment.layout.data

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.replicas * self.deployment.layout.devices

    @property
    def effort(self) -> float:
        """Roughly the seconds that simulating takes on one core, to tell short runs from long.

        A request is taken in and ended, its prompt may take several steps, and its blocks may be
        looked up; each token is priced, in turns that are not those of rank one by one. A router
        may ask all units about each request, and a prefix-aware one looks its blocks up in each.
        Clients that wait for their answers let no unit run far ahead of the others, so that steps
        are taken nearly one by one, each with a look at all units; a batch shares its steps.
        """
        requests, prompt, output = self.workload.size
        prefill_steps = prompt / self.engine.max_step_tokens
        looked_up = prompt / self.deployment.block_size if self.engine.prefix_caching else 0.0
        by_rank = POLICIES[self.engine.policy].turn_is_rank
        a_token = 5e-6 if by_rank else 5e-5
        clients = self.workload.closed_loop
        if clients is not None:
            a_token += (3e-5 + 3e-6 * self.units) / max(clients.clients / self.units, 1.0)
        a_unit = 0.0 if self.routing is Routing.ROUND_ROBIN else 5e-6
        if self.routing is Routing.PREFIX_AWARE:
            a_unit += 8e-6 * looked_up
        a_request = 5e-4 + 5e-5 * prefill_steps + 8e-6 * looked_up + a_token * output
        return 3e-4 * self.units + requests * (a_request + a_unit * self.units)

    def kv_blocks(self) -> int:
        """Blocks of cache of each unit.

        Raises:
            InvalidRequest: the weights leave no room for any (field "hardware"), or so many can
                not be kept track of (field "engine.prefix_caching").
        """
        blocks = self.engine.kv_blocks
        if blocks is None:
            _, prompt, output = self.workload.size
            blocks = self.deployment.kv_blocks(
                round(prompt + output),
                step_tokens=self.engine.max_step_tokens,
                sequences=self.engine.max_running,
            )
        if self.engine.prefix_caching and blocks * self.units > MAX_CACHED_BLOCKS:
            high = f"{MAX_CACHED_BLOCKS:,}"
            raise refused("cached_blocks", field="engine.prefix_caching", high=high)
        return blocks
