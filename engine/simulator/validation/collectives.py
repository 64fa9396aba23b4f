"""Latency and bandwidth of links, from measured times of collectives by size.

A collective over n devices takes h α + f B / β: h hops of latency α, and the factor f of its B
bytes over each device's link of β bytes/s. An all-reduce has h = log2 n and f = 2 (n - 1) / n, a
send one hop and f = 1. Both numbers are fitted to every other size, in relative terms, and scored
on the sizes between.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from engine.catalog.units import GB
from engine.simulator.validation.measurement import data_folder

_MICRO = 1e-6


@dataclass(frozen=True, slots=True)
class Collective:
    """One measured time: ``workers`` devices of which ``per_node`` share a node; s and bytes."""

    fabric: str
    name: str
    workers: int
    per_node: int
    size: int
    seconds: float

    @property
    def within_node(self) -> bool:
        return self.workers <= self.per_node

    @property
    def hops(self) -> float:
        return math.log2(self.workers) if self.name == "all_reduce" else 1.0

    @property
    def factor(self) -> float:
        """Bytes over a device's link for each byte."""
        if self.name != "all_reduce":
            return 1.0
        return 2 * (self.workers - 1) / self.workers


@dataclass(frozen=True, slots=True)
class LinkFit:
    """α in s a hop, β in B/s, and how far the sizes that were held out lie from them."""

    link: str
    name: str
    latency: float
    bandwidth: float
    rows: int
    held_out: int
    median_error: float

    def seconds(self, row: Collective) -> float:
        return row.hops * self.latency + row.factor * row.size / self.bandwidth


def read_collectives() -> tuple[Collective, ...]:
    """The stored table (Vidur, A100 machines)."""
    with (data_folder() / "collectives.csv").open(encoding="utf-8") as lines:
        return tuple(
            Collective(
                row["fabric"],
                row["collective"],
                int(row["num_workers"]),
                int(row["devices_per_node"]),
                int(row["size_bytes"]),
                float(row["median_ms"]) * 1e-3,
            )
            for row in csv.DictReader(lines)
        )


def link_name(row: Collective) -> str:
    """What the bytes went over: NVLink of a DGX, bridges between pairs, or the network."""
    if not row.within_node:
        return "network between nodes"
    if row.fabric == "a100_dgx":
        return "NVLink3, all to all"
    return "NVLink3 in pairs" if row.workers == 2 else "PCIe between pairs"


def fit_links(rows: Iterable[Collective] | None = None) -> tuple[LinkFit, ...]:
    """One curve for each link and collective, of the rows that are stored or given."""
    groups: dict[tuple[str, str], list[Collective]] = {}
    for row in read_collectives() if rows is None else rows:
        groups.setdefault((link_name(row), row.name), []).append(row)
    return tuple(_fit(*key, group) for key, group in sorted(groups.items()))


def collectives_section() -> str:
    """The report's table of links: curves, and the errors of the sizes that were held out."""
    rows = [
        f"| {fit.link} | {fit.name.replace('_', '-')} | {fit.latency / _MICRO:.1f} us | "
        f"{fit.bandwidth / GB:.1f} GB/s | {fit.rows} | {fit.median_error:.1%} of {fit.held_out} |"
        for fit in fit_links()
    ]
    return "\n".join(
        [
            "## Links between devices",
            "",
            "Vidur's measured all-reduces and sends between A100 by size (2 KB to 67 MB), as "
            "hops × latency + factor × bytes / bandwidth; every other size is fitted, the sizes "
            "between are scored. Small all-reduces of whole machines scatter from 10 to 60 us "
            "without order, which no curve follows. The latency of the network is what typical "
            "times use between nodes; within a node they use what whole engines showed "
            "(calibrated), which fuse their all-reduces.",
            "",
            "| link | collective | latency a hop | bandwidth | rows | held-out median error |",
            "|-|-|-|-|-|-|",
            *rows,
        ]
    )


def _fit(link: str, name: str, rows: Sequence[Collective]) -> LinkFit:
    sizes = sorted({row.size for row in rows})
    fitted = set(sizes[::2])
    used = [row for row in rows if row.size in fitted]
    held = [row for row in rows if row.size not in fitted]
    latency, slope = _least(used)
    found = LinkFit(link, name, latency, 1 / slope, len(used), len(held), 0.0)
    errors = [abs(found.seconds(row) / row.seconds - 1) for row in held]
    return LinkFit(link, name, latency, 1 / slope, len(used), len(held), median(errors))


def _least(rows: Sequence[Collective]) -> tuple[float, float]:
    """α and 1/β of the least squares of relative errors, reweighted towards the least absolute.

    Repeated weighting by 1 / |error| keeps single odd measurements from deciding.
    """
    matrix = np.array([[row.hops, row.factor * row.size] for row in rows])
    matrix = matrix / np.array([[row.seconds] for row in rows])
    weights = np.ones(len(rows))
    found = np.zeros(2)
    for _ in range(50):
        scaled = np.sqrt(weights)
        found = np.linalg.lstsq(matrix * scaled[:, None], scaled, rcond=None)[0]
        weights = 1 / np.maximum(np.abs(matrix @ found - 1), 1e-3)
    return float(found[0]), float(found[1])
