"""What every KV cache can be asked, whatever its variant.

Shapes: p 2 (keys, values) · h KV heads · s positions that are read · d head_dim · t tokens of a
step · b sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.inference.kv_cache.capabilities import CacheCapabilities

KEYS_AND_VALUES = 2


class CachedKV(NamedTuple):
    """Keys and values as they were read: ``[h, s, d]``, or ``[h * b, s, d]`` for a batch.

    With scales (``[h, s]`` or ``[h * b, s]``), a key is ``keys · key_scales`` and a value
    ``values · value_scales``; without, they are what they are.
    """

    keys: Tensor
    values: Tensor
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None

    def with_scales_applied(self) -> CachedKV:
        """The same without scales. May write over what was read."""
        if self.key_scales is None or self.value_scales is None:
            return self
        return CachedKV(
            self.keys.mul_(self.key_scales.unsqueeze(2)),
            self.values.mul_(self.value_scales.unsqueeze(2)),
        )


@dataclass(frozen=True, slots=True)
class SequencePages:
    """Where some positions of one sequence lie: those of ``spans``, in order.

    ``first_slot`` if they are consecutive in memory, else ``rows``: the pages to gather.
    """

    spans: tuple[range, ...]
    first_slot: int | None
    rows: Tensor | None

    @property
    def num_positions(self) -> int:
        return sum(map(len, self.spans))

    def positions(self) -> NDArray[np.int64]:
        """Which position each column of what is read stands for."""
        return np.concatenate([np.arange(span.start, span.stop) for span in self.spans])


NOWHERE = np.iinfo(np.int64).max // 2
"""The position of a column that only fills up: beyond every text."""


@dataclass(frozen=True, slots=True)
class BatchPages:
    """Where b sequences lie, each padded to the same number of pages.

    ``rows``: the pages to gather. ``positions_bs``: which position each column stands for, of
    padding ``NOWHERE``.
    """

    num_sequences: int
    rows: Tensor
    positions_bs: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NativeView:
    """The memory of a cache for code that reads and writes it outside of torch.

    Number i of the key (p = 0) or value (p = 1) of KV head h in slot s of a layer starts at byte
    ``data[layer] + p · kind_stride + h · head_stride + s · slot_stride``; its scale, one float16,
    is at ``scales[layer] + 2 · ((p · heads + h) · num_slots + s)``. ``scales`` is empty where
    ``format`` has none. How the bytes of a slot are to be read is said in the module of each
    format. Valid as long as the cache lives: it never moves.
    """

    format: str
    num_slots: int
    data: tuple[int, ...]
    kind_stride: int
    head_stride: int
    slot_stride: int
    scales: tuple[int, ...] = ()


class KVCache(Protocol):
    """Preallocated keys and values of all layers, in blocks that sequences own.

    Who owns which block is the scheduler's business. A slot is one position of one block: slot =
    block id * block_size + offset. Stale contents are harmless as long as they are finite,
    because padded reads give them the weight 0: see ``zero``.
    """

    @property
    def num_blocks(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...

    @property
    def dtype(self) -> torch.dtype:
        """That of the activations, in which everything is read."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def basis(self) -> Tensor | None:
        """The orthogonal and symmetric ``[d, d]`` in which keys and values are kept: queries times
        it meet the keys as they are read, and mixed values times it are as they were. None: they
        are kept as they are."""
        ...

    @property
    def window(self) -> int | None:
        """Positions that a token sees, itself included; None for all before it."""
        ...

    @property
    def sinks(self) -> int:
        """First positions that stay visible beyond the window."""
        ...

    @property
    def capabilities(self) -> CacheCapabilities: ...

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one kept position takes in all layers, scales included."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes taken, used or not."""
        ...

    def slots(self, block_table: Sequence[int], start: int, stop: int) -> list[int]:
        """The slots of positions ``start`` to ``stop`` of a sequence."""
        ...

    def locate(self, block_table: Sequence[int], spans: Sequence[range]) -> SequencePages:
        """Where at least these positions of one sequence lie. Spans are in order and apart."""
        ...

    def locate_batch(
        self, block_tables: Sequence[Sequence[int]], spans: Sequence[Sequence[range]]
    ) -> BatchPages:
        """Where at least these positions of several sequences lie."""
        ...

    def write(self, layer: int, kv_tphd: Tensor, slots: slice | Tensor) -> None:
        """Store the keys and values of a step's tokens at their slots."""
        ...

    def read(self, layer: int, pages: SequencePages) -> CachedKV:
        """Keys and values of one sequence, ``[h, s, d]``: a view, or memory that the next read
        uses again."""
        ...

    def read_batch(self, layer: int, pages: BatchPages) -> CachedKV:
        """Keys and values of several sequences, ``[h * b, s, d]``, in memory that the next read
        uses again."""
        ...

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy the contents of blocks, given as pairs (source, target).

        No block may be a source and a target at once, nor a target twice.
        """
        ...

    def not_finite(self, blocks: Iterable[int]) -> list[int]:
        """Those of these blocks that hold a NaN or an infinity, in order."""
        ...

    def zero(self, blocks: Iterable[int]) -> None:
        """Make the contents of these blocks finite again, after a computation that was not.

        A padded read multiplies what lies beyond a sequence's end by 0, and 0 · NaN is NaN: one
        request's overflow would reach the next owner of its blocks.
        """
        ...

    def native_view(self) -> NativeView:
        """The memory itself, for native code."""
        ...
