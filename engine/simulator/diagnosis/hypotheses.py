"""What could make an answer slower (or faster) than usual, each as a change of the prediction.

A hypothesis has one strength, over a grid. Where a knob of the simulator says what it changes, the
run is priced again with the knob turned; where not (a queue, a clock that measures something else)
a formula says how the times follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from engine.catalog.precision import get_format
from engine.simulator.diagnosis.observation import Observation, Times, whole_answer
from engine.simulator.search.cell import FACTORS, Cell
from engine.simulator.search.estimate import cost_model, estimate
from engine.simulator.search.memory import weight_bytes

HOST_LINK = 16e9 * 16 * 128 / 130 / 8
"""B/s in one direction over PCI Express 4.0 x16: 16 GT/s a lane, 128 of 130 bits are data
(PCI Express Base Specification 4.0)."""

_STRENGTHS = 24
Strength = float | str
Predict = Callable[[Observation, Strength], Times]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A cause, its strengths, and the times that each strength predicts.

    ``unit`` says what a strength is; ``knob`` is what the simulator turns for it, None where a
    formula says how the times follow. ``weight`` says how likely it is before measuring, beside
    the others.
    """

    name: str
    words: str
    unit: str
    strengths: tuple[Strength, ...]
    predict: Predict
    weight: float = 1.0
    knob: str | None = None


def hypotheses(cell: Cell) -> tuple[Hypothesis, ...]:
    """What could be the cause on such a deployment; "expected" is the first."""
    fits = estimate(cell).fits
    found = [
        Hypothesis("expected", "as such a deployment usually is", "", (1.0,), _expected, 12.0),
        *(_turning(*entry) for entry in _KNOBS if entry[2] != "link_factor" or cell.devices > 1),
        *_FORMULAS,
        replace(_OFFLOAD, weight=_OFFLOAD.weight if fits else 12.0),
    ]
    bits = get_format(cell.weights, "weights").bits
    wider = tuple(name for name in ("fp8", "bf16", "fp32") if get_format(name).bits > 1.3 * bits)
    if wider:
        words = "the weights take more bits than said"
        found.append(_turning("wider-weights", words, "weights", "format", wider))
    return tuple(found)


def turned(cell: Cell, knob: str | None, strength: Strength) -> Cell:
    """The cell with a knob turned; as it is without one."""
    if knob is None:
        return cell
    if knob in Cell.RANGES:
        most = Cell.RANGES[knob][1]
        return replace(cell, **{knob: min(round(getattr(cell, knob) * float(strength)), most)})
    if knob in FACTORS:
        low, high = Cell.FACTOR_RANGE
        factor = getattr(cell, knob) * float(strength)
        return replace(cell, **{knob: min(max(factor, low), high)})
    return replace(cell, **{knob: strength})


def _rising(first: float, last: float) -> tuple[float, ...]:
    return tuple(np.geomspace(first, last, _STRENGTHS).tolist())


def _falling(first: float, last: float) -> tuple[float, ...]:
    return tuple(1 / value for value in _rising(first, last))


def _times(observation: Observation, ttft: float, itl: float, queue: float = 0.0) -> Times:
    """Times of a run whose tokens come evenly."""
    output = observation.cell.output_tokens
    total = whole_answer(ttft, itl, output)
    return Times(ttft, itl, itl, queue, observation.cell.batch * output / total)


def _expected(observation: Observation, strength: Strength) -> Times:
    ttft = estimate(observation.prefill_cell).ttft
    return _times(observation, ttft, estimate(observation.cell).itl)


def _turned(knob: str, observation: Observation, strength: Strength) -> Times:
    prefill = observation.prefill_cell
    if knob != "batch" or observation.together:
        prefill = turned(prefill, knob, strength)
    itl = estimate(turned(observation.cell, knob, strength)).itl
    return _times(observation, estimate(prefill).ttft, itl)


def _turning(
    name: str, words: str, knob: str, unit: str, strengths: tuple[Strength, ...]
) -> Hypothesis:
    return Hypothesis(name, words, unit, strengths, partial(_turned, knob), knob=knob)


def _queueing(observation: Observation, strength: Strength) -> Times:
    usual, wait = _expected(observation, 1.0), float(strength)
    return _times(observation, usual.ttft + wait, usual.itl, wait)


def _interrupted(observation: Observation, strength: Strength) -> Times:
    """Prompts of others take all but 1/strength of the time; a gap at the tail holds one.

    A request waits for the one that runs: Pollaczek and Khinchine's mean for equal services.
    """
    usual = _expected(observation, 1.0)
    busy = 1 - 1 / float(strength)
    wait = busy * usual.ttft / (2 * (1 - busy))
    times = _times(observation, usual.ttft + wait, usual.itl * float(strength), wait)
    return replace(times, itl_p99=usual.itl + usual.ttft)


