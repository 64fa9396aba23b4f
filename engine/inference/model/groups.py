"""Rows of a step that attend together, and what each of them gets to see.

What is to be read and what is hidden depends on a layer's window, so it is worked out at the first
layer of each kind and kept for the rest of the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.inference.kv_cache.visibility import EVERYTHING, Visibility, combined
from engine.inference.kv_cache.vocabulary import BatchPages, KVCache, SequencePages
from engine.inference.model.attention import (
    TILE,
    AttentionSpec,
    Tile,
    attend_batch,
    attend_causal,
    attend_one,
    attend_tiles,
    wants_tiles,
)

# Measured on Zen 4: for one query, multiplying the scores of quantised keys by their scales beats
# multiplying the keys from this many positions on; below, the fused kernel on whole keys wins.
_FEWEST_SCALED_POSITIONS = 256


@dataclass(frozen=True, slots=True)
class _SequenceView:
    """``tiles`` where the rows are computed in tiles, else ``mask`` (None: nothing is hidden but
    the future among the rows themselves)."""

    pages: SequencePages
    mask: Tensor | None
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """One sequence with any number of new tokens from position ``start`` on: ``rows`` of the
    flat batch."""

    rows: slice
    start: int
    block_table: Sequence[int]
    _views: dict[AttentionSpec, _SequenceView] = field(default_factory=dict)

    def attend(self, q_thgd: Tensor, cache: KVCache, layer: int, spec: AttentionSpec) -> Tensor:
        """Attention of these rows: ``[rows, h, g, d]``."""
        view = self._views.get(spec)
        if view is None:
            view = self._views[spec] = self._look(cache, spec)
        q_thgd = q_thgd[self.rows]
        kv = cache.read(layer, view.pages)
        if q_thgd.shape[0] > 1 or view.pages.num_positions < _FEWEST_SCALED_POSITIONS:
            kv = kv.with_scales_applied()
        if q_thgd.shape[0] == 1:
            return attend_one(q_thgd, kv, view.mask, spec)
        if view.tiles:
            return attend_tiles(q_thgd, kv, view.tiles, spec)
        return attend_causal(q_thgd, kv, view.mask, spec)

    def _look(self, cache: KVCache, spec: AttentionSpec) -> _SequenceView:
        num_new = self.rows.stop - self.rows.start
        stop = self.start + num_new
        visibility = combined(spec.window, cache.window, cache.sinks).within(stop)
        pages = cache.locate(self.block_table, visibility.spans(self.start, stop))
        if num_new == 1:
            return _SequenceView(pages, self._mask_of_one(pages, visibility, cache), ())
        if visibility is not EVERYTHING:
            return _SequenceView(pages, None, tuple(self._tiles(pages, visibility, cache)))
        tiled = wants_tiles(num_new, cache.dtype, cache.device)
        if tiled or spec.softcap is not None:
            return _SequenceView(pages, None, tuple(self._causal_tiles(num_new, cache)))
        if self.start == 0:
            return _SequenceView(pages, None, ())
        mask = _minus_infinity(num_new, stop, cache).triu_(self.start + 1)
        return _SequenceView(pages, mask, ())

    def _mask_of_one(
        self, pages: SequencePages, visibility: Visibility, cache: KVCache
    ) -> Tensor | None:
        if pages.num_positions == sum(map(len, visibility.spans(self.start, self.start + 1))):
            return None
        hidden = visibility.hidden(np.array([[self.start]]), pages.positions()[None])
        return _as_mask(hidden, cache)

    def _causal_tiles(self, num_new: int, cache: KVCache) -> Iterator[Tile]:
        side = min(TILE, num_new)
        future = _minus_infinity(side, side, cache).triu_(1)
        for rows in _tile_rows(num_new):
            size = rows.stop - rows.start
            yield Tile(rows, slice(0, self.start + rows.stop), future[:size, :size])

    def _tiles(
        self, pages: SequencePages, visibility: Visibility, cache: KVCache
    ) -> Iterator[Tile]:
        positions = pages.positions()
        for rows in _tile_rows(self.rows.stop - self.rows.start):
            first, stop = self.start + rows.start, self.start + rows.stop
            runs = [
                np.arange(*np.searchsorted(positions, [span.start, span.stop]))
                for span in visibility.spans(first, stop)
            ]
            columns = np.concatenate(runs)
            hidden = visibility.hidden(np.arange(first, stop)[:, None], positions[columns][None])
            in_a_row = columns[-1] - columns[0] == len(columns) - 1
            yield Tile(
                rows,
                slice(int(columns[0]), int(columns[-1]) + 1)
                if in_a_row
                else torch.from_numpy(columns).to(cache.device),
                _as_mask(hidden, cache),
            )


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Several sequences of similar length with one new token each, at ``positions``: ``rows`` of
    the flat batch."""

    rows: slice
    positions: Sequence[int]
    block_tables: Sequence[Sequence[int]]
    _views: dict[AttentionSpec, tuple[BatchPages, Tensor]] = field(default_factory=dict)

    def attend(self, q_thgd: Tensor, cache: KVCache, layer: int, spec: AttentionSpec) -> Tensor:
        """Attention of these rows: ``[rows, h, g, d]``."""
        view = self._views.get(spec)
        if view is None:
            view = self._views[spec] = self._look(cache, spec)
        pages, mask = view
        return attend_batch(q_thgd[self.rows], cache.read_batch(layer, pages), mask, spec)

    def _look(self, cache: KVCache, spec: AttentionSpec) -> tuple[BatchPages, Tensor]:
        visibility = combined(spec.window, cache.window, cache.sinks)
        visibility = visibility.within(max(self.positions) + 1)
        spans = [visibility.spans(position, position + 1) for position in self.positions]
        pages = cache.locate_batch(self.block_tables, spans)
        hidden_bs = visibility.hidden(np.array(self.positions)[:, None], pages.positions_bs)
        mask_bs = _as_mask(hidden_bs, cache)
        return pages, mask_bs.repeat(cache.num_kv_heads, 1).unsqueeze(1)


def _tile_rows(num_new: int) -> Iterator[slice]:
    for first in range(0, num_new, TILE):
        yield slice(first, min(first + TILE, num_new))


def _as_mask(hidden: NDArray[np.bool_], cache: KVCache) -> Tensor:
    mask = torch.zeros(hidden.shape).masked_fill_(torch.from_numpy(hidden), -math.inf)
    return mask.to(dtype=cache.dtype, device=cache.device)


def _minus_infinity(rows: int, columns: int, cache: KVCache) -> Tensor:
    return torch.full((rows, columns), -math.inf, dtype=cache.dtype, device=cache.device)
