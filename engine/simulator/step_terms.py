"""A step as the few sums that its typical time depends on: operators added up by sort once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.catalog.precision import Number
from engine.simulator.decoder_step import DecoderStep, StepShape
from engine.simulator.layout import Route
from engine.simulator.operators import CoreOperator, LinearOperator, Rows, Term, Unit
from engine.simulator.step_price import Terms

Array = NDArray[np.float64]
WorkArrays = tuple[Array, Array, Array]
"""Pairs, reads and tokens of many steps."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """Linear operators of one sort added up: per row, and weights once a step."""

    flops: float = 0.0
    moved: float = 0.0
    weights: float = 0.0


class StepTerms:
    """Builds the terms of any step of a model: operators added up by sort once.

    The terms are of one device of each stage, one after the other. ``dense_scale`` is the size of
    weights outside routed experts over what ``step`` takes it for: some checkpoints keep only
    their experts in few bits.
    """

    def __init__(self, step: DecoderStep, dense_scale: float = 1.0) -> None:
        self.step = step
        layout = step.layout
        linear = step.linear
        weighted = [item for item in linear if item.flops and item.routed is None]
        self._tokens = _sum([item for item in weighted if item.rows is Rows.TOKENS], dense_scale)
        self._sampled = _sum([item for item in weighted if item.rows is Rows.SAMPLED], dense_scale)
        routed = [item for item in linear if item.routed is not None]
        self._expert = _sum(routed)
        self._expert_bytes = sum(item.routed.bytes_each for item in routed if item.routed)
        moving = [item for item in linear if not item.flops]
        self._move = _sum([item for item in moving if item.rows is Rows.TOKENS])
        self._move_sampled = _sum([item for item in moving if item.rows is Rows.SAMPLED])
        inside = [item for item in linear if item.route is Route.GROUP]
        self._link = sum(item.link_bytes for item in inside if item.rows is Rows.TOKENS)
        self._link_sampled = sum(item.link_bytes for item in inside if item.rows is Rows.SAMPLED)
        self._exchange = _over(linear, Route.EXCHANGE)
        self._stage = _over(linear, Route.STAGE)
        self._cores = tuple(_core_term(step, core) for core in step.cores)
        layers = step.model.num_layers
        self._layers = float(layers)
        self.routed_bytes = float(sum(item.routed.resident for item in routed if item.routed))
        self._reduces = float(step.blocks) if layout.tensor > 1 else 0.0
        self._owners = layout.owners if step.expert_layers else 1
        self._exchanges = 2.0 * step.expert_layers if self._owners > 1 else 0.0

    def core(self, shape: StepShape) -> tuple[float, float, float, float]:
        """FLOPs, bytes, positions that a query sees on the mean, and scores of all cores."""
        flops = moved = weighed = weight = scores = 0.0
        work = shape.work
        for core in self._cores:
            pairs, reads, count = work[core.measure]
            if not count:
                continue
            of_pairs = pairs * core.pair_flops
            flops += of_pairs + reads * core.read_flops + count * core.flops
            moved += core.weights + pairs * core.pair_bytes + reads * core.read_bytes
            moved += count * core.bytes
            scores += pairs * core.heads
            weighed += of_pairs * pairs / count
            weight += of_pairs
        return flops, moved, weighed / weight if weight else 0.0, scores

    def of(self, shape: StepShape) -> Terms[float]:
        """The terms of a step of that shape, on one device."""
        tokens, sampled = float(shape.tokens), float(shape.sampled)
        flops, moved, context, scores = self.core(shape)
        linear, head, expert = self._tokens, self._sampled, self._expert
        moving, moving_head = self._move, self._move_sampled
        expert_bytes, expert_rows = self._experts(shape.tokens) if expert.flops else (0.0, 0.0)
        # By position, in the order of the fields: a step is priced while it runs.
        return Terms(
            tokens * linear.flops,
            linear.weights + tokens * linear.moved,
            tokens,
            sampled * head.flops,
            head.weights * (sampled > 0) + sampled * head.moved,
            sampled,
            tokens * expert.flops,
            expert_bytes + tokens * expert.moved,
            expert_rows,
            moving.weights
            + tokens * moving.moved
            + moving_head.weights * (sampled > 0)
            + sampled * moving_head.moved,
            flops,
            moved,
            context,
            scores,
            tokens * self._link + sampled * self._link_sampled,
            self._reduces,
            self._layers,
            sampled,
            tokens * self._exchange,
            self._exchanges,
            tokens * self._stage,
        )

    def of_many(self, tokens: Array, sampled: Array, work: Sequence[WorkArrays]) -> Terms[Array]:
        """The terms of many steps at once, on one device: what ``of`` gives for each.

        ``work`` holds pairs, reads and tokens of each of the step's measures; every step has
        tokens and samples.
        """
        flops = moved = weighed = weight = scores = np.zeros(())
        for core in self._cores:
            pairs, reads, count = work[core.measure]
            of_pairs = pairs * core.pair_flops
            flops = flops + of_pairs + reads * core.read_flops + count * core.flops
            moved = moved + core.weights * (count > 0) + pairs * core.pair_bytes
            moved = moved + reads * core.read_bytes + count * core.bytes
            scores = scores + pairs * core.heads
            weighed = weighed + of_pairs * pairs / np.maximum(count, 1e-300)
            weight = weight + of_pairs
        linear, head, expert = self._tokens, self._sampled, self._expert
        moving, moving_head = self._move, self._move_sampled
        expert_bytes, expert_rows = self._experts_of_many(tokens)
        return Terms(
            gemm_flops=tokens * linear.flops,
            gemm_bytes=linear.weights + tokens * linear.moved,
            gemm_rows=tokens,
            head_flops=sampled * head.flops,
            head_bytes=head.weights + sampled * head.moved,
            head_rows=sampled,
            expert_flops=tokens * expert.flops,
            expert_bytes=expert_bytes + tokens * expert.moved,
            expert_rows=expert_rows,
            move_bytes=moving.weights
            + tokens * moving.moved
            + moving_head.weights
            + sampled * moving_head.moved,
            core_flops=flops,
            core_bytes=moved,
            context=np.divide(weighed, weight, out=np.zeros_like(weight), where=weight > 0),
            scores=scores,
            link_bytes=tokens * self._link + sampled * self._link_sampled,
            reduces=np.asarray(self._reduces),
            layers=np.asarray(self._layers),
            sequences=sampled,
            exchange_bytes=tokens * self._exchange,
            exchanges=np.asarray(self._exchanges),
            stage_bytes=tokens * self._stage,
        )

    def _experts_of_many(self, tokens: Array) -> tuple[Array, Array]:
        """As ``_experts``."""
        moe = self.step.model.moe
        if moe is None or not self._expert.flops:
            nothing = np.zeros_like(tokens)
            return nothing, nothing
        owners = self._owners
        everywhere = tokens * owners
        hit = moe.num_experts * (1 - (1 - moe.top_k / moe.num_experts) ** everywhere)
        return self._expert_bytes * hit / owners, everywhere * moe.top_k / hit

    def _experts(self, tokens: int) -> tuple[float, float]:
        """Bytes of the experts that are read on one device, and tokens for each of them."""
        moe = self.step.model.moe
        if moe is None or not tokens:
            return 0.0, 0.0
        owners = self._owners
        everywhere = tokens * owners
        hit = moe.expected_experts(everywhere)
        return self._expert_bytes * hit / owners, everywhere * moe.top_k / hit


def _over(operators: Sequence[LinearOperator], route: Route) -> float:
    """Bytes of a token over the links of that route, of the busiest device."""
    return float(sum(item.skew * item.link_bytes for item in operators if item.route is route))


def _sum(operators: Sequence[LinearOperator], scale: float = 1.0) -> _Sum:
    return _Sum(
        float(sum(item.skew * item.flops for item in operators)),
        float(sum(item.activation_bytes + item.kv_bytes for item in operators)),
        scale * float(sum(item.weight_bytes for item in operators)),
    )


@dataclass(frozen=True, slots=True)
class _CoreTerm:
    """A core operator's terms by unit; ``heads`` are heads times layers."""

    measure: int
    weights: float
    pair_flops: float
    read_flops: float
    flops: float
    pair_bytes: float
    read_bytes: float
    bytes: float
    heads: float


def _core_term(step: DecoderStep, core: CoreOperator) -> _CoreTerm:
    moved = (*core.activations, *core.cache)
    pair_flops = _each(core.flops, Unit.PAIRS)
    return _CoreTerm(
        measure=step.measures.index(core.measure),
        weights=float(core.weight_bytes),
        pair_flops=pair_flops,
        read_flops=_each(core.flops, Unit.READS),
        flops=_each(core.flops, Unit.TOKENS),
        pair_bytes=_each(moved, Unit.PAIRS),
        read_bytes=_each(moved, Unit.READS),
        bytes=_each(moved, Unit.TOKENS),
        heads=pair_flops / (4 * step.model.head_dim),
    )


def _each(terms: tuple[Term, ...], unit: Unit) -> float:
    total: Number = sum(term.each for term in terms if term.unit is unit)
    return float(total)
