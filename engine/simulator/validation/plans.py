"""Which steps a measured number is made of, and how their times make it up.

A plan prices a handful of steps: contexts that grow are integrated at Gauss points, batches that
follow from times are solved on a grid. So thousands of rows are priced in one array operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.catalog.models import ModelSpec
from engine.simulator.decoder_step import DecoderStep
from engine.simulator.efficiency import Setting, engine_constant
from engine.simulator.formats import StorageFormats
from engine.simulator.layout import Layout
from engine.simulator.step_price import Terms
from engine.simulator.step_shape import growing_contexts, scaled_shape
from engine.simulator.step_terms import StepTerms
from engine.simulator.validation.cases import Case
from engine.simulator.validation.loads import (
    ClosedLoop,
    Curve,
    Offered,
    closed_loop,
    largest_rate,
    offered_load,
)

_MIXED_TOKENS = 8192
_SERVER_TPOT = 0.145
"""Mean TPOT [s] at which the 99th percentile meets MLPerf's limit of 0.2 s."""
_REQUESTS = 500
"""Requests of a run at a given rate, where the source gives their number."""

Combine = Callable[[Sequence[float], float], float]
"""From the times of a plan's steps and the time before a first token, in s, to the metric."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A case, the terms of its steps, and the metric that their times make."""

    case: Case
    setting: Setting
    terms: tuple[Terms[float], ...]
    combine: Combine


@lru_cache(maxsize=1024)
def _terms(
    model: ModelSpec, formats: StorageFormats, layout: Layout, dense_bits: float
) -> StepTerms:
    step = DecoderStep(model, formats, layout)
    return StepTerms(step, dense_bits / formats.weights.bits)


def terms_of(case: Case) -> StepTerms:
    """What builds the terms of a case's steps."""
    return _terms(case.model, case.formats, case.layout, case.dense_bits)


class _Builder:
    """Collects the steps of one plan; each ``add`` gives the place of the step's time."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.source = terms_of(case)
        self.terms: list[Terms[float]] = []

    def add(self, *groups: tuple[float, int, int]) -> int:
        """A step of ``(sequences, prefix, new)`` groups, all of which sample."""
        shape = scaled_shape(self.source.step, groups)
        self.terms.append(self.source.of(shape))
        return len(self.terms) - 1

    def decode(
        self, batch: float, start: float, steps: float
    ) -> Callable[[Sequence[float]], float]:
        """Mean time of ``steps`` decode steps whose context grows from ``start``."""
        contexts = growing_contexts(round(start), steps)
        places = [self.add((batch, context, 1)) for context in contexts]
        return lambda times: sum(times[place] for place in places) / len(places)

    def prefill(
        self, batch: float, prompt: int, depth: int = 0
    ) -> Callable[[Sequence[float]], float]:
        """Time of ``batch`` prompts: together, or in the engine's small chunks one by one."""
        chunk = self.case.chunk or engine_constant(self.case.engine, "chunk")
        if chunk >= 2048 or prompt <= chunk:
            only = self.add((batch, depth, prompt))
            return lambda times: times[only]
        count = prompt / chunk
        starts = growing_contexts(depth, prompt - chunk)
        places = [self.add((1, start, int(chunk))) for start in starts]
        stages = self.case.layout.stages
        share = engine_constant(self.case.engine, "pipelining") if stages > 1 else 0.0
        slots = (1 - share) * count + share * (count + stages - 1) / stages
        return lambda times: batch * slots * sum(times[place] for place in places) / len(places)


def capacity(case: Case) -> float:
    """Requests of full length whose cache a group of devices holds; at least one.

    A vendor's GB of GPU memory are GiB, but for what the driver keeps (an H100 shows 79.2 GiB).
    """
    layout, model, formats = case.layout, case.model, case.formats
    devices = layout.tensor * layout.stages
    memory = case.hardware.memory_bytes / 1e9 * 2**30 * 0.99
    room = (memory * engine_constant(case.engine, "memory_use") - 1e9) * devices - _weight_bytes(
        case
    )
    tokens = max(case.prompt + case.output, 1)
    copies = layout.group.cache_copies(model)
    each = float(model.kv_cache_bytes(tokens, formats.kv.bits, 16)) * copies
    return max(room / each, 1.0)


def _weight_bytes(case: Case) -> float:
    """Weights of a group of devices; where groups share out experts, its part of these."""
    terms = terms_of(case)
    routed = terms.routed_bytes * case.layout.tensor
    size = float(case.formats.weights.bytes_for(case.model.num_parameters))
    dense = size - routed * case.layout.owners
    return dense * case.dense_bits / case.formats.weights.bits + routed


