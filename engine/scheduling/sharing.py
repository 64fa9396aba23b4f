"""What a request need not compute, because a block already holds it: forks and prefix hits.

Both are the rule that computed tokens catch up with known ones, from a start above 0. At least one
known token is always left to compute, as the next one is sampled from its logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.scheduling.blocks import BlockPool
from engine.scheduling.request import Request, RequestState


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What a request starts with: ``num_tokens`` positions.

    ``blocks`` are full and shared. ``copied`` holds the rest of the positions, and another request
    goes on writing into it: it is the one block that has to be copied, at once, so that no request
    ever writes into a block that it shares.
    """

    num_tokens: int = 0
    blocks: list[int] = field(default_factory=list[int])
    copied: int | None = None
    forked: bool = False


def must_wait_for_fork(request: Request) -> bool:
    """Whether the request that this one was forked from is still computing what they share."""
    source = request.forked_from
    if source is None or source.state is RequestState.FINISHED:
        return False
    return source.num_computed_tokens < request.num_sharable_tokens


def take_over(request: Request, pool: BlockPool) -> TakenOver:
    """The most that a waiting request can start with; changes nothing."""
    forked = _from_fork(request, pool.block_size)
    cached = _from_cache(request, pool)
    return cached if cached.num_tokens > forked.num_tokens else forked


def _from_fork(request: Request, block_size: int) -> TakenOver:
    source = request.forked_from
    if source is None or source.state is not RequestState.RUNNING:
        return TakenOver()
    num_tokens = min(request.num_sharable_tokens, source.num_computed_tokens)
    full, rest = divmod(num_tokens, block_size)
    table = source.block_table
    return TakenOver(num_tokens, table[:full], table[full] if rest else None, forked=True)


def _from_cache(request: Request, pool: BlockPool) -> TakenOver:
    if pool.prefix_cache is None:
        return TakenOver()
    size = pool.block_size
    end = (request.num_known_tokens - 1) // size * size
    blocks = pool.prefix_cache.find(
        tuple(request.known_slice(start, start + size)) for start in range(0, end, size)
    )
    return TakenOver(len(blocks) * size, blocks)


def keep_full_blocks(request: Request, pool: BlockPool) -> None:
    """Let the prefix cache keep the blocks that a request has filled.

    Call it when the request has sampled: its logits were finite, so its keys and values are. Drafts
    count as computed only when they were accepted, so no kept block holds one that was not. Where
    somebody else computed the same block first, the request goes on with that one, so that of one
    text there is one copy, and whoever refers to a cached block refers to all before it.
    """
    cache = pool.prefix_cache
    if cache is None:
        return
    size = pool.block_size
    chain = request.chain
    while not chain.broken and (chain.num_blocks + 1) * size <= request.num_computed_tokens:
        index = chain.num_blocks
        own = request.block_table[index]
        tokens = tuple(request.known_slice(index * size, (index + 1) * size))
        kept = cache.insert(chain, tokens, own)
        if kept != own:
            pool.share([kept])
            pool.release([own])
            request.block_table[index] = kept
