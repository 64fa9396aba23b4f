"""Taps on the reference model: one that keeps what passes, and those that take a part out."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from engine.inference.model.config import ModelConfig
from engine.inference.model.reference import Tap
from engine.inference.probes.ablations import Ablation, AblationKind

# So near to 1 a capped score can come in float32.
_NEAREST = 1e-7


def chain(*taps: Tap) -> Tap:
    """One tap after the other, each on what the one before it gave back."""

    def tap(point: str, layer: int, tensor: Tensor) -> Tensor:
        for each in taps:
            tensor = each(point, layer, tensor)
        return tensor

    return tap


class Recorder:
    """Keeps the tensors at some points, of the last layer that passed."""

    def __init__(self, points: Iterable[str]) -> None:
        self.seen: dict[str, Tensor] = {}
        self._points = frozenset(points)

    def __call__(self, point: str, layer: int, tensor: Tensor) -> Tensor:
        if point in self._points:
            self.seen[point] = tensor
        return tensor


def ablation_tap(ablations: Iterable[Ablation], config: ModelConfig) -> Tap:
    """All of them together; no ablation changes nothing."""
    return chain(*(_make(ablation, config) for ablation in ablations))


def _make(ablation: Ablation, config: ModelConfig) -> Tap:
    if ablation.kind is AblationKind.HEAD:
        return _Silenced(ablation.layer, ("mixed",), ablation.head)
    if ablation.kind is AblationKind.LAYER:
        return _Silenced(ablation.layer, ("attn_out", "mlp_out"))
    if ablation.kind is AblationKind.ROTATION:
        return _Undone({"q_rotated": "q", "k_rotated": "k"})
    if ablation.kind is AblationKind.MASK:
        return _Undone({"masked": "scores"})
    return _Scaled(config.hidden_size**-0.5 / config.attention_scale, config.attention_softcap)


class _Silenced:
    """Zeros at some points of one layer: of one head ``[H, t, d]``, or of all."""

    def __init__(self, layer: int | None, points: tuple[str, ...], head: int | None = None) -> None:
        self._layer, self._points, self._head = layer, points, head

    def __call__(self, point: str, layer: int, tensor: Tensor) -> Tensor:
        if layer != self._layer or point not in self._points:
            return tensor
        if self._head is None:
            return torch.zeros_like(tensor)
        tensor = tensor.clone()
        tensor[self._head] = 0
        return tensor


class _Undone:
    """At some points, what was there at an earlier one of the same layer."""

    def __init__(self, earlier: dict[str, str]) -> None:
        self._earlier = earlier
        self._before = Recorder(earlier.values())

    def __call__(self, point: str, layer: int, tensor: Tensor) -> Tensor:
        self._before(point, layer, tensor)
        earlier = self._earlier.get(point)
        return tensor if earlier is None else self._before.seen.pop(earlier)


class _Scaled:
    """Scores times a factor, before their soft cap and the mask."""

    def __init__(self, factor: float, softcap: float | None) -> None:
        self._factor, self._softcap = factor, softcap

    def __call__(self, point: str, layer: int, tensor: Tensor) -> Tensor:
        if point != "scores":
            return tensor
        if self._softcap is None:
            return tensor * self._factor
        # Scores come capped: c · tanh(x / c). In float64, which loses less of the large ones.
        capped = (tensor.double() / self._softcap).clamp(-1 + _NEAREST, 1 - _NEAREST)
        return (self._softcap * torch.tanh(torch.atanh(capped) * self._factor)).float()
