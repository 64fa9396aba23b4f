"""The contiguous KV cache: one slab for every sequence, large enough for the longest.

The layout before paging. Nothing is ever gathered or shared, and whatever a sequence does not fill
of its slab is lost for all others: that waste is what paged caches were made for (Kwon et al. 2023,
arXiv 2309.06180). To a scheduler a slab is a block that is as long as a sequence can be, so it
needs to know nothing about it, and what it counts as used is what is really taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.inference.kv_cache.paged import PagedKVCache
from engine.inference.kv_cache.vocabulary import SequencePages


class ContiguousKVCache(PagedKVCache):
    """``block_size`` is the length of a slab."""

    def locate(self, block_table: Sequence[int], spans: Sequence[range]) -> SequencePages:
        """Where at least these positions of one sequence lie. Spans are in order and apart.

        Raises:
            ValueError: the sequence has more than one slab.
        """
        if len(block_table) != 1:
            raise ValueError("a sequence of a contiguous cache has one slab")
        return super().locate(block_table, spans)
