"""One known cause at a time, made by turning the simulator: the diagnosis names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.simulator.diagnosis.diagnose import BELOW_ROOFLINE, diagnose
from engine.simulator.diagnosis.hypotheses import turned
from engine.simulator.diagnosis.observation import Observation
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import cost_model, estimate
from engine.simulator.search.memory import weight_bytes

BASE = Cell("llama-3.1-8b", "h100-sxm", times="typical", prompt_tokens=1000, output_tokens=200)
RUNS = [(1, 200), (1, 16_000), (64, 1000)]
"""Batches and prompts of further measurements, which tell causes apart."""

Truth = Callable[[Cell], Cell]


def times(cell: Cell) -> tuple[float, float]:
    """TTFT of one prompt and ITL of the batch, as they come one by one."""
    return estimate(replace(cell, batch=1)).ttft, estimate(cell).itl


def measured(said: Cell, truth: Truth) -> list[Observation]:
    """What is measured where the truth differs from what is said."""
    cells = [said, *(replace(said, batch=batch, prompt_tokens=p) for batch, p in RUNS)]
    return [Observation(cell, *times(truth(cell))) for cell in cells]


def knob(**turned: Any) -> Truth:
    return lambda cell: replace(cell, **turned)


@pytest.mark.parametrize(
    ("cause", "said", "truth"),
    [
        ("slow-memory", BASE, knob(bandwidth_factor=0.3)),
        ("slow-compute", BASE, knob(flops_factor=0.2)),
        ("launch-bound", BASE, knob(launch_factor=60.0)),
        ("cpu-bound", BASE, knob(host_factor=40.0)),
        ("longer-prompt", BASE, lambda c: replace(c, prompt_tokens=6 * c.prompt_tokens)),
        ("larger-batch", BASE, lambda c: replace(c, batch=20 * c.batch)),
        ("slow-link", replace(BASE, devices=8), knob(link_factor=0.03)),
        ("wider-weights", replace(BASE, weights="int4-g128"), knob(weights="bf16")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_turned_knob_is_found(cause: str, said: Cell, truth: Truth) -> None:
    found = diagnose(measured(said, truth))
    assert found.causes[0].name == cause
    assert found.sure


def observed(ttft: float = 0.0, itl: float = 0.0, **more: Any) -> Observation:
    """The usual times with something added."""
    usual = times(BASE)
    return Observation(BASE, usual[0] + ttft, usual[1] + itl, **more)


def test_a_queue() -> None:
    found = diagnose([observed(ttft=1.5, queue=1.5)])
    assert found.verdict == "slow to start"
    assert found.causes[0].name == "queueing"
    assert found.sure


def test_decoding_that_prompts_of_others_interrupt() -> None:
    ttft, itl = times(BASE)
    # A step of a prompt, once for each three of ours: the tail of the gaps holds it.
    found = diagnose([Observation(BASE, ttft * 1.4, itl + ttft / 3, itl_p99=itl + ttft)])
    assert found.causes[0].name == "interrupted-decoding"
    assert found.sure


def test_weights_that_do_not_fit() -> None:
    said = replace(BASE, model="llama-3.1-70b")
    assert not estimate(said).fits
    extra = 0.45 * weight_bytes(cost_model(said).step) / 32e9
    ttft, itl = times(said)
    found = diagnose([Observation(said, ttft + extra, itl + extra)])
    assert found.causes[0].name == "offload"
    assert found.sure


def test_a_gap_that_holds_the_first_token() -> None:
    said = replace(BASE, prompt_tokens=16_000, output_tokens=20)
    ttft, itl = times(said)
    total = ttft + 19 * itl
    seen = [Observation(said, ttft, total / 20, tokens_per_s=20 / total)]
    other = replace(BASE, prompt_tokens=16_000, output_tokens=400)
    ttft, itl = times(other)
    seen.append(Observation(other, ttft, (ttft + 399 * itl) / 400))
    found = diagnose(seen)
    assert found.causes[0].name == "itl-includes-ttft"
    assert found.sure


def test_nothing_streams() -> None:
    seen = []
    for output in (50, 400):
        cell = replace(BASE, output_tokens=output)
        ttft, itl = times(cell)
        seen.append(Observation(cell, ttft + (output - 1) * itl, itl))
    found = diagnose(seen)
    assert found.causes[0].name == "ttft-is-total"
    assert found.sure


def test_prompts_that_were_cached() -> None:
    said = replace(BASE, prompt_tokens=16_000)
    cached = replace(said, prompt_tokens=1000, context_tokens=15_000)
    found = diagnose([Observation(said, estimate(cached).ttft, estimate(said).itl)])
    assert found.verdict == BELOW_ROOFLINE  # of the whole prompt
    assert found.causes[0].name == "prefix-hits"


def test_faster_than_the_roofline_is_said_before_any_cause() -> None:
    """Also where the other phase is slow."""
    ttft, itl = times(BASE)
    possible = estimate(replace(BASE, times="ideal"))
    for seen in (
        Observation(BASE, ttft, 0.99 * possible.itl),
        Observation(BASE, 0.99 * possible.ttft, itl),
        Observation(BASE, 5 * ttft, 0.99 * possible.itl),
    ):
        assert diagnose([seen]).verdict == BELOW_ROOFLINE
    assert 1.01 * possible.itl < 0.9 * itl
    fast = diagnose([Observation(BASE, ttft, 1.01 * possible.itl)])
    assert fast.verdict != BELOW_ROOFLINE


def test_a_saving_is_of_what_was_measured() -> None:
    ttft, itl = times(BASE)
    whole, start, rest = (
        Observation(BASE, ttft, itl),
        Observation(BASE, ttft),
        Observation(BASE, itl=itl),
    )
    assert whole.measured_part == "the whole answer"
    assert start.measured_part == "the time to the first token"
    assert rest.measured_part == "the 199 tokens after the first"
    remedy = diagnose([whole]).remedies[0]
    parts = remedy.saving(start) + remedy.saving(rest)
    assert remedy.saving(whole) == pytest.approx(parts)


def test_several_tokens_a_step() -> None:
    ttft, itl = times(BASE)
    found = diagnose([Observation(BASE, ttft, itl / 3, itl_p99=itl)])
    assert found.causes[0].name == "several-tokens-a-step"
    assert found.sure


@pytest.mark.parametrize(
    ("cause", "cell"),
    [
        ("weights-memory-bound", BASE),
        ("kv-bound", replace(BASE, prompt_tokens=60_000, output_tokens=4000, batch=16)),
        ("prefill-too-long", replace(BASE, prompt_tokens=100_000, output_tokens=2)),
        ("launch-bound", replace(BASE, model="smollm2-135m", engine="transformers")),
    ],
)
def test_where_all_is_as_usual_the_largest_part_is_named(cause: str, cell: Cell) -> None:
    found = diagnose([Observation(cell, *times(cell))])
    assert found.verdict == "as usual"
    assert found.weighed[0].hypothesis.name == "expected"
    assert found.causes[0].name == cause
    assert sum(item.share or 0 for item in found.causes) == pytest.approx(1, abs=0.1)


def test_what_one_number_cannot_tell_apart_is_unsure() -> None:
    """A slow gap alone: memory, launches, a larger batch, wider weights or others' prompts."""
    found = diagnose([Observation(BASE, itl=4 * times(BASE)[1])])
    assert found.verdict == "slow to stream"
    assert not found.sure
    assert len(found.causes) >= 3
    assert sum(item.probability for item in found.weighed) == pytest.approx(1)


