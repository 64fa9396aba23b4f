"""Norms over the last dimension, computed in float32 from a float32 residual stream.

RMSNorm: y = x / sqrt(mean(x²) + eps) · weight (Zhang and Sennrich 2019, arXiv 1910.07467).
LayerNorm: y = (x - mean(x)) / sqrt(var(x) + eps) · weight + bias (Ba et al. 2016, arXiv
1607.06450).

Shapes: t tokens · d width.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Norm(Protocol):
    """From a float32 ``x [t, d]`` to the dtype of what follows."""

    @property
    def nbytes(self) -> int: ...

    def __call__(self, x_td: Tensor) -> Tensor: ...


class RMSNorm:
    """RMSNorm of ``[t, d]``, or of every head of ``[t, h, d]`` with weights of its own."""

    def __init__(self, weight_d: Tensor, eps: float, dtype: torch.dtype) -> None:
        """``weight_d`` float32 ``[d]`` or ``[h, d]``, on the device where the norm shall run."""
        width = weight_d.shape[-1]
        self._dtype = dtype
        self._eps = eps
        self.weight_d = weight_d
        self._fused = weight_d.device.type == "cuda" and weight_d.ndim == 1
        self._weight_d = weight_d if self._fused else weight_d * math.sqrt(width)
        self._norm_of_eps = torch.tensor(math.sqrt(width * eps))

    @property
    def nbytes(self) -> int:
        return self.weight_d.nbytes

    def __call__(self, x_td: Tensor) -> Tensor:
        if self._fused:
            y_td = functional.rms_norm(x_td, self._weight_d.shape, self._weight_d, self._eps)
            return y_td.to(self._dtype)
        # functional.rms_norm falls apart into many operations on a CPU. The same in four:
        # sqrt(mean(x²) + eps) = hypot(‖x‖, sqrt(d · eps)) / sqrt(d), the last root in the weight.
        root_t1 = torch.linalg.vector_norm(x_td, dim=-1, keepdim=True)
        root_t1.hypot_(self._norm_of_eps)
        return (x_td / root_t1).mul_(self._weight_d).to(self._dtype)


class LayerNorm:
    """LayerNorm of ``[t, d]``."""

    def __init__(self, weight_d: Tensor, bias_d: Tensor, eps: float, dtype: torch.dtype) -> None:
        """Weight and bias float32, on the device where the norm shall run."""
        self._weight_d = weight_d
        self._bias_d = bias_d
        self._eps = eps
        self._dtype = dtype

    @property
    def nbytes(self) -> int:
        return self._weight_d.nbytes + self._bias_d.nbytes

    def __call__(self, x_td: Tensor) -> Tensor:
        shape = self._weight_d.shape
        y_td = functional.layer_norm(x_td, shape, self._weight_d, self._bias_d, self._eps)
        return y_td.to(self._dtype)
