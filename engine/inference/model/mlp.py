"""What stands between the matrices of an MLP.

Shapes: t tokens · i width of the MLP. Gated kinds read gate and up side by side, ``[t, 2 i]``, the
other reads ``[t, i]``; all give ``[t, i]``.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from engine.catalog.parts import Mlp

Activation = Callable[[Tensor], Tensor]


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) · up (Shazeer 2020, arXiv 2002.05202)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)


def geglu(gate_up: Tensor) -> Tensor:
    """gelu(gate) · up, with the tanh form of GELU (Shazeer 2020, arXiv 2002.05202)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.gelu(gate, approximate="tanh").mul_(up)


def gelu(up: Tensor) -> Tensor:
    """The tanh form of GELU (Hendrycks and Gimpel 2016, arXiv 1606.08415)."""
    return functional.gelu(up, approximate="tanh")


ACTIVATIONS: dict[Mlp, Activation] = {Mlp.SWIGLU: swiglu, Mlp.GEGLU: geglu, Mlp.GELU2: gelu}
"""For every kind of MLP that ``ModelConfig`` accepts."""
