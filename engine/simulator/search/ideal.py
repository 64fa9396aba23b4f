"""The ideal roofline for thousands of steps at once: the fast way to ``StepCostModel.cost_of``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from engine.simulator.decoder_step import DecoderStep
from engine.simulator.operators import CoreOperator, LinearOperator, Role, Rows, Term, Unit
from engine.simulator.search.uniform import Floats, UniformSteps, WorkArrays
from engine.simulator.step_price import Peaks


class IdealSteps(NamedTuple):
    """Seconds of steps; those that all arithmetic and all memory traffic would take alone; and
    FLOPs and bytes of one device."""

    time: Floats
    compute_time: Floats
    memory_time: Floats
    flops: Floats
    bytes: Floats


def ideal_steps(step: DecoderStep, peaks: Peaks, steps: UniformSteps) -> IdealSteps:
    """Prices the steps on one device of a group; ``peaks.link`` is infinite where none is known."""
    parts = [_moves([item for item in step.linear if not item.flops], peaks, steps)]
    parts += [_product(item, peaks, steps) for item in step.linear if item.flops]
    works = _works(step, steps)
    parts += [_core(core, peaks, work) for core, work in zip(step.cores, works, strict=True)]
    return IdealSteps(*(_added(column) for column in zip(*parts, strict=True)))


def _added(arrays: Iterable[Floats]) -> Floats:
    return sum(arrays, np.zeros(()))


def _works(step: DecoderStep, steps: UniformSteps) -> list[WorkArrays]:
    work = dict(zip(step.measures, steps.work(step.measures), strict=True))
    return [work[core.measure] for core in step.cores]


def _rows(item: LinearOperator, steps: UniformSteps) -> Floats:
    return steps.tokens if item.rows is Rows.TOKENS else steps.sampled


def _bounded(flops: Floats, moved: Floats, peak: Floats, bandwidth: Floats) -> IdealSteps:
    compute, memory = flops / peak, moved / bandwidth
    return IdealSteps(np.maximum(compute, memory), compute, memory, flops, moved)


def _product(item: LinearOperator, peaks: Peaks, steps: UniformSteps) -> IdealSteps:
    rows = _rows(item, steps)
    weights = item.weight_bytes + _routed_bytes(item, rows)
    moved = weights + rows * (item.activation_bytes + item.kv_bytes)
    priced = _bounded(rows * item.flops, moved, peaks.matmul, peaks.bandwidth)
    if not item.link_bytes:
        return priced
    return priced._replace(time=priced.time + rows * item.link_bytes / peaks.link)


def _routed_bytes(item: LinearOperator, rows: Floats) -> Floats | float:
    """Weights of the experts that the rows are expected to touch, to the whole byte."""
    if item.routed is None:
        return 0.0
    moe = item.routed.moe
    hit = moe.num_experts * (1 - (1 - moe.top_k / moe.num_experts) ** rows)
    return np.rint(item.routed.bytes_each * hit)


def _moves(items: Sequence[LinearOperator], peaks: Peaks, steps: UniformSteps) -> IdealSteps:
    """Operators that only move bytes take the sum of their traffic: they are added up first."""
    weights = float(sum(item.weight_bytes for item in items))
    moved: Floats = np.full_like(steps.sampled, weights)
    crossing: Floats = np.zeros_like(steps.sampled)
    for rows, count in ((Rows.TOKENS, steps.tokens), (Rows.SAMPLED, steps.sampled)):
        mine = [item for item in items if item.rows is rows]
        moved = moved + count * float(sum(item.activation_bytes + item.kv_bytes for item in mine))
        crossing = crossing + count * float(sum(item.link_bytes for item in mine))
    memory = moved / peaks.bandwidth
    nothing = np.zeros_like(memory)
    return IdealSteps(memory + crossing / peaks.link, nothing, memory, nothing, moved)


def _core(core: CoreOperator, peaks: Peaks, work: WorkArrays) -> IdealSteps:
    traffic = (*core.activations, *core.cache)
    moved = _terms(traffic, work) + float(core.weight_bytes) * (work.tokens > 0)
    peak = peaks.attention if core.role is Role.ATTENTION else peaks.matmul
    return _bounded(_terms(core.flops, work), moved, peak, peaks.bandwidth)


def _terms(terms: Sequence[Term], work: WorkArrays) -> Floats:
    counts = {Unit.PAIRS: work.pairs, Unit.READS: work.reads, Unit.TOKENS: work.tokens}
    total = np.zeros_like(work.tokens)
    for term in terms:
        total = total + float(term.each) * counts[term.unit]
    return total
