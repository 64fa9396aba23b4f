"""RMSNorm: y = x / sqrt(mean(x²) + eps) · weight (Zhang and Sennrich 2019, arXiv 1910.07467)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


class RMSNorm:
    """From a float32 ``x [t, d]`` to the dtype of what follows, computed in float32."""

    def __init__(self, weight_d: Tensor, eps: float, dtype: torch.dtype) -> None:
        """``weight_d`` float32 on the device where the norm shall run."""
        width = weight_d.shape[-1]
        self._dtype = dtype
        self._eps = eps
        self.weight_d = weight_d
        self._fused = weight_d.device.type == "cuda"
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
