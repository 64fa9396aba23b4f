"""Builds operators of a model in its formats, on one device of a group.

Legend: d hidden size, m tokens of the step. A product of m x K with K x N takes 2mKN FLOPs and
moves KN weights and m(K+N) activations. Norms, rotations, activation functions and sums move
bytes and are given no FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.catalog.models import ModelSpec
from engine.catalog.precision import Number, whole
from engine.simulator.formats import StorageFormats
from engine.simulator.layout import Layout, Route
from engine.simulator.operators import (
    CoreOperator,
    LinearOperator,
    RoutedWeights,
    Rows,
    Term,
    Unit,
)
from engine.simulator.parallelism import TensorParallel

Operators = tuple[LinearOperator | CoreOperator, ...]


@dataclass(frozen=True, slots=True)
class OperatorFactory:
    """What all operators of a step share, and how each sort of them is counted."""

    model: ModelSpec
    formats: StorageFormats
    layout: Layout

    @property
    def group(self) -> TensorParallel:
        """The devices that share every matrix."""
        return self.layout.group

    @property
    def width(self) -> int:
        """d."""
        return self.model.hidden_size

    @property
    def norm_parameters(self) -> int:
        return self.width * self.model.extras.norm.vectors

    def act(self, elements: Number) -> Number:
        """Bytes of activations."""
        return self.formats.stored_activations.bytes_for(elements)

    def weights(self, parameters: Number) -> Number:
        """Bytes of weights."""
        return self.formats.weights.bytes_for(parameters)

    def share(self, count: int) -> Number:
        """This device's part."""
        return self.group.share(count)

    def matmul(
        self,
        name: str,
        inputs: Number,
        outputs: Number,
        layers: int,
        *,
        bias: Number = 0,
        rows: Rows = Rows.TOKENS,
        replicated: bool = False,
    ) -> LinearOperator:
        """A product with weights [outputs, inputs] and ``bias`` more parameters in every layer."""
        size = self.formats.stored_activations.bits / 8
        times = f" × {layers} layers"
        return LinearOperator(
            name,
            rows,
            flops=2 * inputs * outputs * layers,
            weight_bytes=self.weights((inputs * outputs + bias) * layers),
            activation_bytes=self.act((inputs + outputs) * layers),
            flops_text=f"2 × {inputs:,} × {outputs:,}{times}",
            bytes_text=f"({inputs:,} + {outputs:,}) × {size:g} B{times}",
            live=inputs + outputs,
            replicated=replicated,
        )

    def grouped_matmul(
        self, name: str, inputs: Number, outputs: Number, layers: int, *, groups: Number
    ) -> LinearOperator:
        """``groups`` products side by side, each of its own inputs with its own weights."""
        size = self.formats.stored_activations.bits / 8
        times = f" × {groups:,} groups × {layers} layers"
        return LinearOperator(
            name,
            flops=2 * inputs * outputs * groups * layers,
            weight_bytes=self.weights(inputs * outputs * groups * layers),
            activation_bytes=self.act((inputs + outputs) * groups * layers),
            flops_text=f"2 × {inputs:,} × {outputs:,}{times}",
            bytes_text=f"({inputs:,} + {outputs:,}) × {size:g} B{times}",
            live=(inputs + outputs) * groups,
        )

    def routed_matmul(
        self,
        name: str,
        inputs: Number,
        outputs: Number,
        layers: int,
        *,
        bias: Number = 0,
        live: Number,
    ) -> LinearOperator:
        """A product of each token with the weights of the k experts that it is sent to."""
        moe = self.model.moe
        if moe is None:
            raise AssertionError("only models with experts have routed products")
        size = self.formats.stored_activations.bits / 8
        times = f" × {moe.top_k} experts × {layers} layers"
        return LinearOperator(
            name,
            flops=2 * inputs * outputs * moe.top_k * layers,
            activation_bytes=self.act((inputs + outputs) * moe.top_k * layers),
            flops_text=f"2 × {inputs:,} × {outputs:,}{times}",
            bytes_text=f"({inputs:,} + {outputs:,}) × {size:g} B{times}",
            routed=RoutedWeights(
                moe, self.weights((inputs * outputs + bias) * layers), self.layout.owners
            ),
            live=live,
            skew=self.layout.skew,
        )

    def elementwise(
        self,
        name: str,
        elements: Number,
        layers: int,
        *,
        parameters: Number = 0,
        rows: Rows = Rows.TOKENS,
        live: Number = 0,
    ) -> LinearOperator:
        """An operator that moves ``elements`` a row and layer, and does next to no arithmetic."""
        size = self.formats.stored_activations.bits / 8
        return LinearOperator(
            name,
            rows,
            weight_bytes=self.weights(parameters * layers),
            activation_bytes=self.act(elements * layers),
            bytes_text=f"{elements:,} × {size:g} B" + (f" × {layers} layers" * (layers > 1)),
            live=live,
        )

    def norm(
        self, name: str, size: Number, layers: int, *, rows: Rows = Rows.TOKENS
    ) -> LinearOperator:
        """A norm over ``size`` numbers with a weight each: reads and writes them."""
        return self.elementwise(name, 2 * size, layers, parameters=size, rows=rows)

    def cache_write(self, elements: Number, kv_bytes: Number, layers: int) -> LinearOperator:
        """A token's new entries: ``elements`` read and ``kv_bytes`` written in each layer."""
        read, written = self.act(elements * layers), whole(kv_bytes * layers)
        return LinearOperator(
            "kv cache write",
            activation_bytes=read,
            kv_bytes=written,
            bytes_text=f"({read:,} B read + {written:,} B written)",
        )

    def all_reduce(self, name: str, layers: int) -> tuple[LinearOperator, ...]:
        """The devices add up their parts of the hidden state; one device has nothing to add."""
        if self.group.devices == 1:
            return ()
        moved = self.act(self.width * layers)
        return (LinearOperator(name, link_bytes=moved * self.group.all_reduce_factor),)

    def exchange(self, layers: int) -> tuple[LinearOperator, ...]:
        """A token goes to the groups that keep its experts, and the results come back.

        Of its k experts min(k, D) lie in different groups at most, all but one in D of them
        elsewhere.
        """
        moe, owners = self.model.moe, self.layout.owners
        if moe is None or owners == 1:
            return ()
        copies = min(moe.top_k, owners) * (1 - 1 / owners)
        return (
            LinearOperator(
                "expert exchange",
                link_bytes=2 * copies * self.act(self.width) * layers,
                route=Route.EXCHANGE,
                skew=self.layout.skew,
            ),
        )

    def stage_transfers(self) -> tuple[LinearOperator, ...]:
        """Each stage hands the residual stream to the next; a device sends its part of it."""
        stages = self.layout.stages
        if stages == 1:
            return ()
        streams = max(self.model.extras.hc_mult, 1)
        moved = self.act(self.share(self.width * streams)) * (stages - 1)
        return (LinearOperator("stage transfers", link_bytes=moved, route=Route.STAGE),)

    def queries_and_outputs(self, elements: Number, layers: int) -> Term:
        """What a core reads and writes for each token."""
        each = self.act(elements * layers)
        return Term(Unit.TOKENS, each, f"{each:,.0f} B of queries and outputs")
