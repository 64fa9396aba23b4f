"""The memory of a KV cache: how numbers are kept, apart from whose they are.

A store has a few planes a layer, each ``[p, h, s, w]``: p 2 (keys, values) · h KV heads · s slots ·
w numbers of a slot in this plane. The slots of one head are consecutive, so a run of slots is read
as a view, and a head is one matrix for the attention.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.inference.kv_cache.vocabulary import KEYS_AND_VALUES, CachedKV, NativeView


@dataclass(frozen=True, slots=True)
class StoreShape:
    """``page_size``: slots that are gathered together; it divides ``num_slots``.

    Raises:
        ValueError: there are no slots, or not whole pages of them.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    num_slots: int
    page_size: int

    def __post_init__(self) -> None:
        if self.num_slots < 1:
            raise ValueError("a KV cache needs at least one block")
        if self.num_slots % self.page_size:
            raise ValueError("the slots of a KV cache must be whole pages")


class Store(ABC):
    """All memory is taken once, in ``planes``: those of one layer for every layer.

    ``basis``: the orthogonal and symmetric ``[d, d]``
    by which keys and values are turned, so that queries have to be turned too, and mixed values
    back; None for none.
    """

    basis: Tensor | None = None

    def __init__(
        self, shape: StoreShape, planes: Sequence[tuple[int, torch.dtype]], device: torch.device
    ) -> None:
        """``planes``: the width and the dtype of each."""
        self.shape = shape
        self.device = device
        stacked = [
            _zeros(
                (shape.num_layers, KEYS_AND_VALUES, shape.num_kv_heads, shape.num_slots, width),
                dtype,
                device,
            )
            for width, dtype in planes
        ]
        self.planes = list(zip(*[plane.unbind(0) for plane in stacked], strict=True))
        # The same memory with a row for every page of every head, for gathering.
        self._rows = [
            [plane.view(-1, shape.page_size * plane.shape[3]) for plane in layer]
            for layer in self.planes
        ]
        self._gathered = [plane.new_empty(0) for plane in self.planes[0]]

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return sum(plane.nbytes for layer in self.planes for plane in layer)

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of one position in all layers, keys and values."""
        return self.nbytes // self.shape.num_slots

    @abstractmethod
    def write(self, layer: int, kv_tphd: Tensor, slots: slice | Tensor) -> None:
        """Store the keys and values of t tokens at their slots."""

    @abstractmethod
    def _open(self, planes: Sequence[Tensor]) -> CachedKV:
        """Turn parts of the planes of a layer, ``[p, n, s, w]`` each, into what attention reads."""

    @abstractmethod
    def native_view(self) -> NativeView:
        """The memory itself, for native code."""

    def read_run(self, layer: int, first_slot: int, length: int) -> CachedKV:
        """Consecutive slots, ``[h, length, d]``."""
        return self._open([plane.narrow(2, first_slot, length) for plane in self.planes[layer]])

    def gather(self, layer: int, rows: Tensor, num_matrices: int, length: int) -> CachedKV:
        """Pages in any order, ``[num_matrices, length, d]``.

        ``rows``: p · num_matrices runs of equally many pages. ``length``: how many slots of each
        run count. The result lies in memory that the next call uses again.
        """
        parts: list[Tensor] = []
        for index, plane in enumerate(self._rows[layer]):
            # One buffer for all layers stays in the processor's cache.
            needed = rows.numel() * plane.shape[1]
            if needed > self._gathered[index].numel():
                self._gathered[index] = plane.new_empty(needed)
            out = self._gathered[index][:needed].view(-1, plane.shape[1])
            torch.index_select(plane, 0, rows, out=out)
            width = plane.shape[1] // self.shape.page_size
            parts.append(out.view(KEYS_AND_VALUES, num_matrices, -1, width)[:, :, :length])
        return self._open(parts)

    def _store(self, plane_phsw: Tensor, new_phtw: Tensor, slots: slice | Tensor) -> None:
        if isinstance(slots, slice):
            plane_phsw[:, :, slots].copy_(new_phtw)
        else:
            plane_phsw.index_copy_(2, slots, new_phtw)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy leaves fresh pages to the system, which zeroes each when it is first written: a large
    # cache costs neither time nor memory before it is used.
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)
