"""Curves of links: known ones are found again, and sizes that were held out lie near them."""

from __future__ import annotations

import pytest

from engine.simulator.efficiency import prior_table
from engine.simulator.validation.collectives import (
    Collective,
    collectives_section,
    fit_links,
    read_collectives,
)

SIZES = [2**power for power in range(11, 27)]


def _row(workers: int, size: int, seconds: float, name: str = "all_reduce") -> Collective:
    return Collective("a100_dgx", name, workers, 8, size, seconds)


def test_a_known_curve_is_found_again_whatever_one_row_says() -> None:
    rows = [
        _row(workers, size, hops * 5e-6 + 2 * (workers - 1) / workers * size / 200e9)
        for workers, hops in ((2, 1), (4, 2), (8, 3))
        for size in SIZES
    ]
    rows[10] = _row(2, SIZES[10], 1.0)
    (found,) = fit_links(rows)
    assert found.latency == pytest.approx(5e-6, rel=0.02)
    assert found.bandwidth == pytest.approx(200e9, rel=0.02)
    assert found.median_error < 0.02
    assert (found.rows, found.held_out) == (24, 24)


def test_every_measured_row_is_fitted_or_held_out() -> None:
    fits = fit_links()
    assert sum(fit.rows + fit.held_out for fit in fits) == len(read_collectives()) == 182
    assert all(fit.latency > 0 for fit in fits)


@pytest.mark.parametrize(
    ("link", "name", "most"),
    [
        ("PCIe between pairs", "all_reduce", 0.05),
        ("NVLink3, all to all", "send_recv", 0.10),
        ("NVLink3, all to all", "all_reduce", 0.30),
        ("network between nodes", "send_recv", 0.20),
        ("network between nodes", "all_reduce", 0.40),
    ],
)
def test_held_out_sizes_lie_near_the_curve(link: str, name: str, most: float) -> None:
    (found,) = (fit for fit in fit_links() if (fit.link, fit.name) == (link, name))
    assert found.median_error < most
    assert f"| {link} | {name.replace('_', '-')} |" in collectives_section()


def test_the_network_of_typical_times_has_the_measured_latency() -> None:
    (found,) = (
        fit
        for fit in fit_links()
        if (fit.link, fit.name) == ("network between nodes", "all_reduce")
    )
    used = prior_table().values["link.network.latency_us"]
    assert used == pytest.approx(1e6 * found.latency, rel=0.03)
