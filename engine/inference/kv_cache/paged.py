"""The paged KV cache: keys and values in blocks that any sequence may own, in any order.

Shapes: p 2 (keys, values) · h KV heads · s slots · d head_dim · t tokens of a step · b sequences.
A slot is one position of one block: slot = block id * block_size + offset.

All memory is taken once. One layer lies as ``[p, h, s, d]``: the keys of one head are contiguous,
so a run of consecutive blocks is read as a view, and a head is one matrix for the attention.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.inference.model.config import ModelConfig
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE, blocks_for

KEYS_AND_VALUES = 2


def kv_bytes_per_token(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes that one position takes in all layers: 2 · layers · kv_heads · head_dim · itemsize."""
    return KEYS_AND_VALUES * config.num_layers * config.kv_size * dtype.itemsize


def blocks_in_budget(
    num_bytes: int,
    config: ModelConfig,
    dtype: torch.dtype,
    block_size: int = DEFAULT_BLOCK_SIZE,
) -> int:
    """Whole blocks that fit into ``num_bytes``; may be 0."""
    return num_bytes // (kv_bytes_per_token(config, dtype) * block_size)


@dataclass(frozen=True, slots=True)
class SequencePages:
    """Where one sequence of ``length`` positions lies.

    ``first_slot`` if its blocks are consecutive, else ``rows``: the block rows to gather, see
    ``PagedKVCache.block_rows``.
    """

    length: int
    first_slot: int | None
    rows: Tensor | None


@dataclass(frozen=True, slots=True)
class BatchPages:
    """Where ``b`` sequences lie, all padded to ``num_blocks`` blocks; ``rows`` to gather."""

    num_sequences: int
    num_blocks: int
    rows: Tensor


