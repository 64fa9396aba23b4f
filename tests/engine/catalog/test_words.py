"""Word vectors: neighbours, sums and maps, against plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from engine.catalog.words import WordVectors, word_vectors
from engine.errors import InvalidRequest

TABLE = np.array([[3, 0], [0, 2], [1, 1], [-1, 0.1]], dtype=np.float32)
SMALL = WordVectors(("east", "north", "northeast", "west"), TABLE)


def test_near_is_by_cosine_and_leaves_out_what_was_asked() -> None:
    near = SMALL.near(["east"], k=3)
    assert [item.word for item in near] == ["northeast", "north", "west"]
    assert near[0].cosine == pytest.approx(1 / np.sqrt(2))
    assert [item.word for item in SMALL.near(["east", "north"], k=1)] == ["northeast"]


def test_king_less_man_plus_woman() -> None:
    near = word_vectors().near(["king", "woman"], ["man"])
    assert near[0].word == "queen"
    assert [item.cosine for item in near] == sorted((item.cosine for item in near), reverse=True)


def test_map_keeps_distances_of_a_plane() -> None:
    drawn = SMALL.map(["east", "north", "west"])
    points = np.array(drawn.coordinates)
    for i in range(3):
        for j in range(3):
            wanted = np.linalg.norm(TABLE[[0, 1, 3]][i] - TABLE[[0, 1, 3]][j])
            assert np.linalg.norm(points[i] - points[j]) == pytest.approx(wanted, abs=1e-6)
    assert sum(drawn.explained) == pytest.approx(1)
    assert drawn.cosines[0][2] == pytest.approx(SMALL.cosine("east", "west"), abs=1e-6)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: SMALL.near([]), "plus"),
        (lambda: SMALL.near(["up"]), "plus"),
        (lambda: SMALL.near(["east"], ["up"]), "minus"),
        (lambda: SMALL.near(["east"], ["east"]), "minus"),
        (lambda: SMALL.near(["east"], k=0), "k"),
        (lambda: SMALL.map(["east", "north", "east"]), "words"),
        (lambda: SMALL.map(["east"] * 65), "words"),
    ],
)
def test_refusals_name_the_field(call, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        call()
    assert refused.value.field == field
