"""What the engine is to reach beside its peers, and whether a run did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Rates = Mapping[tuple[str, str, str], float]
"""Tokens per second by workload, lane and engine; ours has the empty name."""

_BATCH_1 = "decode, batch 1"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal, the value of this run, the least that will do, and the aim."""

    goal: str
    value: float
    least: float
    aim: float

    @property
    def word(self) -> str:
        """How the run did."""
        if self.value >= self.aim:
            return "aim reached"
        return "met" if self.value >= self.least else "missed"


def verdicts(rates: Rates, shares: Mapping[tuple[str, str], float]) -> list[Verdict]:
    """The goals that this run's engines let it judge.

    At batch 1 the lane is compared with llama.cpp at the same bits; in a batch our best lane with
    the best peer's best; prefill with transformers in bfloat16.
    """
    return [
        *_same_bits(rates),
        *_roofline_share(shares),
        *_batches(rates),
        *_prefills(rates),
    ]


def _same_bits(rates: Rates) -> Iterator[Verdict]:
    for (workload, lane, engine), rate in rates.items():
        if workload == _BATCH_1 and engine.startswith("llama.cpp"):
            ratio = rates[workload, lane, ""] / rate
            yield Verdict(f"{workload}: {lane} / {engine}", ratio, 0.90, 1.10)


def _roofline_share(shares: Mapping[tuple[str, str], float]) -> Iterator[Verdict]:
    share = shares.get((_BATCH_1, "bfloat16"))
    if share is not None:
        yield Verdict(f"{_BATCH_1}: bfloat16, share of the roofline", share, 0.80, 0.95)


def _batches(rates: Rates) -> Iterator[Verdict]:
    batches = {w for w, _, _ in rates if w.startswith("decode") and w != _BATCH_1}
    for workload in sorted(batches, key=len):
        ours = {lane: r for (w, lane, e), r in rates.items() if w == workload and not e}
        peers = {(lane, e): r for (w, lane, e), r in rates.items() if w == workload and e}
        if not peers:
            continue
        best, (_, peer) = max(ours, key=ours.__getitem__), max(peers, key=peers.__getitem__)
        ratio = ours[best] / max(peers.values())
        yield Verdict(f"{workload}: {best} / {peer}", ratio, 1.0, 1.3)


def _prefills(rates: Rates) -> Iterator[Verdict]:
    for (workload, lane, engine), rate in rates.items():
        if workload.startswith("prefill") and lane == "bfloat16" and "transformers" in engine:
            ours = {name: r for (w, name, e), r in rates.items() if w == workload and not e}
            best = max(ours, key=ours.__getitem__)
            yield Verdict(
                f"{workload}: {best} / transformers bfloat16", ours[best] / rate, 1.3, 1.5
            )
