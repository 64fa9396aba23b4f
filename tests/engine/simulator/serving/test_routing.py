"""Which unit gets a request, and what becomes of it there."""

from __future__ import annotations

import pytest

from engine.simulator.deployment import Deployment
from engine.simulator.serving.arrivals import PoissonArrivals
from engine.simulator.serving.lengths import FixedLength
from engine.simulator.serving.prompts import ID_SPACE
from engine.simulator.serving.routing import MAX_IMBALANCE, Router, Routing
from engine.simulator.serving.scenario import ServingScenario
from engine.simulator.serving.settings import EngineSettings
from engine.simulator.serving.workload import Job, Workload
from tests.engine.simulator.serving.fakes import serve


class Unit:
    def __init__(self, load: int, known: int = 0) -> None:
        self.load, self.known = load, known

    def in_flight(self, time: float) -> int:
        return self.load

    def known_tokens(self, request: object) -> int:
        return self.known


def choose(routing, *units):
    return Router(routing).choose(units, None, 0.0)  # pyright: ignore[reportArgumentType]


def test_round_robin_goes_round():
    router = Router(Routing.ROUND_ROBIN)
    units = [Unit(9), Unit(0), Unit(0)]
    assert [router.choose(units, None, 0.0) for _ in range(4)] == [0, 1, 2, 0]  # pyright: ignore


def test_least_loaded_takes_the_emptiest_and_the_first_of_equals():
    assert choose(Routing.LEAST_LOADED, Unit(3), Unit(1), Unit(1)) == 1


def test_prefix_aware_goes_where_the_prompt_is_known_unless_that_is_overloaded():
    assert choose(Routing.PREFIX_AWARE, Unit(0), Unit(MAX_IMBALANCE, 64)) == 1
    assert choose(Routing.PREFIX_AWARE, Unit(0), Unit(MAX_IMBALANCE + 1, 64)) == 0
    assert choose(Routing.PREFIX_AWARE, Unit(2), Unit(1)) == 1


def test_load_is_that_at_the_time_of_the_arrival():
    # The first unit is busy with a long step until 10; the second one has ended at 1.
    jobs = [Job(0.0, 10, 1), Job(0.0, 1, 1), Job(2.0, 1, 1), Job(3.0, 1, 1)]
    answered, _ = serve(
        jobs, lambda shape: float(shape.tokens), units=2, routing=Routing.LEAST_LOADED
    )
    assert {r.request_id: r.unit for r in answered} == {"0": 0, "1": 1, "2": 1, "3": 1}


@pytest.mark.parametrize(("routing", "hits"), [(Routing.ROUND_ROBIN, 2), (Routing.PREFIX_AWARE, 3)])
def test_prompts_that_begin_alike_find_their_beginning(routing, hits):
    shared = (range(ID_SPACE, ID_SPACE + 32),)
    jobs = [Job(10.0 * index, 40, 2, shared) for index in range(4)]
    answered, statistics = serve(
        jobs, lambda _: 1.0, EngineSettings(prefix_caching=True), units=2, routing=routing
    )
    assert sorted(r.cached_tokens for r in answered) == [0] * (4 - hits) + [32] * hits
    assert statistics.totals.cached_tokens == 32 * hits


def test_equal_prompts_share_all_but_the_last_block_and_no_answer():
    shared = (range(ID_SPACE, ID_SPACE + 48),)
    jobs = [Job(0.0, 48, 40, shared), Job(100.0, 48, 40, shared)]
    answered, _ = serve(jobs, lambda _: 1.0, EngineSettings(prefix_caching=True))
    assert [r.cached_tokens for r in answered] == [0, 32]


def test_what_never_fits_is_refused_and_counted():
    jobs = [Job(0.0, 40, 2), Job(0.0, 400, 2)]
    answered, statistics = serve(jobs, lambda _: 1.0, EngineSettings(kv_blocks=4))
    assert [r.request_id for r in answered] == ["0"]
    assert (statistics.totals.arrived, statistics.totals.refused) == (2, 1)


def test_effort_grows_with_what_a_router_looks_at():
    def effort(routing, replicas, *, cached=True):
        return ServingScenario(
            Deployment("llama-3.1-8b", "h100-sxm"),
            Workload(PoissonArrivals(8), FixedLength(4000), FixedLength(100), 1000),
            EngineSettings(prefix_caching=cached),
            replicas=replicas,
            routing=routing,
        ).effort

    one = effort(Routing.PREFIX_AWARE, 1)
    assert effort(Routing.PREFIX_AWARE, 32) > 10 * one
    assert effort(Routing.PREFIX_AWARE, 32) > 10 * effort(Routing.LEAST_LOADED, 32)
    assert effort(Routing.PREFIX_AWARE, 32, cached=False) < one
    assert effort(Routing.ROUND_ROBIN, 32) < effort(Routing.LEAST_LOADED, 32)
