"""The pool of KV blocks: who owns which page of cache. Knows integers, never tensors."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from engine.errors import CapacityError

DEFAULT_BLOCK_SIZE = 16
"""Tokens in a block, the customary page of a paged KV cache."""


def blocks_for(num_tokens: int, block_size: int = DEFAULT_BLOCK_SIZE) -> int:
    """Blocks that hold ``num_tokens``: 17 tokens in blocks of 16 take 2."""
    return -(-num_tokens // block_size)


class BlockPool:
    """A fixed number of blocks, handed out lowest id first and counted by reference.

    Lowest first keeps a lone request's blocks consecutive, which an executor can read as a view.
    """

    def __init__(self, num_blocks: int, block_size: int = DEFAULT_BLOCK_SIZE) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError("a pool needs at least one block of at least one token")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free: list[int] = list(range(num_blocks))
        self._references: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return len(self._references)

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` blocks, each with one reference.

        Raises:
            CapacityError: fewer than ``count`` blocks are free; none is taken then.
        """
        if count > len(self._free):
            raise CapacityError(f"{count} KV blocks were asked for and {len(self._free)} are free")
        blocks = [heapq.heappop(self._free) for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
        return blocks

    def release(self, blocks: Iterable[int]) -> None:
        """Drop one reference to each block; a block without references is free again."""
        for block in blocks:
            references = self._references[block] - 1
            if references:
                self._references[block] = references
            else:
                del self._references[block]
                heapq.heappush(self._free, block)

    def check_integrity(self, tables: Iterable[Iterable[int]]) -> None:
        """Compare the pool with every block table in use; for tests after each operation.

        Raises:
            AssertionError: a block is lost, is both free and used, or is counted wrongly.
        """
        counted: dict[int, int] = {}
        for table in tables:
            for block in table:
                counted[block] = counted.get(block, 0) + 1
        if counted != self._references:
            raise AssertionError("references do not match the block tables")
        free = set(self._free)
        if len(free) != len(self._free) or free & counted.keys():
            raise AssertionError("a block is free twice, or free and used at once")
        if free | counted.keys() != set(range(self.num_blocks)):
            raise AssertionError("a block is neither free nor used")
