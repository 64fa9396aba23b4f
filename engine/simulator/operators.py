"""What one step computes and moves, operator by operator; of one device of a group.

Layers of one kind are counted together: an operator of a 32-layer model stands for all 32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from engine.catalog.parts import MoeSpec
from engine.catalog.precision import Number
from engine.simulator.layout import Route
from engine.simulator.work import Measure, Work


class Role(StrEnum):
    """What an operator's arithmetic is part of; the attention core has a rate of its own."""

    PRODUCT = "products with weights"
    ATTENTION = "attention core"
    INDEXER = "scores of an indexer"


@dataclass(frozen=True, slots=True)
class Operator:
    """FLOPs and bytes of one kind of operator in one step.

    ``link_bytes`` cross the link of ``route`` between devices and are not in ``bytes``. The busiest
    device does ``skew`` times this work. The formulas are the expressions with their values, for
    people.
    """

    name: str
    flops: Number = 0
    weight_bytes: Number = 0
    activation_bytes: Number = 0
    kv_bytes: Number = 0
    link_bytes: Number = 0
    route: Route = Route.GROUP
    skew: float = 1.0
    role: Role = Role.PRODUCT
    flops_formula: str = "0"
    bytes_formula: str = "0"

    @property
    def bytes(self) -> Number:
        """Everything read from and written to the device's memory."""
        return self.weight_bytes + self.activation_bytes + self.kv_bytes

    @property
    def intensity(self) -> float:
        """FLOP/byte; 0 for an operator that moves nothing."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def is_attention(self) -> bool:
        """It computes at the rate of the attention core."""
        return self.role is Role.ATTENTION


class Rows(StrEnum):
    """How often an operator's work is done in a step: for each token, or each sampled position."""

    TOKENS = "tokens"
    SAMPLED = "sampled positions"


@dataclass(frozen=True, slots=True)
class RoutedWeights:
    """Weights of experts: a step reads those of the experts that its tokens are sent to.

    ``bytes_each`` are of one expert, in all layers that have it, on one device. ``owners`` groups
    of devices share the experts out, and each serves the tokens of all.
    """

    moe: MoeSpec
    bytes_each: Number
    owners: int = 1

    def read_by(self, tokens: int) -> int:
        """Bytes that this many tokens of each group are expected to read, to the whole byte."""
        return round(self.bytes_each * self.hit(tokens) / self.owners)

    def hit(self, tokens: int) -> float:
        """Experts of a layer that the tokens of all groups touch, of all groups together."""
        return self.moe.expected_experts(tokens * self.owners)

    @property
    def resident(self) -> Number:
        whole = self.bytes_each * self.moe.num_experts
        return whole if self.owners == 1 else whole / self.owners


