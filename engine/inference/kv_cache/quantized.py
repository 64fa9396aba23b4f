"""Keys and values in 8 or 4 bits, with one float16 scale per position and head.

Memory: two planes a layer. The levels are ``[p, h, s, w]`` in bytes, with w = d for INT8 and d / 2
for INT4; the scales ``[p, h, s]`` in float16. A number is its level times the scale of its slot.

- INT8: a slot of a head is d signed bytes in order, -127 to 127.
- INT4: byte i holds two signed levels, -8 to 7 in two's complement: number i in its low half and
  number i + d / 2 in its high half. Scales may be negative: the number furthest from 0 is always
  level -8, so that no level is wasted. Keys and values are kept in another basis, below.

Scales are symmetric because it was measured: SmolLM2-135M in float32, mean Kullback–Leibler
divergence to the unquantised cache over 2,048 positions of held-out text:

    INT8 symmetric                              66 bytes a head of 64    0.0008
    INT4 symmetric, signed scale                34                       0.219
    INT4 with an offset (minimum to maximum)    36                       0.117
    INT4 symmetric, signed scale, rotated       34                       0.053
    INT4 with an offset, rotated                36                       0.049

In the keys of half the heads of that model, some dimension is 8 times as large as the median one
or more, and leaves it no levels. Rotated by a Hadamard matrix, each dimension is a sum of all and
none stands out (QuaRot, Ashkboos et al. 2024, arXiv 2404.00456). The scores of rotated queries and
keys are those of unrotated ones, and mixed values are rotated back once a token. INT8 needs none
of it.

Reading does not multiply by the scales. Where a token attends to many positions, a key's scale
multiplies its score and a value's scale its weight, one product instead of d; only for chunks and
short texts are the numbers themselves made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.inference.kv_cache.store import Store, StoreShape
from engine.inference.kv_cache.vocabulary import CachedKV, NativeView

_SMALLEST_SCALE = 2.0**-24
"""The smallest float16 above 0: a slot of zeros has levels 0, not 0 / 0."""

_HALF_STEP = 1 + 2.0**-11
"""Rounding to float16 takes off at most this factor."""


class QuantizedStore(Store):
    """What INT8 and INT4 share. The error of a number is at most half the scale of its slot;
    at the end of the range that has one level less, in INT4, at most the whole scale."""

    format: str

    def __init__(
        self, shape: StoreShape, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """``width``: bytes of a slot. ``dtype``: what levels are read as; it holds them exactly."""
        super().__init__(shape, [(width, torch.int8), (1, torch.float16)], device)
        self._opened = torch.empty(0, dtype=dtype, device=device)

    @abstractmethod
    def _quantize(self, x_tphd: Tensor) -> tuple[Tensor, Tensor]:
        """Float32 numbers as packed levels ``[t, p, h, w]`` and scales ``[t, p, h, 1]``."""

    @abstractmethod
    def _unpack(self, levels: Tensor, out: Tensor) -> None:
        """Packed levels ``[..., w]`` as numbers ``[..., d]``."""

    def write(self, layer: int, kv_tphd: Tensor, slots: slice | Tensor) -> None:
        """Store the keys and values of t tokens at their slots."""
        for plane, new_tphw in zip(
            self.planes[layer], self._quantize(kv_tphd.float()), strict=True
        ):
            self._store(plane, new_tphw.permute(1, 2, 0, 3), slots)

    def _open(self, planes: Sequence[Tensor]) -> CachedKV:
        levels, scales = planes
        shape = (*levels.shape[:3], self.shape.head_dim)
        needed = shape[0] * shape[1] * shape[2] * shape[3]
        if needed > self._opened.numel():
            self._opened = self._opened.new_empty(needed)
        numbers = self._opened[:needed].view(shape)
        self._unpack(levels, numbers)
        keys, values = numbers.unbind(0)
        key_scales, value_scales = scales.squeeze(3).float().unbind(0)
        return CachedKV(keys, values, key_scales, value_scales)

    def native_view(self) -> NativeView:
        """The memory itself, for native code."""
        levels = self.planes[0][0]
        kind, head, slot, _ = levels.stride()
        return NativeView(
            format=self.format,
            num_slots=self.shape.num_slots,
            data=tuple(layer[0].data_ptr() for layer in self.planes),
            kind_stride=kind,
            head_stride=head,
            slot_stride=slot,
            scales=tuple(layer[1].data_ptr() for layer in self.planes),
        )


class Int8Store(QuantizedStore):
    """One byte a number."""

    format = "int8"

    def __init__(self, shape: StoreShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(shape, shape.head_dim, dtype, device)

    def _quantize(self, x_tphd: Tensor) -> tuple[Tensor, Tensor]:
        largest = x_tphd.abs().amax(-1, keepdim=True)
        # Rounded up, so that the largest number is not beyond the last level.
        scales = (largest * (_HALF_STEP / 127)).half().clamp_min_(_SMALLEST_SCALE)
        levels = (x_tphd / scales.float()).round_().clamp_(-127, 127)
        return levels.to(torch.int8), scales

    def _unpack(self, levels: Tensor, out: Tensor) -> None:
        out.copy_(levels)


class Int4Store(QuantizedStore):
    """Half a byte a number, in a basis in which no dimension stands out."""

    format = "int4"

    def __init__(self, shape: StoreShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(shape, shape.head_dim // 2, dtype, device)
        hadamard = hadamard_matrix(shape.head_dim)
        self.basis = hadamard.to(dtype=dtype, device=device)
        self._rotation = hadamard.to(device)

    def _quantize(self, x_tphd: Tensor) -> tuple[Tensor, Tensor]:
        x_tphd = x_tphd @ self._rotation
        lowest, highest = x_tphd.aminmax(dim=-1, keepdim=True)
        furthest = torch.where(highest > -lowest, highest, lowest)
        scales = (furthest / -8).half()
        scales.masked_fill_(scales == 0, _SMALLEST_SCALE)
        levels = (x_tphd / scales.float()).round_().clamp_(-8, 7).to(torch.int8)
        low, high = levels.chunk(2, dim=-1)
        return (low & 15) | (high << 4), scales

    def _unpack(self, levels: Tensor, out: Tensor) -> None:
        half = self.shape.head_dim // 2
        # Shifts of signed bytes carry the sign along.
        torch.bitwise_right_shift(levels, 4, out=out[..., half:])
        torch.bitwise_right_shift(levels << 4, 4, out=out[..., :half])


def hadamard_matrix(size: int) -> Tensor:
    """An orthogonal and symmetric ``[size, size]`` in float32 that mixes as many dimensions as it
    can: blocks of a Hadamard matrix (Sylvester 1867), as large as the power of 2 in ``size``."""
    block = torch.ones(1, 1)
    while size % (2 * block.shape[0]) == 0:
        block = torch.cat([torch.cat([block, block], 1), torch.cat([block, -block], 1)])
    side = block.shape[0]
    return torch.block_diag(*[block / side**0.5] * (size // side))
