"""The service against queueing theory and against another simulator on the same arrivals.

Where a request is one step, or a number of steps whose time does not depend on the batch, the
service is a queue whose waiting times are known: M/D/1, M/G/1 (Pollaczek-Khinchine), M/M/c.
"""

from __future__ import annotations

import math
from random import Random
from statistics import fmean

import pytest
import simpy

from engine.simulator.serving.settings import EngineSettings
from tests.engine.simulator.serving.fakes import poisson_jobs, serve

ONE_PLACE = EngineSettings(max_running=1)


def by_simpy(jobs, service_times, places):
    """Waiting times of the same jobs in an independent simulator: a queue before some places."""
    environment = simpy.Environment()
    servers = simpy.Resource(environment, capacity=places)
    waits = {}

    def one(index, arrival, service):
        yield environment.timeout(arrival)
        with servers.request() as turn:
            yield turn
            waits[index] = environment.now - arrival
            yield environment.timeout(service)

    for index, (job, service) in enumerate(zip(jobs, service_times, strict=True)):
        environment.process(one(index, job.arrival, service))
    environment.run()
    return [waits[index] for index in range(len(jobs))]


def waits_in_order(answered):
    return [r.queued for r in sorted(answered, key=lambda r: int(r.request_id))]


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_constant_service_is_m_d_1(load):
    service = 0.02
    jobs = poisson_jobs(load / service, 20_000)
    answered, _ = serve(jobs, lambda _: service, ONE_PLACE)
    waits = waits_in_order(answered)
    assert waits == pytest.approx(by_simpy(jobs, [service] * len(jobs), 1), abs=1e-9)
    assert fmean(waits) == pytest.approx(load * service / (2 * (1 - load)), rel=0.05)


def test_general_service_is_pollaczek_khinchine():
    step, load = 0.001, 0.6

    def output(random):
        return random.choice((1, 5, 30))

    mean = step * (1 + 5 + 30) / 3
    second = step**2 * (1 + 25 + 900) / 3
    rate = load / mean
    jobs = poisson_jobs(rate, 20_000, output)
    answered, _ = serve(jobs, lambda _: step, ONE_PLACE)
    waits = waits_in_order(answered)
    services = [job.output_tokens * step for job in jobs]
    assert waits == pytest.approx(by_simpy(jobs, services, 1), abs=1e-8)
    assert fmean(waits) == pytest.approx(rate * second / (2 * (1 - load)), rel=0.05)


def test_several_places_are_m_m_c():
    places, load, mean_tokens = 3, 0.6, 40
    step = 0.001
    rate = load * places / (mean_tokens * step)

    def output(random: Random):
        return 1 + int(math.log(1 - random.random()) / math.log(1 - 1 / mean_tokens))

    jobs = poisson_jobs(rate, 4000, output)
    answered, _ = serve(jobs, lambda _: step, EngineSettings(max_running=places))
    waits = waits_in_order(answered)
    services = [job.output_tokens * step for job in jobs]
    # A place is taken at the end of a step only: up to a step later than in continuous time.
    assert fmean(waits) == pytest.approx(fmean(by_simpy(jobs, services, places)), abs=2 * step)
    offered = load * places
    busy = offered**places / math.factorial(places) / (1 - load)
    erlang_c = busy / (sum(offered**k / math.factorial(k) for k in range(places)) + busy)
    expected = erlang_c * mean_tokens * step / (places * (1 - load))
    assert fmean(waits) == pytest.approx(expected + step / 2, rel=0.15)


def test_units_of_round_robin_are_queues_of_their_own():
    service = 0.02
    jobs = poisson_jobs(80, 3000)
    answered, _ = serve(jobs, lambda _: service, ONE_PLACE, units=2)
    waits = waits_in_order(answered)
    for unit in (0, 1):
        own = jobs[unit::2]
        assert waits[unit::2] == pytest.approx(by_simpy(own, [service] * len(own), 1), abs=1e-9)


def test_little_holds_exactly_as_the_run_drains():
    answered, statistics = serve(
        poisson_jobs(20, 2000, lambda random: random.randint(1, 30)), lambda _: 0.01
    )
    totals = statistics.totals
    assert totals.in_system == pytest.approx(sum(r.e2e for r in answered), rel=1e-9)
    assert totals.arrived == totals.finished == 2000