class PagedKVCache:
    """Preallocated keys and values of all layers.

    ``num_blocks`` blocks of ``block_size`` positions are shared by all sequences; who owns which
    is the scheduler's business. Stale contents are harmless as long as they are finite, because
    padded reads give them the weight 0: see ``zero``.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        block_size: int = DEFAULT_BLOCK_SIZE,
    ) -> None:
        if num_blocks < 1:
            raise ValueError("a KV cache needs at least one block")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_kv_heads = config.num_kv_heads
        self.head_dim = config.head_dim
        self.dtype = dtype
        self.device = device
        self.bytes_per_token = kv_bytes_per_token(config, dtype)
        num_slots = num_blocks * block_size
        shape = (config.num_layers, KEYS_AND_VALUES, self.num_kv_heads, num_slots, self.head_dim)
        self._layers_phsd = list(_zeros(shape, dtype, device).unbind(0))
        # The same memory with a row for every block of every head, for gathering.
        self._rows = [layer.view(-1, block_size * self.head_dim) for layer in self._layers_phsd]
        self._scratch = torch.empty(0, dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes taken, used or not."""
        return self.bytes_per_token * self.num_blocks * self.block_size

    # ── once a step: where things lie ────────────────────────────────────────────────────────

    def slots(self, block_table: Sequence[int], start: int, stop: int) -> list[int]:
        """The slots of positions ``start`` to ``stop`` of a sequence."""
        size = self.block_size
        return [block_table[i // size] * size + i % size for i in range(start, stop)]

    def locate(self, block_table: Sequence[int], length: int) -> SequencePages:
        """Where the first ``length`` positions of one sequence lie."""
        table = block_table[: blocks_for(length, self.block_size)]
        first = table[0]
        if all(block == first + i for i, block in enumerate(table)):
            return SequencePages(length, first * self.block_size, None)
        return SequencePages(length, None, self._gather_rows([table], len(table)))

    def locate_batch(self, block_tables: Sequence[Sequence[int]], longest: int) -> BatchPages:
        """Where sequences of at most ``longest`` positions lie.

        A shorter table is padded with its own first block; the caller masks what is beyond a
        sequence's length.
        """
        num_blocks = blocks_for(longest, self.block_size)
        rows = self._gather_rows(block_tables, num_blocks)
        return BatchPages(len(block_tables), num_blocks, rows)

    def _gather_rows(self, block_tables: Sequence[Sequence[int]], num_blocks: int) -> Tensor:
        """Row numbers ``[p * h * b * num_blocks]`` in the layout of ``_rows``."""
        padded = np.empty((len(block_tables), num_blocks), dtype=np.int64)
        for row, table in zip(padded, block_tables, strict=True):
            used = min(len(table), num_blocks)
            row[:used] = table[:used]
            row[used:] = table[0]
        heads = np.arange(KEYS_AND_VALUES * self.num_kv_heads) * self.num_blocks
        rows = torch.from_numpy((heads[:, None, None] + padded).reshape(-1))
        return rows.to(self.device)

    # ── once a layer: move keys and values ───────────────────────────────────────────────────

    def write(self, layer: int, kv_tphd: Tensor, slots: slice | Tensor) -> None:
        """Store the keys and values of a step's tokens at their slots."""
        kv_phtd = kv_tphd.permute(1, 2, 0, 3)
        cache_phsd = self._layers_phsd[layer]
        if isinstance(slots, slice):
            cache_phsd[:, :, slots].copy_(kv_phtd)
        else:
            cache_phsd.index_copy_(2, slots, kv_phtd)

    def read(self, layer: int, pages: SequencePages) -> tuple[Tensor, Tensor]:
        """Keys and values of one sequence, each ``[h, length, d]``: a view wherever possible."""
        if pages.first_slot is not None:
            kv_phsd = self._layers_phsd[layer].narrow(2, pages.first_slot, pages.length)
        else:
            if pages.rows is None:
                raise ValueError("these pages say neither a first slot nor rows")
            kv_phsd = self._gather(layer, pages.rows).view(
                KEYS_AND_VALUES, self.num_kv_heads, -1, self.head_dim
            )[:, :, : pages.length]
        keys, values = kv_phsd.unbind(0)
        return keys, values

    def read_batch(self, layer: int, pages: BatchPages) -> tuple[Tensor, Tensor]:
        """Keys and values of several sequences, each ``[h, b, num_blocks * block_size, d]``.

        The result lies in memory that the next read uses again.
        """
        keys, values = (
            self._gather(layer, pages.rows)
            .view(KEYS_AND_VALUES, self.num_kv_heads, pages.num_sequences, -1, self.head_dim)
            .unbind(0)
        )
        return keys, values

    def _gather(self, layer: int, rows: Tensor) -> Tensor:
        # One buffer for all layers stays in the processor's cache.
        width = self.block_size * self.head_dim
        needed = rows.numel() * width
        if needed > self._scratch.numel():
            self._scratch = self._scratch.new_empty(needed)
        out = self._scratch[:needed].view(-1, width)
        return torch.index_select(self._rows[layer], 0, rows, out=out)

    # ── whole blocks ─────────────────────────────────────────────────────────────────────────

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy the contents of blocks, given as pairs (source, target).

        No block may be a source and a target at once, nor a target twice.
        """
        if not copies:
            return
        sources, targets = torch.tensor(copies, device=self.device).unbind(1)
        for blocks_phnsd in self._by_block():
            blocks_phnsd.index_copy_(2, targets, blocks_phnsd.index_select(2, sources))

    def not_finite(self, blocks: Iterable[int]) -> list[int]:
        """Those of these blocks that hold a NaN or an infinity, in order."""
        ids = torch.tensor(sorted(set(blocks)), device=self.device)
        finite_n = torch.ones(len(ids), dtype=torch.bool, device=self.device)
        for blocks_phnsd in self._by_block():
            finite_n &= blocks_phnsd.index_select(2, ids).isfinite().all(4).all(3).all(1).all(0)
        return ids[~finite_n].tolist()

    def zero(self, blocks: Iterable[int]) -> None:
        """Make the contents of these blocks finite again, after a computation that was not.

        A padded read multiplies what lies beyond a sequence's end by 0, and 0 · NaN is NaN: one
        request's overflow would reach the next owner of its blocks.
        """
        ids = torch.tensor(sorted(set(blocks)), dtype=torch.int64, device=self.device)
        for blocks_phnsd in self._by_block():
            blocks_phnsd.index_fill_(2, ids, 0.0)

    def _by_block(self) -> Iterator[Tensor]:
        """Each layer as ``[p, h, n, s, d]``: n blocks of s slots."""
        shape = (KEYS_AND_VALUES, self.num_kv_heads, self.num_blocks, self.block_size)
        for layer_phsd in self._layers_phsd:
            yield layer_phsd.view(*shape, self.head_dim)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy leaves fresh pages to the system, which zeroes each when it is first written: a large
    # cache costs neither time nor memory before it is used.
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)