@dataclass(frozen=True, slots=True)
class LinearOperator:
    """An operator whose work grows linearly with its rows, over all layers.

    ``flops``, ``activation_bytes``, ``kv_bytes`` and ``link_bytes`` are of one row;
    ``weight_bytes`` are read once a step, and of ``routed`` weights a part. The texts say how they
    come about. ``live`` numbers of a row are held at once in one layer. A ``replicated`` operator
    is done whole on each device of a group. ``route`` and ``skew`` are as for ``Operator``.
    """

    name: str
    rows: Rows = Rows.TOKENS
    flops: Number = 0
    weight_bytes: Number = 0
    activation_bytes: Number = 0
    kv_bytes: Number = 0
    link_bytes: Number = 0
    flops_text: str = ""
    bytes_text: str = ""
    routed: RoutedWeights | None = None
    live: Number = 0
    replicated: bool = False
    route: Route = Route.GROUP
    skew: float = 1.0

    @property
    def resident_bytes(self) -> Number:
        """Weights that the device keeps for it."""
        return self.weight_bytes + (self.routed.resident if self.routed else 0)

    def weights_read(self, rows: int) -> Number:
        """Bytes of weights that a step of this many rows reads; without rows it does not run."""
        if rows == 0:
            return 0
        return self.weight_bytes + (self.routed.read_by(rows) if self.routed else 0)

    def at(self, rows: int) -> Operator:
        """The operator in a step of that many rows; with none it does not run at all."""
        if rows == 0:
            return Operator(self.name)
        return Operator(
            name=self.name,
            flops=rows * self.flops,
            weight_bytes=self.weights_read(rows),
            activation_bytes=rows * self.activation_bytes,
            kv_bytes=rows * self.kv_bytes,
            link_bytes=rows * self.link_bytes,
            route=self.route,
            skew=self.skew,
            flops_formula=f"{rows:,} {self.rows} × {self.flops_text}" if self.flops else "0",
            bytes_formula=self._bytes_formula(rows),
        )

    def _bytes_formula(self, rows: int) -> str:
        each = f"{rows:,} {self.rows} × {self.bytes_text}"
        if self.routed is not None:
            moe, fixed, owners = self.routed.moe, self.weight_bytes, self.routed.owners
            hit = self.routed.hit(rows)
            experts = f"{hit:,.4g} of {moe.num_experts} experts × {self.routed.bytes_each:,.0f} B"
            experts += f" / {owners} groups" if owners > 1 else ""
            return f"{experts}{f' + {fixed:,.0f} B' if fixed else ''} of weights + {each}"
        if not self.weight_bytes:
            return each
        return f"{self.weight_bytes:,.0f} B of weights + {each}"


class Unit(StrEnum):
    """What a term of a core operator is counted by."""

    PAIRS = "query-key pairs"
    READS = "reads"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class Term:
    """``each`` FLOPs or bytes for one of a unit, over all layers; ``text`` says what they are."""

    unit: Unit
    each: Number
    text: str

    def at(self, work: Work) -> Number:
        return self.each * self._count(work)

    def formula(self, work: Work, entry: str) -> str:
        """The product with its values; ``entry`` names what is read."""
        unit = entry if self.unit is Unit.READS else self.unit
        return f"{self._count(work):,} {unit} × {self.text}"

    def _count(self, work: Work) -> int:
        if self.unit is Unit.PAIRS:
            return work.pairs
        return work.reads if self.unit is Unit.READS else work.tokens


@dataclass(frozen=True, slots=True)
class CoreOperator:
    """An operator whose work depends on what each sequence has cached: attention, states, scores.

    Its terms are over all layers that share it. Weights are read once a step in which it runs;
    with ``weights_elsewhere`` another operator keeps the same ones.
    """

    name: str
    measure: Measure
    flops: tuple[Term, ...] = ()
    activations: tuple[Term, ...] = ()
    cache: tuple[Term, ...] = ()
    weight_bytes: Number = 0
    weights_elsewhere: bool = False
    role: Role = Role.ATTENTION
    live: Number = 0
    replicated: bool = False

    @property
    def resident_bytes(self) -> Number:
        """Weights that the device keeps for it."""
        return 0 if self.weights_elsewhere else self.weight_bytes

    def at(self, work: Work) -> Operator:
        """The operator in a step of that much work; without tokens it does not run at all."""
        if work.tokens == 0:
            return Operator(self.name, role=self.role)
        entry = self.measure.entry
        moved = [term.formula(work, entry) for term in (*self.cache, *self.activations)]
        if self.weight_bytes:
            moved.insert(0, f"{self.weight_bytes:,.0f} B of weights")
        return Operator(
            name=self.name,
            flops=_total(self.flops, work),
            weight_bytes=self.weight_bytes,
            activation_bytes=_total(self.activations, work),
            kv_bytes=_total(self.cache, work),
            role=self.role,
            flops_formula=" + ".join(term.formula(work, entry) for term in self.flops) or "0",
            bytes_formula=" + ".join(moved) or "0",
        )


def _total(terms: Iterable[Term], work: Work) -> Number:
    return sum(term.at(work) for term in terms)
