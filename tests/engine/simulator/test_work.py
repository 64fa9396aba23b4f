"""The counts of a batch, against counting one query and entry after the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.plan import SequenceShape
from engine.simulator.attention_shape import compressed_pairs
from engine.simulator.work import (
    MOST_ABSORBED_TOKENS,
    CausalWork,
    EntryWork,
    LatentWork,
    Measure,
    StateWork,
    Work,
)
from tests.engine.simulator.cases import batches

small = st.builds(SequenceShape, st.integers(0, 90), st.integers(1, 40), st.booleans())
few = st.lists(small, max_size=5)


def _brute(shape: SequenceShape, ratio: int, most: int | None, window: int) -> Work:
    """A window of positions, and of the complete entries all or the last ``most``."""
    pairs = 0
    positions: set[int] = set()
    end = shape.prefix_tokens + shape.new_tokens
    for position in range(shape.prefix_tokens, end):
        seen = range(max(0, position + 1 - window), position + 1) if window else range(0)
        entries = (position + 1) // ratio
        picked = entries if most is None else min(entries, most)
        pairs += len(seen) + picked
        positions.update(seen)
    chosen = compressed_pairs(shape.prefix_tokens, shape.new_tokens, ratio, most)
    return Work(pairs, len(positions) + min(end // ratio, chosen), shape.new_tokens)


@given(
    batch=few,
    ratio=st.integers(1, 9),
    most=st.none() | st.integers(1, 12),
    window=st.sampled_from([0, 1, 8, 30]),
)
def test_entries_equal_counting_one_by_one(
    batch: list[SequenceShape], ratio: int, most: int | None, window: int
) -> None:
    expected = [_brute(shape, ratio, most, window) for shape in batch]
    found = EntryWork(ratio, most, window).count(batch)
    assert found == tuple(map(sum, zip(*expected, strict=True))) or (not batch and sum(found) == 0)


@given(prefix=st.integers(0, 10**6), new=st.integers(1, 10**5), ratio=st.integers(1, 200))
def test_chunks_of_entries_add_up(prefix: int, new: int, ratio: int) -> None:
    half = new // 2
    parts = compressed_pairs(prefix, half, ratio, 50) + compressed_pairs(
        prefix + half, new - half, ratio, 50
    )
    assert parts == compressed_pairs(prefix, new, ratio, 50)
    assert compressed_pairs(prefix, new, 1) == new * prefix + new * (new + 1) // 2


@given(batch=batches)
def test_every_sequence_runs_in_one_of_the_two_latent_forms(batch: list[SequenceShape]) -> None:
    absorbed, expanded = (LatentWork(form).count(batch) for form in (True, False))
    whole = CausalWork().count(batch)
    assert tuple(map(sum, zip(absorbed, expanded, strict=True))) == whole


@pytest.mark.parametrize(
    ("prefix", "new", "absorbed"),
    [
        (100, 1, True),
        (100, MOST_ABSORBED_TOKENS, True),
        (100, MOST_ABSORBED_TOKENS + 1, False),
        (0, 1, False),
    ],
)
def test_which_sequences_decode(prefix: int, new: int, absorbed: bool) -> None:
    work = LatentWork(absorbed).count([SequenceShape(prefix, new, True)])
    assert work.tokens == new
    assert LatentWork(not absorbed).count([SequenceShape(prefix, new, True)]) == (0, 0, 0)


MEASURES: list[Callable[[], Measure]] = [
    CausalWork,
    lambda: CausalWork(128),
    lambda: EntryWork(4, 512, 128),
    lambda: EntryWork(1, 2048),
    StateWork,
]


@pytest.mark.parametrize("measure", MEASURES)
@given(batch=batches)
def test_a_batch_is_the_sum_of_its_parts(
    measure: Callable[[], Measure], batch: list[SequenceShape]
) -> None:
    parts = [measure().count([shape]) for shape in batch]
    assert measure().count(batch) == tuple(map(sum, zip(*parts, strict=True)))


def test_states_are_counted_a_sequence() -> None:
    shapes = [SequenceShape(0, 500, True), SequenceShape(10_000, 1, True)]
    assert StateWork().count(shapes) == (0, 2, 501)
