"""Slow to start, or slow to stream? Which bound, why, and what would help.

    found = diagnose([Observation(Cell("llama-3.1-8b", "h100-sxm", times="typical"), ttft=0.4,
                                  itl=0.007)])
    found.verdict      "slow to start", "slow to stream", "slow to start and to stream", …
    found.causes       the likeliest first, with evidence; found.sure says whether one stands out
    found.remedies     what would help, and by how much

Measured times are compared with the typical ones of the same run. Where they lie within the
interval of calibration nothing is wrong: the causes are then what takes the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.errors import InvalidRequest
from engine.refusals import refused
from engine.simulator.diagnosis.hypotheses import hypotheses
from engine.simulator.diagnosis.observation import Observation
from engine.simulator.diagnosis.parts import CAUSES, decode_parts, prefill_parts
from engine.simulator.diagnosis.remedies import Remedy, remedies
from engine.simulator.diagnosis.weighing import Weighed, weigh
from engine.simulator.intervals import Metric, interval
from engine.simulator.search.estimate import estimate
from engine.simulator.search.sensitivity import Elasticity, sensitivities

SURE = 0.5
"""Probability from which the likeliest cause is named for sure, if it is also …"""
CLEAR = 2.0
"""… so many times as likely as the next."""
MAX_OBSERVATIONS = 16
BELOW_ROOFLINE = "below the roofline: check what was measured, or the model and the hardware"
"""Of a time that is shorter than the ideal one. A cached prefix or several tokens a step can be
why: such causes are still weighed."""
_LEAST_SHARE = 0.02
_LEAST_PROBABILITY = 0.01


@dataclass(frozen=True, slots=True)
class Phase:
    """One measured time [s] beside its predictions; ``parts`` are the typical one's, by cause."""

    measured: float | None
    ideal: float
    typical: float
    p10: float
    p90: float
    parts: dict[str, float]

    @property
    def slow(self) -> bool:
        """Slower than nine of ten measurements of this kind."""
        return self.measured is not None and self.measured > self.p90

    @property
    def fast(self) -> bool:
        """Faster than nine of ten."""
        return self.measured is not None and self.measured < self.p10

    @property
    def impossible(self) -> bool:
        """Faster than the roofline of what was said: something else ran, or was measured."""
        return self.measured is not None and self.measured < self.ideal

    @property
    def bound(self) -> str:
        """The cause that takes most of the typical time."""
        return max(self.parts, key=self.parts.__getitem__)


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely cause: one of a deviation, with its probability and strength, or one of the usual
    time, with its share of it."""

    name: str
    words: str
    evidence: str
    probability: float | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found. ``sure`` says whether the first cause stands out from the others;
    ``sensitivities`` say which knob moves the typical times of ``cell`` most now."""

    observations: tuple[Observation, ...]
    start: Phase
    stream: Phase
    weighed: tuple[Weighed, ...]
    causes: tuple[Cause, ...]
    sure: bool
    remedies: tuple[Remedy, ...]
    sensitivities: tuple[Elasticity, ...]

    @property
    def verdict(self) -> str:
        """In words: faster than possible, slow to start, slow to stream, both, or neither."""
        start, stream = self.start, self.stream
        if start.impossible or stream.impossible:
            return BELOW_ROOFLINE
        if start.slow and stream.slow:
            return "slow to start and to stream"
        if start.slow or stream.slow:
            return "slow to start" if start.slow else "slow to stream"
        if start.fast or stream.fast:
            return "faster than usual"
        return "as usual"

    @property
    def most_time(self) -> str:
        """The phase in which more of the whole answer's time passes: "start" or "stream"."""
        return "start" if self.observations[0].slow_phase_is_start else "stream"


def diagnose(observations: Sequence[Observation]) -> Diagnosis:
    """Compare measured times with predicted ones; the first observation is the one explained.

    Further ones of the same deployment, at other batches or prompts, tell causes apart.

    Raises:
        InvalidRequest: none or too many observations, or of several deployments (field
            "observations"); or whatever ``estimate`` refuses.
    """
    if not 1 <= len(observations) <= MAX_OBSERVATIONS:
        raise refused("choices_at_most", field="observations", high=MAX_OBSERVATIONS)
    seen = tuple(replace(item, cell=replace(item.cell, times="typical")) for item in observations)
    first = seen[0]
    same = replace(first.cell, batch=1, prompt_tokens=1, output_tokens=1, context_tokens=0)
    for item in seen[1:]:
        if replace(item.cell, batch=1, prompt_tokens=1, output_tokens=1, context_tokens=0) != same:
            raise InvalidRequest("measure one deployment", field="observations")
    weighed = weigh(seen, hypotheses(first.cell))
    top = weighed[0]
    start, stream = _phases(first)
    usual = top.hypothesis.name == "expected"
    causes = _usual_causes(first, start, stream) if usual else _causes(weighed)
    sure = top.probability >= SURE and top.probability >= CLEAR * weighed[1].probability
    helpful = remedies(first, top.hypothesis, top.strength)
    slopes = sensitivities(first.cell, one_by_one=not first.together)
    return Diagnosis(seen, start, stream, weighed, causes, sure, helpful, slopes)


def _phases(observation: Observation) -> tuple[Phase, Phase]:
    cell, prefill = observation.cell, observation.prefill_cell
    hardware = cell.hardware_spec
    ideal_start = estimate(replace(prefill, times="ideal")).ttft
    start, stream = estimate(prefill).ttft, estimate(cell).itl
    low, high = interval(Metric.TTFT, hardware)
    first = Phase(observation.ttft, ideal_start, start, start * low, start * high,
                  prefill_parts(prefill))  # fmt: skip
    low, high = interval(Metric.DECODE if cell.batch == 1 else Metric.BATCHED, hardware)
    ideal_stream = estimate(replace(cell, times="ideal")).itl
    rest = Phase(observation.itl, ideal_stream, stream, stream * low, stream * high,
                 decode_parts(cell))  # fmt: skip
    return first, rest


def _causes(weighed: Sequence[Weighed]) -> tuple[Cause, ...]:
    found: list[Cause] = []
    for item in weighed:
        if item.probability < _LEAST_PROBABILITY:
            continue
        times, strength, unit = item.times[0], item.strength, item.hypothesis.unit
        shown = f"{strength:.3g}" if isinstance(strength, float) else strength
        evidence = f"at {shown} {unit}: " if unit else ""
        if math.isnan(times.itl):
            # One output token has no gap after it.
            evidence += f"TTFT {times.ttft:.4g} s is predicted"
        else:
            evidence += f"TTFT {times.ttft:.4g} s and ITL {times.itl:.4g} s are predicted"
        found.append(Cause(item.hypothesis.name, item.hypothesis.words, evidence, item.probability))
    return tuple(found)


def _usual_causes(observation: Observation, start: Phase, stream: Phase) -> tuple[Cause, ...]:
    """What takes the time of the phase in which most of it passes."""
    in_start = observation.slow_phase_is_start
    phase = start if in_start else stream
    total = sum(phase.parts.values())
    found: list[Cause] = []
    for name, seconds in sorted(phase.parts.items(), key=lambda item: -item[1]):
        if seconds < _LEAST_SHARE * total:
            continue
        where = "before the first token" if in_start else "between tokens"
        evidence = f"{seconds:.4g} s of {total:.4g} s {where}, typically"
        long = in_start and name == "compute-bound"
        cause = "prefill-too-long" if long else name
        words = "arithmetic of the prompt" if long else CAUSES[name]
        found.append(Cause(cause, words, evidence, share=seconds / total))
    return tuple(found)
