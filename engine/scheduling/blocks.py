"""The pool of KV blocks: who owns which page of cache. Knows integers, never tensors."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from engine.errors import CapacityError
from engine.scheduling.prefix_cache import PrefixCache

DEFAULT_BLOCK_SIZE = 16
"""Tokens in a block, the customary page of a paged KV cache."""


def blocks_for(num_tokens: int, block_size: int = DEFAULT_BLOCK_SIZE) -> int:
    """Blocks that hold ``num_tokens``: 17 tokens in blocks of 16 take 2."""
    return -(-num_tokens // block_size)


class BlockPool:
    """A fixed number of blocks, counted by reference. Each is free, used or cached.

    Free blocks are handed out lowest id first: that keeps a lone request's blocks consecutive,
    which an executor can read as a view. With a ``prefix_cache``, a block that nobody uses any
    more stays cached as long as its content can be found there and no free block is left; the one
    that was used least recently goes first.

    ``limit`` hands out fewer than there are, as if the cache were smaller. What is in use stays.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = DEFAULT_BLOCK_SIZE,
        *,
        prefix_cache: PrefixCache | None = None,
    ) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError("a pool needs at least one block of at least one token")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_usable = num_blocks
        self.prefix_cache = prefix_cache
        # Blocks that were given back, as a heap; those from ``_untouched`` on never were in use.
        self._returned: list[int] = []
        self._untouched = 0
        self._references: dict[int, int] = {}
        # In the order in which they fell out of use, which is all that LRU needs.
        self._cached: dict[int, None] = {}

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing of use."""
        return len(self._returned) + self.num_blocks - self._untouched

    @property
    def num_used(self) -> int:
        """Blocks that at least one request refers to."""
        return len(self._references)

    @property
    def num_cached(self) -> int:
        """Blocks that no request refers to and the prefix cache can still find."""
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that ``allocate`` could give: the free and the cached ones, within the limit."""
        return max(0, self.num_usable - self.num_used)

    def is_idle(self, block: int) -> bool:
        """Whether no request refers to this block."""
        return block not in self._references

    def is_exclusive(self, block: int) -> bool:
        """Whether one request alone may write into this block."""
        kept = self.prefix_cache is not None and self.prefix_cache.holds(block)
        return self._references.get(block) == 1 and not kept

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` blocks, each with one reference; free ones first, then cached ones.

        Raises:
            CapacityError: fewer than ``count`` blocks are available; none is taken then.
        """
        if count > self.num_available:
            raise CapacityError(
                f"{count} KV blocks were asked for and {self.num_available} are available"
            )
        blocks: list[int] = []
        for _ in range(count):
            # Where nothing is cached, what is available is free.
            may_grow = not self._cached or (
                self.num_used + self.num_cached < self.num_usable and self.num_free > 0
            )
            block = self._take_free() if may_grow else self._evict()
            self._references[block] = 1
            blocks.append(block)
        return blocks

    def _take_free(self) -> int:
        """The lowest free block: all that were given back are below the untouched ones."""
        if self._returned:
            return heapq.heappop(self._returned)
        self._untouched += 1
        return self._untouched - 1

    def limit(self, num_usable: int) -> None:
        """Let at most so many blocks be used or cached from now on, 1 to all.

        If more are in use, none is handed out until enough have been given back.
        """
        if not 1 <= num_usable <= self.num_blocks:
            raise ValueError("the limit of a pool is between one block and all of them")
        self.num_usable = num_usable
        self._shrink()

    def _shrink(self) -> None:
        while self._cached and self.num_used + self.num_cached > self.num_usable:
            heapq.heappush(self._returned, self._evict())

    def _evict(self) -> int:
        if self.prefix_cache is None:
            raise AssertionError("blocks are cached only where there is a prefix cache")
        block = next(iter(self._cached))
        del self._cached[block]
        self.prefix_cache.forget(block)
        return block

    def share(self, blocks: Iterable[int]) -> None:
        """Add a reference to each block, used or cached; its content is the same for all."""
        for block in blocks:
            if block in self._references:
                self._references[block] += 1
            else:
                del self._cached[block]
                self._references[block] = 1

    def release(self, blocks: Iterable[int]) -> None:
        """Drop one reference to each block; without references it is free again, or cached.

        Give the blocks of a text last one first: then its end is evicted before its beginning,
        and nothing stays cached that could not be reached.
        """
        for block in blocks:
            references = self._references[block] - 1
            if references:
                self._references[block] = references
                continue
            del self._references[block]
            if self.prefix_cache is not None and self.prefix_cache.holds(block):
                self._cached[block] = None
            else:
                heapq.heappush(self._returned, block)
        self._shrink()

    def check_integrity(self, tables: Iterable[Iterable[int]]) -> None:
        """Compare the pool with every block table in use; for tests after each operation.

        Raises:
            AssertionError: a block is lost, is in two states at once, or is counted wrongly.
        """
        counted: dict[int, int] = {}
        for table in tables:
            for block in table:
                counted[block] = counted.get(block, 0) + 1
        if counted != self._references:
            raise AssertionError("references do not match the block tables")
        if self.num_free + self.num_used + self.num_cached != self.num_blocks:
            raise AssertionError("free, used and cached blocks do not add up")
        if self._cached and self.num_used + self.num_cached > self.num_usable:
            raise AssertionError("more blocks are cached than the limit allows")
        free = [*self._returned, *range(self._untouched, self.num_blocks)]
        if {*free, *counted, *self._cached} != set(range(self.num_blocks)):
            raise AssertionError("a block is lost, or in two states at once")
        if self.prefix_cache is None:
            return
        self.prefix_cache.check_integrity()
        for block in free:
            if self.prefix_cache.holds(block):
                raise AssertionError("a free block can be found in the prefix cache")
        for block in self._cached:
            if not self.prefix_cache.holds(block):
                raise AssertionError("a cached block can not be found")
