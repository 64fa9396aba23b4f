"""A row before and after rounding: the levels that it falls on, computed here once more."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import InvalidRequest
from engine.inference.probes.arrays import unpack
from engine.inference.probes.desk import ProbeDesk
from engine.inference.probes.documents import PackedArray
from engine.inference.weights.tiny import tiny_random_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")

NAME = "layers.0.q"
ROW = 3


@pytest.fixture(scope="module")
def desk() -> ProbeDesk:
    return ProbeDesk(tiny_random_checkpoint())


def ask(desk: ProbeDesk, weights: str, row: int = ROW, matrix: str = NAME) -> dict:
    return desk.answer("weight-row", {"matrix": matrix, "row": row, "weights": weights})


def values(document: dict, name: str) -> np.ndarray:
    return unpack(PackedArray(**document[name])).astype(np.float64)


def test_before_is_the_row_of_the_file(desk: ProbeDesk) -> None:
    matrix = tiny_random_checkpoint().tensor(NAME)
    found = ask(desk, "int8-tensor")
    np.testing.assert_array_equal(values(found, "before"), matrix[ROW])
    assert tuple(found["shape"]) == matrix.shape


@pytest.mark.parametrize("weights", ["int4-tensor", "int4-channel", "int4-g32", "int4-g64"])
def test_four_bits_have_sixteen_levels_from_the_smallest_to_the_largest(
    desk: ProbeDesk, weights: str
) -> None:
    matrix = tiny_random_checkpoint().tensor(NAME).astype(np.float64)
    found = ask(desk, weights)
    size = found["group_size"]
    before, after = (values(found, name).reshape(-1, size) for name in ("before", "after"))
    groups = matrix.reshape(1, -1) if weights == "int4-tensor" else before
    low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    step = (high - low) / 15
    assert np.abs(after - before).max() <= 0.51 * step.max()
    levels = (after - low) / step
    np.testing.assert_allclose(levels, levels.round(), atol=0.05)
    assert all(len(np.unique(group)) <= 16 for group in after)
    np.testing.assert_allclose(np.array(found["scales"]), step.ravel(), rtol=2e-3)
    np.testing.assert_allclose(np.array(found["offsets"]), low.ravel(), rtol=2e-3)


def test_fewer_weights_to_a_scale_lose_less_and_take_more_bits(desk: ProbeDesk) -> None:
    found = [ask(desk, f"int4-{shared}") for shared in ("tensor", "channel", "g32")]
    errors = [document["error"] for document in found]
    assert errors == sorted(errors, reverse=True)
    bits = [document["bits_per_weight"] for document in found]
    assert bits == sorted(bits)
    assert found[2]["bits_per_weight"] == 4 + 2 * 16 / 32
    shared = [document["shared_by"] for document in found]
    assert shared == [np.prod(found[0]["shape"]), found[0]["shape"][1], 32]


def test_errors_are_relative_to_the_weights(desk: ProbeDesk) -> None:
    found = ask(desk, "int8-channel")
    before, after = values(found, "before"), values(found, "after")
    error = np.linalg.norm(after - before) / np.linalg.norm(before)
    assert found["row_error"] == pytest.approx(error, rel=1e-4)
    assert found["offsets"] == []


@pytest.mark.parametrize(
    ("weights", "row", "matrix", "field"),
    [
        ("int4", 0, "layers.0.attn_norm", "matrix"),
        ("int4", 0, "nothing", "matrix"),
        ("int4", 1_000_000, NAME, "row"),
        ("int4", -1, NAME, "row"),
        ("bfloat16", 0, NAME, "weights"),
        ("int4-awq", 0, NAME, "weights"),
        ("file", 0, NAME, "weights"),  # its tensors are floats
    ],
)
def test_refusals(desk: ProbeDesk, weights: str, row: int, matrix: str, field: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        ask(desk, weights, row, matrix)
    assert refusal.value.field == field
