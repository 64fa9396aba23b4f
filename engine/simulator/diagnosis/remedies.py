"""What would make an answer faster, and by how much: priced again with one thing changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.simulator.diagnosis.hypotheses import Hypothesis, Strength
from engine.simulator.diagnosis.observation import Observation
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import estimate


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change, and the times [s] that it would give; None where that was not measured."""

    name: str
    words: str
    ttft: float | None
    itl: float | None
    fits: bool

    def saving(self, observation: Observation) -> float:
        """Seconds that it saves of ``observation.measured_part``."""
        saved = 0.0
        if self.ttft is not None and observation.ttft is not None:
            saved += observation.ttft - self.ttft
        if self.itl is not None and observation.itl is not None:
            saved += (observation.itl - self.itl) * (observation.cell.output_tokens - 1)
        return saved


def remedies(
    observation: Observation, hypothesis: Hypothesis, strength: Strength
) -> tuple[Remedy, ...]:
    """What helps, the largest saving first, with the cause as it is; and without the cause.

    Each change is priced at the likeliest strength of the hypothesis; the measured times are
    scaled by what the prediction changes.
    """
    before = hypothesis.predict(observation, strength)
    found: list[Remedy] = []
    if hypothesis.name != "expected":
        after = replace(before, ttft=estimate(observation.prefill_cell).ttft)
        after = replace(after, itl=estimate(observation.cell).itl)
        found.append(
            _scaled("remove-the-cause", f"without the cause: {hypothesis.words}", observation,
                    (before.ttft, before.itl), (after.ttft, after.itl), True)
        )  # fmt: skip
    for name, words, cell in changes(observation.cell):
        after = hypothesis.predict(replace(observation, cell=cell), strength)
        fits = estimate(cell).fits
        found.append(
            _scaled(name, words, observation, (before.ttft, before.itl), (after.ttft, after.itl),
                    fits)
        )  # fmt: skip
    useful = [remedy for remedy in found if remedy.saving(observation) > 0]
    return tuple(sorted(useful, key=lambda remedy: -remedy.saving(observation)))


def _scaled(
    name: str,
    words: str,
    observation: Observation,
    before: tuple[float, float],
    after: tuple[float, float],
    fits: bool,
) -> Remedy:
    ttft = None if observation.ttft is None else observation.ttft * after[0] / before[0]
    itl = None if observation.itl is None else observation.itl * after[1] / before[1]
    return Remedy(name, words, ttft, itl, fits)


def changes(cell: Cell) -> Iterator[tuple[str, str, Cell]]:
    """What could be changed about a run: a name, its words, and the run with the change."""
    if cell.weights in ("fp32", "bf16", "fp16"):
        yield "fp8-weights", "weights and products in fp8", replace(cell, weights="fp8")
    yield "int4-weights", "weights in 4 bits", replace(cell, weights="int4-g128")
    if cell.kv in ("fp32", "bf16", "fp16"):
        yield "fp8-kv", "KV cache in fp8", replace(cell, kv="fp8")
    if cell.batch > 1:
        yield "half-batch", "half as many requests at once", replace(cell, batch=cell.batch // 2)
    if cell.prompt_tokens > 1:
        half = cell.prompt_tokens // 2
        shorter = replace(cell, prompt_tokens=cell.prompt_tokens - half)
        yield "half-prompt", "half the prompt", shorter
        cached = replace(shorter, context_tokens=cell.context_tokens + half)
        yield "cached-prefix", "half the prompt cached already", cached
    if cell.devices < 8:
        yield "more-devices", "twice the devices", replace(cell, devices=2 * cell.devices)
    most = Cell.FACTOR_RANGE[1] / 2
    if cell.bandwidth_factor <= most:
        wide = replace(cell, bandwidth_factor=2 * cell.bandwidth_factor)
        yield "twice-the-bandwidth", "a device with twice the memory bandwidth", wide
    if cell.flops_factor <= most:
        fast = replace(cell, flops_factor=2 * cell.flops_factor)
        yield "twice-the-flops", "a device with twice the FLOP/s", fast
