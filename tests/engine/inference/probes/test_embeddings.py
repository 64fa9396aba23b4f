"""Rows, neighbours and the map of a few rows, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.errors import InvalidRequest
from engine.inference.probes.embeddings import MAX_ROWS, EmbeddingTable
from engine.inference.weights.ggml_types import Q8_0
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.probes.probes_for_tests import probe_model

pytestmark = pytest.mark.usefixtures("one_thread")

TABLE = tiny_random_checkpoint().tensor("embed")
UNIT = TABLE / np.linalg.norm(TABLE, axis=1, keepdims=True)


def test_rows_are_those_of_the_checkpoint() -> None:
    document = probe_model().embeddings.rows([3, 511, 3])
    assert document.table_shape == (512, 64)
    assert (document.stored_as, document.row_bytes) == ("F32", 256)
    assert (document.table_bytes, document.flops) == (512 * 256, 0)
    for row, token in zip(document.rows, (3, 511, 3), strict=True):
        assert row.id == token
        assert row.piece == probe_model().piece(token)
        np.testing.assert_array_equal(np.array(row.values, np.float32), TABLE[token])
        assert row.norm == pytest.approx(float(np.linalg.norm(TABLE[token])), rel=1e-5)


@pytest.mark.parametrize("token", [0, 7, 300, 511])
def test_neighbours_are_those_of_a_full_search(token: int) -> None:
    document = probe_model().embeddings.neighbours(token, 9)
    cosines = UNIT @ UNIT[token]
    cosines[token] = -2
    expected = np.argsort(-cosines)[:9]
    assert document.of.id == token
    assert [n.id for n in document.neighbours] == expected.tolist()
    np.testing.assert_allclose(
        [n.cosine for n in document.neighbours], cosines[expected], atol=1e-5
    )


def test_a_sum_of_rows_is_that_of_a_full_search() -> None:
    document = probe_model().embeddings.analogy([7, 300], [40], 9)
    target = UNIT[7] + UNIT[300] - UNIT[40]
    cosines = UNIT @ (target / np.linalg.norm(target))
    cosines[[7, 300, 40]] = -2
    expected = np.argsort(-cosines)[:9]
    assert [n.id for n in document.neighbours] == expected.tolist()
    np.testing.assert_allclose(
        [n.cosine for n in document.neighbours], cosines[expected], atol=1e-5
    )


def test_rows_without_text_or_length_are_no_neighbours() -> None:
    table = torch.eye(6)
    table[:, 0] += 1
    table[2] = 0
    embeddings = EmbeddingTable(lambda: table, Q8_0, str, 5, torch.tensor([3]))
    near = embeddings.neighbours(0, 50)
    assert [n.id for n in near.neighbours] == [1, 4, 2]
    assert near.neighbours[-1].cosine == 0
    assert {n.cosine for n in embeddings.neighbours(2, 50).neighbours} == {0.0}


def test_the_map_keeps_distances_as_far_as_two_directions_can() -> None:
    ids = [4, 90, 17, 300, 256]
    document = probe_model().embeddings.map(ids)
    np.testing.assert_allclose(document.cosines, UNIT[ids] @ UNIT[ids].T, atol=1e-5)
    centred = TABLE[ids] - TABLE[ids].mean(0)
    values = np.linalg.eigvalsh(centred @ centred.T)[::-1]
    np.testing.assert_allclose(document.explained, values[:2] / values.sum(), atol=1e-5)
    coordinates = np.array(document.coordinates)
    np.testing.assert_allclose((coordinates**2).sum(0), values[:2], rtol=1e-4)
    np.testing.assert_allclose(coordinates.sum(0), 0, atol=1e-4)


def test_what_has_no_row_is_refused() -> None:
    embeddings = probe_model().embeddings
    for field, ask in (
        ("token_ids", lambda: embeddings.rows([])),
        ("token_ids", lambda: embeddings.rows([512])),
        ("token_ids", lambda: embeddings.rows([1] * (MAX_ROWS + 1))),
        ("token_ids", lambda: embeddings.map([1, 2, 2])),
        ("token_id", lambda: embeddings.neighbours(512)),
        ("k", lambda: embeddings.neighbours(1, 51)),
        ("plus", lambda: embeddings.analogy([], [3])),
        ("minus", lambda: embeddings.analogy([3], [3])),
        ("token_ids", lambda: embeddings.analogy([3], [512])),
    ):
        with pytest.raises(InvalidRequest) as caught:
            ask()
        assert caught.value.field == field
