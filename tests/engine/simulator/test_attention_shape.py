from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulator.attention_shape import causal_pairs, visible_positions

small = st.integers(0, 60)
new = st.integers(1, 40)
windows = st.none() | st.integers(1, 70)


def _seen(position: int, window: int | None) -> range:
    """Positions that a query at ``position`` attends to, itself included."""
    return range(0 if window is None else max(0, position + 1 - window), position + 1)


@given(prefix=small, new=new, window=windows)
def test_closed_forms_equal_counting_one_by_one(prefix: int, new: int, window: int | None) -> None:
    seen = [_seen(prefix + index, window) for index in range(new)]
    assert causal_pairs(prefix, new, window) == sum(map(len, seen))
    assert visible_positions(prefix, new, window) == len({key for keys in seen for key in keys})


@given(prefix=small, first=new, second=new, window=windows)
def test_chunks_add_up_to_the_whole(
    prefix: int, first: int, second: int, window: int | None
) -> None:
    parts = causal_pairs(prefix, first, window) + causal_pairs(prefix + first, second, window)
    assert parts == causal_pairs(prefix, first + second, window)


@pytest.mark.parametrize(
    ("prefix", "new", "window", "pairs", "positions"),
    [(0, 4, None, 10, 4), (99, 1, None, 100, 100), (99, 1, 10, 10, 10), (8, 4, 10, 39, 12)],
)
def test_by_hand(prefix: int, new: int, window: int | None, pairs: int, positions: int) -> None:
    assert causal_pairs(prefix, new, window) == pairs
    assert visible_positions(prefix, new, window) == positions
