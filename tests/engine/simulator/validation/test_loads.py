"""Closed forms of loads agree with the laws they stand on."""

from __future__ import annotations

import pytest

from engine.simulator.validation.loads import Curve, closed_loop, largest_rate, offered_load

SIZES = (1.0, 8.0, 64.0, 256.0)
CURVE = Curve(SIZES, (0.010, 0.012, 0.020, 0.050), prefill=0.02, alone=0.03, output=200)


def test_the_curve_is_linear_between_its_sizes() -> None:
    assert CURVE.step(8) == 0.012
    assert CURVE.step(36) == pytest.approx(0.016)
    assert CURVE.step(0.5) == 0.010
    assert CURVE.step(1000) == 0.050


@pytest.mark.parametrize("clients", [1, 7, 64, 200])
def test_littles_law_holds_in_the_closed_loop(clients: int) -> None:
    loop = closed_loop(CURVE, clients, 256)
    # A request is in flight for its own prefill and its tokens, others' prefills among them.
    time = CURVE.prefill + CURVE.output * loop.tpot
    assert loop.rate * time == pytest.approx(clients)


def test_more_clients_than_places_wait() -> None:
    full, over = closed_loop(CURVE, 64, 64), closed_loop(CURVE, 128, 64)
    assert over.rate == full.rate
    assert over.tpot == full.tpot
    assert over.ttft - full.ttft == pytest.approx(64 / full.rate)


def test_littles_law_holds_at_a_rate() -> None:
    offered = offered_load(CURVE, 5.0, 256, None)
    assert offered.rate == 5.0
    batch = 5.0 * CURVE.output * CURVE.step(1) / (1 - 5 * CURVE.prefill)
    assert batch < 64
    assert offered.tpot > CURVE.step(1)
    assert offered_load(CURVE, 0.01, 256, None).tpot == pytest.approx(CURVE.step(1), rel=0.01)
    assert offered_load(CURVE, 0.01, 256, None).ttft == pytest.approx(CURVE.alone, rel=0.05)


def test_a_rate_beyond_the_service_is_not_answered() -> None:
    most = closed_loop(CURVE, 256, 256).rate
    assert offered_load(CURVE, 100.0, 256, None).rate == pytest.approx(most, rel=0.01)


def test_a_burst_prefills_before_it_decodes() -> None:
    burst = closed_loop(CURVE, 100, 256, burst=True)
    assert burst.ttft == pytest.approx(100 * CURVE.prefill / 2)


def test_the_largest_rate_keeps_its_promise() -> None:
    limit = 0.04
    found = largest_rate(CURVE, 256, limit)
    assert found.tpot == pytest.approx(limit, rel=1e-3)
    assert largest_rate(CURVE, 4, 1.0).rate == pytest.approx(closed_loop(CURVE, 4, 4).rate)
