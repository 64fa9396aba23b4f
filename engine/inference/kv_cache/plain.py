"""Keys and values kept as they were computed.

Memory: one plane a layer, ``[p, h, s, d]``, in float32 or bfloat16. A slot of a head is d numbers
in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.inference.kv_cache.store import Store, StoreShape
from engine.inference.kv_cache.vocabulary import CachedKV, NativeView


class PlainStore(Store):
    """What is read is what was written, and a run of slots is read without a copy."""

    def __init__(self, shape: StoreShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(shape, [(shape.head_dim, dtype)], device)

    def write(self, layer: int, kv_tphd: Tensor, slots: slice | Tensor) -> None:
        """Store the keys and values of t tokens at their slots."""
        self._store(self.planes[layer][0], kv_tphd.permute(1, 2, 0, 3), slots)

    def _open(self, planes: Sequence[Tensor]) -> CachedKV:
        keys, values = planes[0].unbind(0)
        return CachedKV(keys, values)

    def native_view(self) -> NativeView:
        """The memory itself, for native code."""
        plane = self.planes[0][0]
        kind, head, slot, _ = (step * plane.itemsize for step in plane.stride())
        return NativeView(
            format=str(plane.dtype).removeprefix("torch."),
            num_slots=self.shape.num_slots,
            data=tuple(layer[0].data_ptr() for layer in self.planes),
            kind_stride=kind,
            head_stride=head,
            slot_stride=slot,
        )
