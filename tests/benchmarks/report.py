"""The results of one lane as documents: what the results file keeps and the page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.benchmarks.resident import Footprint
from tests.benchmarks.workload import Spread

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """One workload: every engine in tokens per second, and the roofline's.

    ``same_tokens`` says whether transformers took the same greedy tokens; in float32 it should, in
    bfloat16 roundings may part them. None where that was not compared.
    """

    workload: str
    ours: Spread
    peers: Mapping[str, Spread]
    roofline: float
    same_tokens: bool | None

    def to_document(self) -> Document:
        """Ratios are our tokens per second over the peer's."""
        return {
            "workload": self.workload,
            "ours": _measured(self.ours, "tokens/s"),
            "peers": {
                name: {**_measured(rate, "tokens/s"), "ratio": self.ours.median / rate.median}
                for name, rate in self.peers.items()
            },
            "roofline": {"value": self.roofline, "unit": "tokens/s", "kind": "predicted"},
            "share_of_roofline": self.ours.median / self.roofline,
            "same_tokens": self.same_tokens,
        }


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """Milliseconds to the first token of one prompt: ours from the text, the peers' from its ids.

    ``same_token``: whether transformers says the same one.
    """

    prompt_tokens: int
    ours: Spread
    peers: Mapping[str, Spread]
    roofline_ms: float
    same_token: bool | None

    def to_document(self) -> Document:
        """Ratios are the peer's time over ours, and the share the roofline's over ours: more is
        better, as with rates."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "ours": _measured(self.ours, "ms"),
            "peers": {
                name: {**_measured(time, "ms"), "ratio": time.median / self.ours.median}
                for name, time in self.peers.items()
            },
            "roofline": {"value": self.roofline_ms, "unit": "ms", "kind": "predicted"},
            "share_of_roofline": self.roofline_ms / self.ours.median,
            "same_token": self.same_token,
        }


@dataclass(frozen=True, slots=True)
class Memory:
    """``weight_bytes`` as the engine counts them; of llama.cpp, which maps it, the file's.
    ``growth``: of a fresh process that loads the lane."""

    engine: str
    weight_bytes: int
    growth: Footprint

    def to_document(self) -> Document:
        return {
            "engine": self.engine,
            "weight_bytes": self.weight_bytes,
            "rss_bytes": self.growth.rss,
            "pss_bytes": self.growth.pss,
            "device_bytes": self.growth.device,
            "kind": "measured",
        }


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and with what a lane was run. Rates are medians over the run's own calibrations;
    ``llama_cpp``: the version of its package, None where it was not there."""

    device: str
    device_name: str
    threads: int
    python: str
    torch: str
    transformers: str
    llama_cpp: str | None
    bandwidth_bytes_per_s: float
    bandwidth_range: tuple[float, float]
    flops_per_s: dict[str, float]
    load_before: float


@dataclass(frozen=True, slots=True)
class LaneRun:
    """Everything of one lane. ``memory``: of each engine, ours first."""

    lane: str
    date: str
    repeats: int
    machine: Machine
    results: Sequence[Result]
    first_tokens: FirstTokens
    memory: Sequence[Memory]

    def to_document(self) -> Document:
        """For ``json.dumps``."""
        return {
            "lane": self.lane,
            "date": self.date,
            "repeats": self.repeats,
            "machine": asdict(self.machine),
            "results": [result.to_document() for result in self.results],
            "first_token": self.first_tokens.to_document(),
            "memory": [memory.to_document() for memory in self.memory],
        }


def _measured(spread: Spread, unit: str) -> Document:
    return {**asdict(spread), "unit": unit, "kind": "measured"}
