"""Which KV blocks hold which text, so that a prompt that begins like an earlier one starts there.

Only full blocks are known here. A block is found by a hash over its own tokens and the hash of the
block before it, so one number stands for the whole text up to its end. The hash only finds: a hit
counts when the block's tokens and its predecessor are the ones that are wanted, so that two texts
with the same hash can never share a block.

The method is that of vLLM's automatic prefix caching; SGLang's radix tree (arXiv 2312.07104) finds
the same blocks by walking a tree of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

BlockTokens = tuple[int, ...]

BlockHash = Callable[[int, BlockTokens], int]
"""The hash of a block, from the hash of the block before it and its own tokens."""

_ROOT = 0


def chain_hash(previous: int, tokens: BlockTokens) -> int:
    """The default hash. It may collide, which costs a hit and nothing else."""
    return hash((previous, tokens))


@dataclass(slots=True)
class PrefixChain:
    """How much of one text the cache knows: its first ``num_blocks`` blocks.

    ``last`` identifies the last of them, ``key`` is its hash. ``broken``: a block of the text
    could not be kept, so no later one can be found either.
    """

    num_blocks: int = 0
    key: int = 0
    last: int = _ROOT
    broken: bool = False

    def extend(self, key: int, identity: int) -> None:
        self.num_blocks += 1
        self.key = key
        self.last = identity


@dataclass(frozen=True, slots=True)
class _Entry:
    identity: int
    previous: int
    key: int
    tokens: BlockTokens
    block: int


class PrefixCache:
    """Full blocks by their text. Which of them are in use is the pool's business.

    One block is kept for a hash: of two texts that collide, the later one is not cached.
    """

    def __init__(self, block_hash: BlockHash = chain_hash) -> None:
        self._hash = block_hash
        self._by_key: dict[int, _Entry] = {}
        self._by_block: dict[int, _Entry] = {}
        # Identities are never used twice, so a successor can not outlive what it followed.
        self._identities = count(_ROOT + 1)

    def __len__(self) -> int:
        return len(self._by_block)

    def holds(self, block: int) -> bool:
        """Whether this block's content can be found."""
        return block in self._by_block

    def find(self, text: Iterable[BlockTokens]) -> list[int]:
        """The blocks that hold the longest known beginning of a text, given block by block."""
        blocks: list[int] = []
        chain = PrefixChain()
        for tokens in text:
            key = self._hash(chain.key, tokens)
            entry = self._by_key.get(key)
            if entry is None or not _is(entry, chain, tokens):
                break
            blocks.append(entry.block)
            chain.extend(key, entry.identity)
        return blocks

    def insert(self, chain: PrefixChain, tokens: BlockTokens, block: int) -> int:
        """Keep a block as the next one of a text; the block that is kept for it is returned.

        That is another one if the same text has been kept before: the caller should use that one
        and give its own back. A text that collides with another is not kept.
        """
        key = self._hash(chain.key, tokens)
        entry = self._by_key.get(key)
        if entry is None:
            entry = _Entry(next(self._identities), chain.last, key, tokens, block)
            self._by_key[key] = self._by_block[block] = entry
        elif not _is(entry, chain, tokens):
            chain.broken = True
            return block
        chain.extend(key, entry.identity)
        return entry.block

    def forget(self, block: int) -> None:
        """Make a block's content unfindable, because the block is to hold something else."""
        entry = self._by_block.pop(block)
        del self._by_key[entry.key]

    def check_integrity(self) -> None:
        """For tests: both indices agree, and whatever is kept can still be found.

        Raises:
            AssertionError: they do not, or a block outlived its predecessor.
        """
        if {e.key: e for e in self._by_block.values()} != self._by_key:
            raise AssertionError("the two indices of the prefix cache differ")
        alive = {_ROOT} | {entry.identity for entry in self._by_block.values()}
        if any(entry.previous not in alive for entry in self._by_block.values()):
            raise AssertionError("a cached block outlived the block before it")


def _is(entry: _Entry, chain: PrefixChain, tokens: BlockTokens) -> bool:
    return entry.previous == chain.last and entry.tokens == tokens
