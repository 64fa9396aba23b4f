"""Accepting drafts: sample where each stands as plain decoding would, and compare.

The choice at a position depends on its logits, the text before it and one number that belongs to
the request's seed and the position. Where all drafts before it were accepted, the text is the one
that plain decoding would have, so the choice is the same too: the output does not depend on who
drafts or how well, for a greedy request and for any seed. For a draft x this accepts with the
model's own probability of x, which is the most that any exact rule could for a fixed token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.inference.sampling import Choice, SampleRow
from engine.inference.sampling_params import SamplingParams
from engine.scheduling.plan import Sample, ScheduledSequence


def sample_row(sequence: ScheduledSequence, params: SamplingParams, num_drafts: int) -> SampleRow:
    """What the choice depends on that comes after the known tokens and so many of the drafts."""
    known = sequence.num_tokens - sequence.num_drafts
    num_output = len(sequence.output_token_ids) + num_drafts
    return SampleRow(
        params,
        position=sequence.start + known + num_drafts,
        prompt_token_ids=sequence.prompt_token_ids,
        output_token_ids=sequence.output_token_ids,
        masked_ids=tuple(sequence.masked_ids) if num_output < sequence.masked_until else (),
        draft_token_ids=sequence.drafts[:num_drafts],
    )


def sample_rows(sequence: ScheduledSequence, params: SamplingParams) -> list[SampleRow]:
    """All rows of a sequence that samples: after its known tokens, and after each draft."""
    return [sample_row(sequence, params, count) for count in range(sequence.num_drafts + 1)]


def accept(sequence: ScheduledSequence, choices: Sequence[Choice]) -> Iterator[Sample]:
    """The samples that count, of one choice for each of ``sample_rows``.

    The first differs from its draft, or comes after the last one; those behind it were made for
    texts that never came about.
    """
    for place, choice in enumerate(choices):
        yield Sample(sequence.request_id, choice.token_id, choice.logprob, choice.top)
        if place < sequence.num_drafts and choice.token_id != sequence.drafts[place]:
            return
