"""The results of a benchmark run: as a table for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from engine.catalog.units import si_label, significant
from tests.benchmarks.workload import Throughput


@dataclass(frozen=True, slots=True)
class Result:
    """One workload in one dtype: both engines in tokens per second, and the roofline's.

    ``same_tokens`` says whether both engines took the same greedy tokens; in float32 they should,
    in bfloat16 roundings may part them. None where that was not compared.
    """

    workload: str
    dtype: str
    ours: Throughput
    peer: Throughput
    roofline: float
    same_tokens: bool | None

    @property
    def ratio(self) -> float:
        return self.ours.median / self.peer.median

    def share(self, of: Throughput) -> float:
        """The part of the roofline that an engine reaches, 1 for all of it."""
        return of.median / self.roofline

    def to_document(self) -> dict[str, object]:
        return {
            "workload": self.workload,
            "dtype": self.dtype,
            "ours": {**asdict(self.ours), "unit": "tokens/s", "kind": "measured"},
            "peer": {**asdict(self.peer), "unit": "tokens/s", "kind": "measured"},
            "roofline": {"value": self.roofline, "unit": "tokens/s", "kind": "predicted"},
            "ratio": self.ratio,
            "share_of_roofline": self.share(self.ours),
            "peer_share_of_roofline": self.share(self.peer),
            "same_tokens": self.same_tokens,
        }


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and with what a run was made. Rates are medians over the run's own calibrations."""

    device: str
    device_name: str
    threads: int
    python: str
    torch: str
    bandwidth_bytes_per_s: float
    bandwidth_range: tuple[float, float]
    flops_per_s: dict[str, float]
    load_before: float


@dataclass(frozen=True, slots=True)
class Report:
    date: str
    model: str
    source_format: str
    peer: str
    repeats: int
    machine: Machine
    results: Sequence[Result]

    def to_document(self) -> dict[str, object]:
        """For ``json.dumps``."""
        return {
            "date": self.date,
            "model": self.model,
            "source_format": self.source_format,
            "peer": self.peer,
            "repeats": self.repeats,
            "machine": asdict(self.machine),
            "results": [result.to_document() for result in self.results],
        }

    def to_markdown(self) -> str:
        """A page with the conditions first and the table after them."""
        machine = self.machine
        low, high = machine.bandwidth_range
        rates = ", ".join(
            f"{name} {si_label(rate, 'FLOP/s')}" for name, rate in machine.flops_per_s.items()
        )
        lines = [
            f"Measured on {self.date} by `make bench`: {self.model}, weights expanded from "
            f"{self.source_format}, on {machine.device_name} ({machine.device}, {machine.threads} "
            f"threads), Python {machine.python}, torch {machine.torch}, beside {self.peer}. "
            f"Medians of {self.repeats} interleaved runs, slowest – fastest in brackets. "
            f"System load before the run: {machine.load_before:.2f}.",
            "",
            f"The roofline is this machine's, measured between the runs: reads of "
            f"{si_label(machine.bandwidth_bytes_per_s, 'B/s')} ({si_label(low, 'B/s')} – "
            f"{si_label(high, 'B/s')}); matrix products of {rates}.",
            "",
            "| workload | dtype | First Token, tokens/s | transformers, tokens/s | ratio "
            "| roofline, tokens/s | share of it | transformers' share | same tokens |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        lines += [_row(result) for result in self.results]
        return "\n".join(lines) + "\n"


def _row(result: Result) -> str:
    cells = [
        result.workload,
        result.dtype,
        _rate(result.ours),
        _rate(result.peer),
        f"{result.ratio:.2f}x",
        significant(result.roofline),
        f"{result.share(result.ours):.0%}",
        f"{result.share(result.peer):.0%}",
        {True: "yes", False: "no", None: "—"}[result.same_tokens],
    ]
    return f"| {' | '.join(cells)} |"


def _rate(rate: Throughput) -> str:
    return f"{significant(rate.median)} ({significant(rate.low)} – {significant(rate.high)})"
