"""A step's plan as tensors: one flat dimension of tokens, and who attends to what.

Every linear layer runs once over all tokens of the step, whichever sequence they belong to.
Only attention tells sequences apart: those with one new token go in padded groups, a longer chunk
goes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.inference.kv_cache.paged import BatchPages, PagedKVCache, SequencePages
from engine.inference.model.attention import (
    Mask,
    attend_batch,
    attend_sequence,
    batch_mask,
    sequence_mask,
)
from engine.scheduling.plan import ScheduledSequence, StepPlan

# Sequences share a padded group down to this part of the length of the longest: padding costs at
# most as much again as the positions themselves.
_SHORTEST_IN_GROUP = 0.5


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """One sequence with any number of new tokens: ``rows`` of the flat batch."""

    rows: slice
    pages: SequencePages
    mask: Mask

    def attend(self, q_thgd: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        """Attention of these rows: ``[rows, h, g, d]``."""
        keys, values = cache.read(layer, self.pages)
        return attend_sequence(q_thgd[self.rows], keys, values, self.mask)


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Several sequences of similar length with one new token each: ``rows`` of the flat batch."""

    rows: slice
    pages: BatchPages
    mask: Tensor

    def attend(self, q_thgd: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        """Attention of these rows: ``[rows, h, g, d]``."""
        keys, values = cache.read_batch(layer, self.pages)
        return attend_batch(q_thgd[self.rows], keys, values, self.mask)


@dataclass(frozen=True, slots=True)
class StepBatch:
    """``t`` tokens of all sequences of a step, in an order of its own.

    ``slots``: where each token's keys and values go. ``sampled``: the sequences that want a
    token, in the order of the logits; ``sample_rows``: their last rows, None if these are all
    rows in order.
    """

    token_ids_t: Tensor
    positions_t: Tensor
    slots: slice | Tensor
    groups: tuple[SequenceGroup | DecodeGroup, ...]
    sampled: tuple[ScheduledSequence, ...]
    sample_rows: Tensor | None

    def attend(self, q_thgd: Tensor, cache: PagedKVCache, layer: int) -> Tensor:
        """Attention of all rows over the cache of one layer: ``[t, h, g, d]``."""
        if len(self.groups) == 1:
            return self.groups[0].attend(q_thgd, cache, layer)
        return torch.cat([group.attend(q_thgd, cache, layer) for group in self.groups])


def build_batch(plan: StepPlan, cache: PagedKVCache) -> StepBatch:
    """The tensors of a plan, on the cache's device.

    Raises:
        ValueError: the plan is empty, or a sequence has no tokens or too few blocks.
    """
    sequences = _in_batch_order(plan.sequences, cache.block_size)
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    sample_rows: list[int] = []
    for sequence in sequences:
        start, end = sequence.start, sequence.start + sequence.num_tokens
        token_ids += sequence.token_ids
        positions += range(start, end)
        slots += cache.slots(sequence.block_table, start, end)
        if sequence.samples:
            sample_rows.append(len(token_ids) - 1)
    device = cache.device
    all_sample = len(sample_rows) == len(token_ids)
    consecutive = slots[-1] - slots[0] == len(slots) - 1 and slots == list(
        range(slots[0], slots[-1] + 1)
    )
    return StepBatch(
        token_ids_t=torch.tensor(token_ids, device=device),
        positions_t=torch.tensor(positions, device=device),
        slots=(
            slice(slots[0], slots[-1] + 1) if consecutive else torch.tensor(slots, device=device)
        ),
        groups=tuple(_groups(sequences, cache)),
        sampled=tuple(sequence for sequence in sequences if sequence.samples),
        sample_rows=(
            None if all_sample else torch.tensor(sample_rows, dtype=torch.int64, device=device)
        ),
    )


def _in_batch_order(
    sequences: Sequence[ScheduledSequence], block_size: int
) -> list[ScheduledSequence]:
    """Single tokens first, longest sequence first; then the chunks."""
    if not sequences:
        raise ValueError("a step needs at least one sequence")
    for sequence in sequences:
        if sequence.num_tokens == 0:
            raise ValueError("a scheduled sequence needs at least one token")
        if len(sequence.block_table) * block_size < sequence.start + sequence.num_tokens:
            raise ValueError("a scheduled sequence has too few blocks for its tokens")
    single = [sequence for sequence in sequences if sequence.num_tokens == 1]
    single.sort(key=lambda sequence: -sequence.start)
    return single + [sequence for sequence in sequences if sequence.num_tokens > 1]


def _groups(
    ordered: Sequence[ScheduledSequence], cache: PagedKVCache
) -> Iterator[SequenceGroup | DecodeGroup]:
    row = 0
    index = 0
    while index < len(ordered):
        members = _group_from(ordered, index)
        num_rows = sum(sequence.num_tokens for sequence in members)
        rows = slice(row, row + num_rows)
        yield _one(members[0], rows, cache) if len(members) == 1 else _many(members, rows, cache)
        row += num_rows
        index += len(members)


def _group_from(ordered: Sequence[ScheduledSequence], index: int) -> Sequence[ScheduledSequence]:
    """The sequences from ``index`` on that are computed together."""
    first = ordered[index]
    if first.num_tokens > 1:
        return (first,)
    shortest = (first.start + 1) * _SHORTEST_IN_GROUP
    end = index + 1
    while (
        end < len(ordered) and ordered[end].num_tokens == 1 and ordered[end].start + 1 >= shortest
    ):
        end += 1
    return ordered[index:end]


def _one(sequence: ScheduledSequence, rows: slice, cache: PagedKVCache) -> SequenceGroup:
    length = sequence.start + sequence.num_tokens
    mask = sequence_mask(sequence.num_tokens, length, cache.dtype, cache.device)
    return SequenceGroup(rows, cache.locate(sequence.block_table, length), mask)


def _many(members: Sequence[ScheduledSequence], rows: slice, cache: PagedKVCache) -> DecodeGroup:
    lengths = [sequence.start + 1 for sequence in members]
    pages = cache.locate_batch([sequence.block_table for sequence in members], max(lengths))
    num_seen = pages.num_blocks * cache.block_size
    mask = batch_mask(lengths, num_seen, cache.num_kv_heads, cache.dtype, cache.device)
    return DecodeGroup(rows, pages, mask)
