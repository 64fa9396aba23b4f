"""Linear layers: one small interface, so that a quantised layer can take a plain one's place.

Shapes: t tokens · i in_features · o out_features · v vocabulary · m model width.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

# How many tokens at once the packed layout is chosen for. Measured on Zen 4: a hint of 1 makes
# eight tokens in float32 1.5x slower, and a larger one makes a single token no slower.
_PACKING_HINT = 512


class Linear(Protocol):
    """``y = x Wᵀ + b`` with ``W [o, i]``. ``nbytes`` is what the weights take in memory."""

    @property
    def nbytes(self) -> int: ...

    def shares_memory_with(self, tensor: Tensor) -> bool:
        """Whether the weights are that very tensor, and no copy of it."""
        ...

    def plain(self) -> tuple[Tensor, Tensor | None]:
        """``W [o, i]`` and b as plain tensors; a copy where they are not kept as such."""
        ...

    def __call__(self, x_ti: Tensor) -> Tensor:
        """``[t, i]`` to ``[t, o]``."""
        ...


class Embedding(Protocol):
    """The vectors of tokens. ``storage``: the tensor that holds them, to be counted once where a
    tied head reads it too; ``nbytes`` with its scales, where it has such."""

    @property
    def storage(self) -> Tensor: ...

    @property
    def nbytes(self) -> int: ...

    def __call__(self, token_ids_t: Tensor) -> Tensor:
        """``[t]`` to ``[t, m]``."""
        ...


class PlainEmbedding:
    """A table of vectors ``[v, m]``."""

    def __init__(self, weight_vm: Tensor) -> None:
        self.storage = weight_vm

    @property
    def nbytes(self) -> int:
        return self.storage.nbytes

    def __call__(self, token_ids_t: Tensor) -> Tensor:
        return functional.embedding(token_ids_t, self.storage)


class PlainLinear:
    """Weights as a plain tensor: what CUDA wants, and the slow path of the packed layer."""

    def __init__(self, weight_oi: Tensor, bias_o: Tensor | None = None) -> None:
        self._weight_oi = weight_oi
        self._bias_o = bias_o

    @property
    def nbytes(self) -> int:
        return self._weight_oi.nbytes + (0 if self._bias_o is None else self._bias_o.nbytes)

    def shares_memory_with(self, tensor: Tensor) -> bool:
        return self._weight_oi.data_ptr() == tensor.data_ptr()

    def plain(self) -> tuple[Tensor, Tensor | None]:
        return self._weight_oi, self._bias_o

    def __call__(self, x_ti: Tensor) -> Tensor:
        return functional.linear(x_ti, self._weight_oi, self._bias_o)


class PackedLinear:
    """Weights reordered once into the blocked layout of oneDNN's matrix multiplication.

    Up to twice as fast as ``functional.linear``, which reorders in every call. The plain tensor is
    not kept.
    """

    def __init__(self, weight_oi: Tensor, bias_o: Tensor | None = None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight_oi, _PACKING_HINT)
        self._bias_o = bias_o
        self._nbytes = weight_oi.nbytes + (0 if bias_o is None else bias_o.nbytes)
        self._linear = torch.ops.mkldnn._linear_pointwise.default

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def shares_memory_with(self, tensor: Tensor) -> bool:
        return False  # the packed layout is always a copy

    def plain(self) -> tuple[Tensor, Tensor | None]:
        return self._packed.to_dense(), self._bias_o

    @staticmethod
    def supports(dtype: torch.dtype, device: torch.device) -> bool:
        """Whether this build and processor run packed layers of that format."""
        if device.type != "cpu" or not torch.backends.mkldnn.is_available():
            return False
        if dtype is torch.bfloat16:
            return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        return dtype is torch.float32

    def __call__(self, x_ti: Tensor) -> Tensor:
        return self._linear(x_ti, self._packed, self._bias_o, "none", [], "")


def make_linear(weight_oi: Tensor, bias_o: Tensor | None = None) -> Linear:
    """The fastest layer for the weight's device and dtype."""
    if PackedLinear.supports(weight_oi.dtype, weight_oi.device):
        return PackedLinear(weight_oi, bias_o)
    return PlainLinear(weight_oi, bias_o)
