"""A finalist of a search under a simulated load: what the closed form leaves out."""

from __future__ import annotations

from dataclasses import dataclass

from engine.simulator.deployment import Deployment
from engine.simulator.layout import Layout
from engine.simulator.search.cheapest import Candidate, Requirement
from engine.simulator.serving.arrivals import PoissonArrivals
from engine.simulator.serving.lengths import FixedLength
from engine.simulator.serving.routing import Routing
from engine.simulator.serving.scenario import ServingScenario
from engine.simulator.serving.settings import ServiceLevel
from engine.simulator.serving.simulation import simulate_serving
from engine.simulator.serving.workload import Workload

REQUESTS = 500


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Means and 99th percentiles [s] of a serving run; ``keeps`` says whether its means keep the
    limits, ``good_share`` how many requests keep both by themselves."""

    requests: int
    ttft: float
    ttft_p99: float
    itl: float
    itl_p99: float
    good_share: float
    keeps: bool


def confirm(
    requirement: Requirement, candidate: Candidate, requests: int = REQUESTS, seed: int = 0
) -> Confirmation:
    """Serve Poisson arrivals of requests of that length on the candidate's replicas.

    Raises:
        InvalidRequest: the deployment has no room for a cache.
    """
    scenario = ServingScenario(
        Deployment(
            requirement.model,
            candidate.hardware,
            Layout(tensor=candidate.devices),
            candidate.weights,
            candidate.kv,
            times=requirement.times,
            engine=requirement.engine,
            memory_utilization=requirement.memory_utilization,
        ),
        Workload(
            PoissonArrivals(requirement.rate),
            FixedLength(requirement.prompt_tokens),
            FixedLength(requirement.output_tokens),
            requests,
        ),
        replicas=candidate.replicas,
        routing=Routing.LEAST_LOADED,
        slo=ServiceLevel(requirement.ttft, requirement.itl),
        seed=seed,
    )
    result = simulate_serving(scenario)
    ttft, itl = result.ttft, result.itl
    if ttft is None or itl is None or result.good_share is None:
        raise AssertionError("every request gets at least two tokens")
    return Confirmation(
        requests=requests,
        ttft=ttft.mean,
        ttft_p99=ttft.percentile(99),
        itl=itl.mean,
        itl_p99=itl.percentile(99),
        good_share=result.good_share,
        keeps=ttft.mean <= requirement.ttft and itl.mean <= requirement.itl,
    )