def make_plan(case: Case) -> Plan | None:
    """The plan of a case; None where no formula covers its kind of run and metric."""
    kind, metric = case.measurement.batch_kind, case.measurement.metric
    build = _Builder(case)
    combine: Combine | None
    if kind in ("static", "microbatch_tokens"):
        combine = _static(build, metric)
    elif kind == "max_batch_that_fits":
        batch = case.batch or max(math.floor(min(capacity(case), 256)), 1)
        combine = _whole(build, batch, metric)
    else:
        combine = _loaded(build, kind, metric)
    if combine is None:
        return None
    setting = Setting(case.hardware, case.formats, case.engine, case.layout, case.flash)
    return Plan(case, setting, tuple(build.terms), combine)


def _static(build: _Builder, metric: str) -> Combine | None:
    case = build.case
    batch = case.batch or 1
    if metric == "prefill_tok_s":
        run = build.prefill(batch, case.prompt, case.depth)
        return lambda times, _: batch * case.prompt / run(times)
    if metric == "decode_tok_s_per_seq":
        mean = build.decode(batch, case.depth + case.prompt, case.output)
        return lambda times, _: 1 / mean(times)
    if metric == "tpot_ms":
        mean = build.decode(batch, case.prompt, case.output)
        return lambda times, _: 1e3 * mean(times)
    if metric == "ttft_ms":
        run = build.prefill(batch, case.prompt)
        return lambda times, first: 1e3 * (run(times) + first)
    return _whole(build, batch, metric)


def _whole(build: _Builder, batch: int, metric: str) -> Combine | None:
    """A batch from its arrival to its last token, in waves where the cache is too small."""
    case = build.case
    output = case.output
    one_by_one = any("one_token_at_a_time" in flag for flag in case.measurement.flags)
    if one_by_one:
        mean = build.decode(batch, 0, case.prompt + output)

        def total(times: Sequence[float]) -> float:
            return (case.prompt + output) * mean(times)

    else:
        at_once = max(min(batch, math.floor(capacity(case))), 1)
        full, rest = divmod(batch, at_once)
        waves = [(full, at_once)] + ([(1, rest)] if rest else [])
        parts = [
            (count, build.prefill(size, case.prompt), build.decode(size, case.prompt, output - 1))
            for count, size in waves
        ]

        def total(times: Sequence[float]) -> float:
            return sum(
                count * (run(times) + (output - 1) * (mean(times) if output > 1 else 0.0))
                for count, run, mean in parts
            )

    if metric == "e2e_latency_ms":
        return lambda times, first: 1e3 * (total(times) + first)
    if metric == "output_tok_s_total":
        return lambda times, first: batch * output / (total(times) + first)
    if metric == "output_tok_s_per_device":
        devices = case.layout.devices
        return lambda times, first: batch * output / (total(times) + first) / devices
    return None


def _loaded(build: _Builder, kind: str, metric: str) -> Combine | None:
    """Requests that come and go: closed forms over the decode curve of one group of devices."""
    case = build.case
    row = case.measurement
    groups = case.layout.data
    most = max(min(capacity(case), engine_constant(case.engine, "max_sequences")), 1.0)
    together = max(_MIXED_TOKENS // max(case.prompt, 1), 1)
    if kind == "concurrency" and row.batch:
        together = min(together, int(row.batch))
    alone = build.prefill(1, case.prompt)
    shared = build.prefill(together, case.prompt)
    grid = _grid(most)
    middle = case.prompt + case.output / 2
    places = [build.add((size, round(middle), 1)) for size in grid]
    output = max(case.output, 1)
    name = {"output_tok_s_total": "output", "output_tok_s_per_device": "output"}.get(metric, metric)
    devices = case.layout.devices if metric == "output_tok_s_per_device" else 1

    def curve(times: Sequence[float]) -> Curve:
        return Curve(
            grid,
            tuple(times[place] for place in places),
            prefill=shared(times) / together,
            alone=alone(times),
            output=output,
        )

    def give(loop: ClosedLoop | Offered, first: float) -> float:
        if name == "output":
            return loop.rate * output * groups / devices
        return 1e3 * (loop.ttft + first if name == "ttft_ms" else loop.tpot)

    if kind in ("max_load_offline", "mlperf_offline"):
        return lambda times, first: give(closed_loop(curve(times), most, most), first)
    if kind == "concurrency":
        clients = float(row.batch)
        return lambda times, first: give(closed_loop(curve(times), clients / groups, most), first)
    if kind == "request_rate_qps":
        if row.batch == "INF":
            burst = min(float(_REQUESTS), most)
            return lambda times, first: give(
                closed_loop(curve(times), burst, most, burst=True), first
            )
        rate = float(row.batch) / groups
        return lambda times, first: give(offered_load(curve(times), rate, most, _REQUESTS), first)
    if kind == "mlperf_server":
        return lambda times, first: give(largest_rate(curve(times), most, _SERVER_TPOT), first)
    return None


def _grid(most: float) -> tuple[float, ...]:
    """Batch sizes from 1 to ``most``, each about twice the last."""
    count = max(math.ceil(math.log2(most)), 1)
    return tuple(most ** (index / count) for index in range(count + 1))
