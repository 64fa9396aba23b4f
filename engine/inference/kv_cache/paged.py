"""The paged KV cache: blocks that any sequence may own, in any order, and several may share.

Kwon et al. 2023, arXiv 2309.06180. Shapes: p 2 (keys, values) · h KV heads · s positions that are
read · d head_dim · t tokens of a step · b sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.inference.kv_cache.capabilities import CacheCapabilities
from engine.inference.kv_cache.store import Store
from engine.inference.kv_cache.visibility import pages_of, whole_pages
from engine.inference.kv_cache.vocabulary import (
    KEYS_AND_VALUES,
    NOWHERE,
    BatchPages,
    CachedKV,
    NativeView,
    SequencePages,
)
from engine.inference.lane_settings import KVLayout, KVSettings


class PagedKVCache:
    """Implements ``KVCache``. A block is ``block_size`` consecutive slots of the store, and one
    or more pages of it."""

    def __init__(
        self,
        store: Store,
        settings: KVSettings,
        *,
        block_size: int,
        dtype: torch.dtype,
    ) -> None:
        """``dtype``: of the activations.

        Raises:
            ValueError: the sizes do not fit.
        """
        shape = store.shape
        if shape.num_slots % block_size or block_size % shape.page_size:
            raise ValueError("slots must be whole blocks, and blocks whole pages")
        self.store = store
        self.settings = settings
        self.capabilities = CacheCapabilities.of(settings)
        self.block_size = block_size
        self.num_blocks = shape.num_slots // block_size
        self.num_kv_heads = shape.num_kv_heads
        self.head_dim = shape.head_dim
        self.dtype = dtype
        self.device = store.device
        self.window = settings.window
        self.sinks = settings.sinks
        self.basis = store.basis
        self._page_size = shape.page_size

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one kept position takes in all layers, scales included.

        0 with the cache off: the memory is there, as ``nbytes`` says, but only for the step that
        writes it; no position is kept for a later one.
        """
        return 0 if self.settings.layout is KVLayout.OFF else self.store.bytes_per_slot

    @property
    def nbytes(self) -> int:
        """Bytes taken, used or not."""
        return self.store.nbytes

    # ── once a step: where things lie ────────────────────────────────────────────────────────

    def slots(self, block_table: Sequence[int], start: int, stop: int) -> list[int]:
        """The slots of positions ``start`` to ``stop`` of a sequence."""
        size = self.block_size
        return [block_table[i // size] * size + i % size for i in range(start, stop)]

    def locate(self, block_table: Sequence[int], spans: Sequence[range]) -> SequencePages:
        """Where at least these positions of one sequence lie. Spans are in order and apart.

        A single span in consecutive blocks is found exactly; otherwise whole pages are read, and
        other positions come along that the caller has to hide.
        """
        if len(spans) == 1:
            start, stop = spans[0].start, spans[0].stop
            size = self.block_size
            first = block_table[start // size]
            table = block_table[start // size : -(-stop // size)]
            if all(block == first + i for i, block in enumerate(table)):
                return SequencePages(tuple(spans), first * size + start % size, None)
        widened = whole_pages(spans, self._page_size)
        pages = self._physical(block_table, pages_of(widened, self._page_size))
        return SequencePages(widened, None, self._gather_rows(np.array([pages])))

    def locate_batch(
        self, block_tables: Sequence[Sequence[int]], spans: Sequence[Sequence[range]]
    ) -> BatchPages:
        """Where at least these positions of several sequences lie.

        Fewer pages than those of the longest are padded with a page of their own.
        """
        size = self._page_size
        logical = [pages_of(whole_pages(of_one, size), size) for of_one in spans]
        num_pages = max(map(len, logical))
        pages_bn = np.empty((len(logical), num_pages), dtype=np.int64)
        positions_bn = np.full((len(logical), num_pages), NOWHERE)
        for row, (table, indexes) in enumerate(zip(block_tables, logical, strict=True)):
            pages = self._physical(table, indexes)
            pages_bn[row, : len(pages)] = pages
            pages_bn[row, len(pages) :] = pages[0]
            positions_bn[row, : len(pages)] = np.array(indexes) * size
        positions_bs = (positions_bn[:, :, None] + np.arange(size)).reshape(len(logical), -1)
        return BatchPages(len(logical), self._gather_rows(pages_bn), positions_bs)

    def _physical(self, block_table: Sequence[int], pages: Sequence[int]) -> list[int]:
        """Where the pages of a sequence lie in the store."""
        in_block = self.block_size // self._page_size
        if in_block == 1:
            return [block_table[page] for page in pages]
        return [block_table[page // in_block] * in_block + page % in_block for page in pages]

    def _gather_rows(self, pages_bn: NDArray[np.int64]) -> Tensor:
        """Row numbers ``[p * h * b * n]`` of the store's pages."""
        per_head = self.store.shape.num_slots // self._page_size
        heads = np.arange(KEYS_AND_VALUES * self.num_kv_heads) * per_head
        rows = torch.from_numpy((heads[:, None, None] + pages_bn).reshape(-1))
        return rows.to(self.device)

    # ── once a layer: move keys and values ───────────────────────────────────────────────────

    def write(self, layer: int, kv_tphd: Tensor, slots: slice | Tensor) -> None:
        """Store the keys and values of a step's tokens at their slots."""
        self.store.write(layer, kv_tphd, slots)

    def read(self, layer: int, pages: SequencePages) -> CachedKV:
        """Keys and values of one sequence, ``[h, s, d]``: a view wherever possible."""
        length = pages.num_positions
        if pages.first_slot is not None:
            return self.store.read_run(layer, pages.first_slot, length)
        if pages.rows is None:
            raise ValueError("these pages say neither a first slot nor rows")
        return self.store.gather(layer, pages.rows, self.num_kv_heads, length)

    def read_batch(self, layer: int, pages: BatchPages) -> CachedKV:
        """Keys and values of several sequences, ``[h * b, s, d]``.

        The result lies in memory that the next read uses again.
        """
        num_matrices = self.num_kv_heads * pages.num_sequences
        return self.store.gather(layer, pages.rows, num_matrices, pages.positions_bs.shape[1])

    # ── whole blocks ─────────────────────────────────────────────────────────────────────────

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy the contents of blocks, given as pairs (source, target).

        No block may be a source and a target at once, nor a target twice.
        """
        if not copies:
            return
        sources, targets = torch.tensor(copies, device=self.device).unbind(1)
        for plane_phnsw in self._by_block():
            plane_phnsw.index_copy_(2, targets, plane_phnsw.index_select(2, sources))

    def not_finite(self, blocks: Iterable[int]) -> list[int]:
        """Those of these blocks that hold a NaN or an infinity, in order.

        In a quantised cache the scales tell: numbers that are not finite have no finite scale.
        """
        ids = torch.tensor(sorted(set(blocks)), device=self.device)
        finite_n = torch.ones(len(ids), dtype=torch.bool, device=self.device)
        for plane_phnsw in self._by_block():
            if plane_phnsw.is_floating_point():
                finite_n &= plane_phnsw.index_select(2, ids).isfinite().all(4).all(3).all(1).all(0)
        return ids[~finite_n].tolist()

    def zero(self, blocks: Iterable[int]) -> None:
        """Make the contents of these blocks finite again, after a computation that was not.

        A padded read multiplies what lies beyond a sequence's end by 0, and 0 · NaN is NaN: one
        request's overflow would reach the next owner of its blocks.
        """
        ids = torch.tensor(sorted(set(blocks)), dtype=torch.int64, device=self.device)
        for plane_phnsw in self._by_block():
            plane_phnsw.index_fill_(2, ids, 0)

    def native_view(self) -> NativeView:
        """The memory itself, for native code."""
        return self.store.native_view()

    def _by_block(self) -> Iterator[Tensor]:
        """Each plane as ``[p, h, n, s, w]``: n blocks of s slots."""
        shape = (KEYS_AND_VALUES, self.num_kv_heads, self.num_blocks, self.block_size)
        for layer in self.store.planes:
            for plane_phsw in layer:
                yield plane_phsw.view(*shape, plane_phsw.shape[3])
