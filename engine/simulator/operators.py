"""What one step computes and moves, operator by operator; of one device of a group.

Layers of one kind are counted together: an operator of a 32-layer model stands for all 32.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.catalog.precision import Number


@dataclass(frozen=True, slots=True)
class Operator:
    """FLOPs and bytes of one kind of operator in one step.

    ``link_bytes`` cross the link between devices and are not in ``bytes``. The formulas are the
    expressions with their values, for people.
    """

    name: str
    flops: Number = 0
    weight_bytes: Number = 0
    activation_bytes: Number = 0
    kv_bytes: Number = 0
    link_bytes: Number = 0
    is_attention: bool = False
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


class Rows(StrEnum):
    """How often an operator's work is done in a step: for each token, or each sampled position."""

    TOKENS = "tokens"
    SAMPLED = "sampled positions"


@dataclass(frozen=True, slots=True)
class LinearOperator:
    """An operator whose work grows linearly with its rows, over all layers.

    ``flops``, ``activation_bytes``, ``kv_bytes`` and ``link_bytes`` are of one row;
    ``weight_bytes`` are read once a step. The texts say how they come about.
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

    def at(self, rows: int) -> Operator:
        """The operator in a step of that many rows; with none it does not run at all."""
        if rows == 0:
            return Operator(self.name)
        return Operator(
            name=self.name,
            flops=rows * self.flops,
            weight_bytes=self.weight_bytes,
            activation_bytes=rows * self.activation_bytes,
            kv_bytes=rows * self.kv_bytes,
            link_bytes=rows * self.link_bytes,
            flops_formula=f"{rows:,} {self.rows} × {self.flops_text}" if self.flops else "0",
            bytes_formula=self._bytes_formula(rows),
        )

    def _bytes_formula(self, rows: int) -> str:
        each = f"{rows:,} {self.rows} × {self.bytes_text}"
        if not self.weight_bytes:
            return each
        return f"{self.weight_bytes:,.0f} B of weights + {each}"


@dataclass(frozen=True, slots=True)
class AttentionOperator:
    """The attention core of the layers that share a window: scores, softmax, weighted values.

    ``flops_per_pair`` and ``kv_bytes_per_position`` are over all these layers, as are
    ``activation_bytes`` for each token: queries read and outputs written.
    """

    name: str
    window: int | None
    flops_per_pair: Number
    kv_bytes_per_position: Number
    activation_bytes: Number
    flops_text: str = ""
    bytes_text: str = ""

    def at(self, tokens: int, pairs: int, positions: int) -> Operator:
        return Operator(
            name=self.name,
            flops=pairs * self.flops_per_pair,
            activation_bytes=tokens * self.activation_bytes,
            kv_bytes=positions * self.kv_bytes_per_position,
            is_attention=True,
            flops_formula=f"{pairs:,} query-key pairs × {self.flops_text}",
            bytes_formula=f"{positions:,} cached positions × {self.bytes_text} + "
            f"{tokens:,} tokens × {self.activation_bytes:,.0f} B of queries and outputs",
        )
