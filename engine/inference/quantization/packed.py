"""A quantised matrix as it lies in memory: two 4-bit levels in a byte, scales in float16.

Shapes: o out_features · i in_features · q groups of a row · n rows that are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.inference.quantization.tensor import QuantizedTensor


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """What a ``QuantizedTensor`` says, in as many bytes as that takes.

    ``levels``: int8 ``[o, i]`` for 8 bits; for 4 bits uint8 ``[o, i / 2]`` whose low half-bytes
    are the first half of a row and whose high ones are the second, so that both come out as
    straight runs. ``scales_oq`` and ``offsets_oq``: float16.
    """

    bits: int
    group_size: int
    levels: Tensor
    scales_oq: Tensor
    offsets_oq: Tensor | None

    @property
    def shape(self) -> tuple[int, int]:
        """``(out_features, in_features)``."""
        rows, columns = self.levels.shape
        return rows, columns * 8 // self.bits

    @property
    def nbytes(self) -> int:
        """Bytes that levels, scales and offsets take."""
        offsets = 0 if self.offsets_oq is None else self.offsets_oq.nbytes
        return self.levels.nbytes + self.scales_oq.nbytes + offsets

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of a weight, its share of scales and offsets included."""
        rows, columns = self.shape
        return 8 * self.nbytes / (rows * columns)

    def to(self, device: torch.device) -> PackedTensor:
        """The same on another device."""
        offsets = None if self.offsets_oq is None else self.offsets_oq.to(device)
        return PackedTensor(
            self.bits,
            self.group_size,
            self.levels.to(device),
            self.scales_oq.to(device),
            offsets,
        )

    def rows(self, which: slice | Tensor) -> Tensor:
        """Dequantised rows ``[n, i]`` in float32, of a slice or of int64 indices ``[n]``."""
        levels_ni = _unpack(self.bits, self.levels[which])
        scales = self.scales_oq[which].float().unsqueeze(-1)
        weight = levels_ni.float().view(len(levels_ni), -1, self.group_size).mul_(scales)
        if self.offsets_oq is not None:
            weight += self.offsets_oq[which].float().unsqueeze(-1)
        elif self.bits == 4:
            weight -= 8 * scales
        return weight.view(levels_ni.shape)

    def unpack(self) -> QuantizedTensor:
        """The matrix that was packed."""
        return QuantizedTensor(
            bits=self.bits,
            group_size=self.group_size,
            levels_oi=_unpack(self.bits, self.levels).to(torch.int8),
            scales_oq=self.scales_oq.float(),
            offsets_oq=None if self.offsets_oq is None else self.offsets_oq.float(),
        )


def pack(tensor: QuantizedTensor) -> PackedTensor:
    """Store a matrix in its real size.

    Raises:
        ValueError: 4-bit rows of an odd length, which do not fill whole bytes.
    """
    levels = tensor.levels_oi
    if tensor.bits == 4:
        if levels.shape[1] % 2:
            raise ValueError("a row of 4-bit weights needs an even length")
        low, high = levels.view(torch.uint8).chunk(2, dim=1)
        levels = low | (high << 4)
    return PackedTensor(
        bits=tensor.bits,
        group_size=tensor.group_size,
        levels=levels.contiguous(),
        scales_oq=tensor.scales_oq.half(),
        offsets_oq=None if tensor.offsets_oq is None else tensor.offsets_oq.half(),
    )


def packed_bytes(tensor: QuantizedTensor) -> int:
    """``pack(tensor).nbytes``, without packing."""
    rows, columns = tensor.shape
    scales = tensor.scales_oq.numel()
    if tensor.offsets_oq is not None:
        scales += tensor.offsets_oq.numel()
    return rows * columns * tensor.bits // 8 + scales * torch.float16.itemsize


def join_rows(tensors: Sequence[QuantizedTensor]) -> QuantizedTensor:
    """Matrices with the same inputs, one below the other.

    Raises:
        ValueError: they differ in bits or groups, or only some have offsets.
    """
    first, *rest = tensors
    for other in rest:
        if (other.bits, other.group_size) != (first.bits, first.group_size) or (
            (other.offsets_oq is None) != (first.offsets_oq is None)
        ):
            raise ValueError("matrices of different formats cannot be one")
    offsets = [tensor.offsets_oq for tensor in tensors if tensor.offsets_oq is not None]
    return QuantizedTensor(
        bits=first.bits,
        group_size=first.group_size,
        levels_oi=torch.cat([tensor.levels_oi for tensor in tensors]),
        scales_oq=torch.cat([tensor.scales_oq for tensor in tensors]),
        offsets_oq=torch.cat(offsets) if offsets else None,
    )


def select_rows(tensor: QuantizedTensor, order: Tensor) -> QuantizedTensor:
    """The rows of a matrix in another order."""
    return QuantizedTensor(
        bits=tensor.bits,
        group_size=tensor.group_size,
        levels_oi=tensor.levels_oi[order],
        scales_oq=tensor.scales_oq[order],
        offsets_oq=None if tensor.offsets_oq is None else tensor.offsets_oq[order],
    )


def _unpack(bits: int, levels: Tensor) -> Tensor:
    return levels if bits == 8 else torch.cat((levels & 15, levels >> 4), dim=-1)
