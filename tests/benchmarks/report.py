"""The results of a benchmark run: as tables for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from engine.catalog.units import si_label, significant
from tests.benchmarks.goals import Verdict, verdicts
from tests.benchmarks.workload import Throughput


@dataclass(frozen=True, slots=True)
class Result:
    """One workload in one lane: every engine in tokens per second, and the roofline's.

    ``same_tokens`` says whether transformers took the same greedy tokens; in float32 it should, in
    bfloat16 roundings may part them. None where that was not compared.
    """

    workload: str
    lane: str
    ours: Throughput
    peers: Mapping[str, Throughput]
    roofline: float
    same_tokens: bool | None

    def ratio(self, peer: str) -> float:
        """Our tokens per second over a peer's."""
        return self.ours.median / self.peers[peer].median

    @property
    def share_of_roofline(self) -> float:
        """The part of the roofline that our engine reaches, 1 for all of it."""
        return self.ours.median / self.roofline

    def to_document(self) -> dict[str, object]:
        return {
            "workload": self.workload,
            "lane": self.lane,
            "ours": _measured(self.ours),
            "peers": {
                name: {**_measured(rate), "ratio": self.ratio(name)}
                for name, rate in self.peers.items()
            },
            "roofline": {"value": self.roofline, "unit": "tokens/s", "kind": "predicted"},
            "share_of_roofline": self.share_of_roofline,
            "same_tokens": self.same_tokens,
        }


def _measured(rate: Throughput) -> dict[str, object]:
    return {**asdict(rate), "unit": "tokens/s", "kind": "measured"}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of weights that an engine holds; of llama.cpp, which maps it, the file's."""

    engine: str
    lane: str
    weight_bytes: int


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
    """``llama_cpp``: the version of its package, None where it was not there."""

    date: str
    model: str
    source_format: str
    repeats: int
    llama_cpp: str | None
    machine: Machine
    results: Sequence[Result]
    memory: Sequence[Memory]

    @property
    def verdicts(self) -> list[Verdict]:
        """Which of the goals are met by this run."""
        return verdicts(
            {
                (r.workload, r.lane, engine): rate.median
                for r in self.results
                for engine, rate in {"": r.ours, **r.peers}.items()
            },
            {(r.workload, r.lane): r.share_of_roofline for r in self.results},
        )

    def to_document(self) -> dict[str, object]:
        """For ``json.dumps``."""
        return {
            "date": self.date,
            "model": self.model,
            "source_format": self.source_format,
            "repeats": self.repeats,
            "llama_cpp": self.llama_cpp,
            "machine": asdict(self.machine),
            "results": [result.to_document() for result in self.results],
            "memory": [asdict(memory) for memory in self.memory],
            "goals": [asdict(verdict) for verdict in self.verdicts],
        }

    def to_markdown(self) -> str:
        """A page with the conditions first and the tables after them."""
        parts = [self._conditions(), self._rates(), self._goals(), self._memory()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _conditions(self) -> str:
        machine = self.machine
        low, high = machine.bandwidth_range
        rates = ", ".join(
            f"{name} {si_label(rate, 'FLOP/s')}" for name, rate in machine.flops_per_s.items()
        )
        llama = (
            f"llama-cpp-python {self.llama_cpp}"
            if self.llama_cpp
            else "llama.cpp was not there (`make install-bench` builds it)"
        )
        return (
            f"Measured on {self.date} by `make bench`: {self.model}, weights from "
            f"{self.source_format}, on {machine.device_name} ({machine.device}, {machine.threads} "
            f"threads), Python {machine.python}, torch {machine.torch}; {llama}. Medians of "
            f"{self.repeats} interleaved runs, slowest – fastest in brackets; tokens per second of "
            f"all sequences together. System load before the run: {machine.load_before:.2f}.\n\n"
            f"The roofline is this machine's, measured between the runs: reads of "
            f"{si_label(machine.bandwidth_bytes_per_s, 'B/s')} ({si_label(low, 'B/s')} – "
            f"{si_label(high, 'B/s')}); matrix products of {rates}."
        )

    def _rates(self) -> str:
        rows = [
            "| workload | lane | First Token | transformers | ratio | llama.cpp | ratio "
            "| roofline | share of it | same tokens |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        return "\n".join(rows + [_row(result) for result in self.results])

    def _goals(self) -> str:
        if not self.verdicts:
            return ""
        rows = ["| goal | value | at least | aim | |", "|---|---|---|---|---|"]
        rows += [
            f"| {v.goal} | {v.value:.2f} | {v.least:.2f} | {v.aim:.2f} | {v.word} |"
            for v in self.verdicts
        ]
        return "\n".join(rows)

    def _memory(self) -> str:
        rows = ["| engine | lane | weights |", "|---|---|---|"]
        rows += [
            f"| {m.engine} | {m.lane} | {si_label(m.weight_bytes, 'B')} |" for m in self.memory
        ]
        return "\n".join(rows)


def _row(result: Result) -> str:
    cells = [result.workload, result.lane, _rate(result.ours)]
    for kind in ("transformers", "llama.cpp"):
        name = next((name for name in result.peers if name.startswith(kind)), None)
        if name is None:
            cells += ["—", "—"]
            continue
        variant = name.removeprefix("llama.cpp ") if kind == "llama.cpp" else ""
        cells += [f"{variant} {_rate(result.peers[name])}".strip(), f"{result.ratio(name):.2f}x"]
    cells += [
        significant(result.roofline),
        f"{result.share_of_roofline:.0%}",
        {True: "yes", False: "no", None: "—"}[result.same_tokens],
    ]
    return f"| {' | '.join(cells)} |"


def _rate(rate: Throughput) -> str:
    return f"{significant(rate.median)} ({significant(rate.low)} – {significant(rate.high)})"
