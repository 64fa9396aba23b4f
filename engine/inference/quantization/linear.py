"""Layers that compute on packed weights. The model does not know that it was quantised.

Shapes: t tokens · i in_features · o out_features · v vocabulary · m model width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from engine.inference.quantization.packed import PackedTensor

# Weights that are expanded at a time: as float32 they still fit into a core's own cache.
_WEIGHTS_AT_ONCE = 2**18


class QuantizedLinear:
    """``y = x Wᵀ + b`` with a packed W, a few rows of it expanded at a time.

    This is the plain path: it runs on every device, and native kernels are compared with it. On a
    GPU the matrix is expanded whole, because there the number of calls is what costs.
    """

    def __init__(
        self, packed: PackedTensor, dtype: torch.dtype, bias_o: Tensor | None = None
    ) -> None:
        """``dtype``: of the activations, and of the weights when they are multiplied."""
        self.packed = packed
        self._dtype = dtype
        self.bias_o = bias_o
        rows, columns = packed.shape
        on_cpu = packed.levels.device.type == "cpu"
        self._rows_at_once = max(1, _WEIGHTS_AT_ONCE // columns) if on_cpu else rows

    @property
    def nbytes(self) -> int:
        return self.packed.nbytes + (0 if self.bias_o is None else self.bias_o.nbytes)

    def shares_memory_with(self, tensor: Tensor) -> bool:
        return self.packed.levels.data_ptr() == tensor.data_ptr()

    def plain(self) -> tuple[Tensor, Tensor | None]:
        return self.packed.rows(slice(None)), self.bias_o

    def __call__(self, x_ti: Tensor) -> Tensor:
        rows = self.packed.shape[0]
        y_to = x_ti.new_empty(x_ti.shape[0], rows)
        for first in range(0, rows, self._rows_at_once):
            part = slice(first, first + self._rows_at_once)
            weight = self.packed.rows(part).to(self._dtype)
            bias = None if self.bias_o is None else self.bias_o[part]
            y_to[:, part] = functional.linear(x_ti, weight, bias)
        return y_to


class QuantizedEmbedding:
    """Token vectors out of packed rows: the very rows of a tied head, so that there is one copy."""

    def __init__(self, packed: PackedTensor, dtype: torch.dtype) -> None:
        self._packed = packed
        self._dtype = dtype

    @property
    def storage(self) -> Tensor:
        return self._packed.levels

    @property
    def nbytes(self) -> int:
        return self._packed.nbytes

    def __call__(self, token_ids_t: Tensor) -> Tensor:
        """``[t]`` to ``[t, m]``."""
        return self._packed.rows(token_ids_t).to(self._dtype)
