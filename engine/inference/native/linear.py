"""Layers whose weights are there only as native steps read them.

Native steps take the packed matrices from here and never call these layers. Called all the same, as
in torch's own forward pass, they expand some rows at a time: right, and slow.

Shapes: t tokens · i in_features · o out_features · m model width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from engine.inference.native.matrix import NativeMatrix

# Weights that are expanded at a time.
_WEIGHTS_AT_ONCE = 2**20


class NativeLinear:
    """``y = x Wᵀ + b`` with W in the layout of the native kernels."""

    def __init__(
        self, matrix: NativeMatrix, dtype: torch.dtype, bias_o: Tensor | None = None
    ) -> None:
        """``dtype``: of the activations. ``bias_o``: the one that was packed with the matrix."""
        self.matrix = matrix
        self._dtype = dtype
        self._bias_o = bias_o

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes

    def shares_memory_with(self, tensor: Tensor) -> bool:
        return self.matrix.storage.data_ptr() == tensor.data_ptr()

    def plain(self) -> tuple[Tensor, Tensor | None]:
        return self.matrix.rows(torch.arange(self.matrix.outputs)).to(self._dtype), self._bias_o

    def __call__(self, x_ti: Tensor) -> Tensor:
        outputs, inputs = self.matrix.outputs, self.matrix.inputs
        y_to = x_ti.new_empty(x_ti.shape[0], outputs)
        at_once = max(1, _WEIGHTS_AT_ONCE // inputs)
        for first in range(0, outputs, at_once):
            rows = torch.arange(first, min(first + at_once, outputs))
            bias = None if self._bias_o is None else self._bias_o[rows]
            weight = self.matrix.rows(rows).to(self._dtype)
            y_to[:, first : first + at_once] = functional.linear(x_ti, weight, bias)
        return y_to


class NativeEmbedding:
    """Token vectors out of the rows of a tied head, so that there is one copy of them."""

    def __init__(self, matrix: NativeMatrix, dtype: torch.dtype) -> None:
        self._matrix = matrix
        self._dtype = dtype

    @property
    def storage(self) -> Tensor:
        return self._matrix.storage

    @property
    def nbytes(self) -> int:
        return self._matrix.nbytes

    def __call__(self, token_ids_t: Tensor) -> Tensor:
        """``[t]`` to ``[t, m]``."""
        return self._matrix.rows(token_ids_t).to(self._dtype)
