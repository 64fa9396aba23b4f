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

from engine.inference.kv_cache.visibility import combined
from engine.inference.kv_cache.vocabulary import KVCache
from engine.inference.model.attention import AttentionSpec
from engine.inference.model.groups import DecodeGroup, SequenceGroup
from engine.scheduling.plan import ScheduledSequence, StepPlan

# Sequences share a padded group down to this part of the length of the longest: padding costs at
# most as much again as the positions themselves.
_SHORTEST_IN_GROUP = 0.5


@dataclass(frozen=True, slots=True)
class StepBatch:
    """``t`` tokens of all sequences of a step, in an order of its own.

    ``slots``: where each token's keys and values go. ``sampled``: the sequences that want a
    token, in the order of the logits; ``sample_rows``: the last ``num_sampled`` rows of each, None
    if these are all rows in order.
    """

    token_ids_t: Tensor
    positions_t: Tensor
    slots: slice | Tensor
    groups: tuple[SequenceGroup | DecodeGroup, ...]
    sampled: tuple[ScheduledSequence, ...]
    sample_rows: Tensor | None

    def attend(self, q_thgd: Tensor, cache: KVCache, layer: int, spec: AttentionSpec) -> Tensor:
        """Attention of all rows over the cache of one layer: ``[t, h, g, d]``."""
        if cache.basis is not None:
            return self._mixed(q_thgd @ cache.basis, cache, layer, spec) @ cache.basis
        return self._mixed(q_thgd, cache, layer, spec)

    def _mixed(self, q_thgd: Tensor, cache: KVCache, layer: int, spec: AttentionSpec) -> Tensor:
        if len(self.groups) == 1:
            return self.groups[0].attend(q_thgd, cache, layer, spec)
        return torch.cat([group.attend(q_thgd, cache, layer, spec) for group in self.groups])


def build_batch(plan: StepPlan, cache: KVCache) -> StepBatch:
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
            sample_rows += range(len(token_ids) - sequence.num_sampled, len(token_ids))
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
    ordered: Sequence[ScheduledSequence], cache: KVCache
) -> Iterator[SequenceGroup | DecodeGroup]:
    row = 0
    index = 0
    while index < len(ordered):
        members = _group_from(ordered, index, cache)
        num_rows = sum(sequence.num_tokens for sequence in members)
        rows = slice(row, row + num_rows)
        if len(members) == 1:
            yield SequenceGroup(rows, members[0].start, members[0].block_table)
        else:
            yield DecodeGroup(
                rows,
                [sequence.start for sequence in members],
                [sequence.block_table for sequence in members],
            )
        row += num_rows
        index += len(members)


def _group_from(
    ordered: Sequence[ScheduledSequence], index: int, cache: KVCache
) -> Sequence[ScheduledSequence]:
    """The sequences from ``index`` on that are computed together."""
    first = ordered[index]
    if first.num_tokens > 1:
        return (first,)
    shortest = _num_read(first, cache) * _SHORTEST_IN_GROUP
    end = index + 1
    while (
        end < len(ordered)
        and ordered[end].num_tokens == 1
        and _num_read(ordered[end], cache) >= shortest
    ):
        end += 1
    return ordered[index:end]


def _num_read(sequence: ScheduledSequence, cache: KVCache) -> int:
    """Positions that a layer without a window of its own reads for a single new token."""
    spans = combined(None, cache.window, cache.sinks).spans(sequence.start, sequence.start + 1)
    return sum(map(len, spans))