def _offloaded(observation: Observation, strength: Strength) -> Times:
    """A part of each device's weights comes over the host's link in every step."""
    usual, step = _expected(observation, 1.0), cost_model(observation.cell).step
    extra = float(strength) * weight_bytes(step) / step.group.devices / HOST_LINK
    return _times(observation, usual.ttft + extra, usual.itl + extra)


def _mean_of_all(observation: Observation, strength: Strength) -> Times:
    usual, output = _expected(observation, 1.0), observation.cell.output_tokens
    mean = whole_answer(usual.ttft, usual.itl, output) / output
    return replace(usual, itl=mean)


def _not_streamed(observation: Observation, strength: Strength) -> Times:
    usual = _expected(observation, 1.0)
    return replace(usual, ttft=whole_answer(usual.ttft, usual.itl, observation.cell.output_tokens))


def _cached(observation: Observation, strength: Strength) -> Times:
    """A part of the prompt is there already; at least one token is not."""

    def shortened(cell: Cell) -> Cell:
        cached = min(int(cell.prompt_tokens * float(strength)), cell.prompt_tokens - 1)
        return replace(
            cell,
            prompt_tokens=cell.prompt_tokens - cached,
            context_tokens=cell.context_tokens + cached,
        )

    itl = estimate(observation.cell).itl
    return _times(observation, estimate(shortened(observation.prefill_cell)).ttft, itl)


def _several(observation: Observation, strength: Strength) -> Times:
    usual = _expected(observation, 1.0)
    times = _times(observation, usual.ttft, usual.itl / float(strength))
    return replace(times, itl_p99=usual.itl)


_KNOBS: tuple[tuple[str, str, str, str, tuple[Strength, ...]], ...] = (
    (
        "slow-memory",
        "memory is slower than the device's: other work on it, lower clocks, another device",
        "bandwidth_factor",
        "of the bandwidth",
        _falling(1.4, 16),
    ),
    (
        "slow-compute",
        "arithmetic is slower than the device's: lower clocks, or kernels without matrix units",
        "flops_factor",
        "of the FLOP/s",
        _falling(1.4, 16),
    ),
    (
        "launch-bound",
        "launching kernels takes longer than their work: no graphs, or a slow CPU",
        "launch_factor",
        "× the usual time",
        _rising(3, 64),
    ),
    (
        "cpu-bound",
        "the engine's host takes long between steps: scheduling, sampling, detokenizing",
        "host_factor",
        "× the usual time",
        _rising(3, 128),
    ),
    (
        "longer-prompt",
        "prompts are longer than said: a system prompt, a template, or words taken for tokens",
        "prompt_tokens",
        "× the tokens",
        _rising(1.5, 32),
    ),
    (
        "larger-batch",
        "more requests share each step than said",
        "batch",
        "× the requests",
        _rising(2, 64),
    ),
    (
        "slow-link",
        "the devices talk over a slower link than their own",
        "link_factor",
        "of the bandwidth",
        _falling(2, 64),
    ),
)

_FORMULAS = (
    Hypothesis(
        "queueing",
        "requests wait before their first step",
        "s",
        _rising(0.03, 100),
        _queueing,
    ),
    Hypothesis(
        "interrupted-decoding",
        "prompts of others run between decode steps",
        "× the gap",
        _rising(1.3, 10),
        _interrupted,
    ),
    Hypothesis(
        "itl-includes-ttft",
        "the gap was taken as the whole time over the number of tokens, the first one's included",
        "",
        (1.0,),
        _mean_of_all,
    ),
    Hypothesis(
        "ttft-is-total",
        "the first token was timed when the whole answer was there: nothing streams",
        "",
        (1.0,),
        _not_streamed,
        # Rarer than a queue, which any wait can be.
        weight=0.1,
    ),
    Hypothesis(
        "prefix-hits",
        "a part of the prompt was cached already",
        "of the prompt",
        tuple(1 - value for value in _falling(1.5, 32)),
        _cached,
    ),
    Hypothesis(
        "several-tokens-a-step",
        "a step gives several tokens: speculation, or tokens that are sent in chunks",
        "tokens",
        _rising(1.5, 8),
        _several,
    ),
)

_OFFLOAD = Hypothesis(
    "offload",
    "a part of the weights does not fit and comes over the host's link in each step",
    "of the weights",
    _rising(0.01, 1),
    _offloaded,
    # Where all weights fit there is little reason to leave some on the host.
    weight=0.1,
)