def test_remedies_are_priced_again() -> None:
    found = diagnose([Observation(BASE, *times(BASE))])
    by_name = {item.name: item for item in found.remedies}
    usual = times(BASE)
    for name, cell in (
        ("fp8-weights", replace(BASE, weights="fp8")),
        ("twice-the-bandwidth", replace(BASE, bandwidth_factor=2.0)),
        ("more-devices", replace(BASE, devices=2)),
    ):
        ttft, itl = times(cell)
        assert by_name[name].ttft == pytest.approx(ttft)
        assert by_name[name].itl == pytest.approx(itl)
        saving = usual[0] - ttft + 199 * (usual[1] - itl)
        assert by_name[name].saving(found.observations[0]) == pytest.approx(saving)
    savings = [item.saving(found.observations[0]) for item in found.remedies]
    assert savings == sorted(savings, reverse=True)
    assert min(savings) > 0


def test_the_knob_that_moves_the_gap_most_is_told() -> None:
    found = diagnose([Observation(BASE, *times(BASE))])
    first = next(item for item in found.sensitivities if item.metric == "itl")
    assert first.knob in ("bandwidth_factor", "weight_bits")


def test_removing_the_cause_gives_the_usual_times() -> None:
    ttft, itl = times(BASE)
    found = diagnose([Observation(BASE, ttft + 2, itl, queue=2.0)])
    best = found.remedies[0]
    assert best.name == "remove-the-cause"
    assert best.ttft == pytest.approx(ttft, rel=0.3)
    assert best.itl == pytest.approx(itl)


@pytest.mark.parametrize("knob", ["bandwidth_factor", "flops_factor", "host_factor"])
@pytest.mark.parametrize("factor", Cell.FACTOR_RANGE)
def test_devices_at_the_ends_of_what_can_be_asked_are_diagnosed(knob: str, factor: float) -> None:
    cell = replace(BASE, **{knob: factor})
    assert diagnose([Observation(cell, *times(cell))]).causes


def test_a_cause_turns_the_knob_of_the_device_as_it_was_said() -> None:
    said = replace(BASE, bandwidth_factor=0.5)
    assert turned(said, "bandwidth_factor", 0.5).bandwidth_factor == 0.25
