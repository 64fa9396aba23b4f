"""Weights that are read when they are asked for are the same, and take the memory they say."""

from __future__ import annotations

import pytest
import torch

from engine.inference.probes.model import ProbeModel
from engine.inference.probes.weights import WeightsOnDemand
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.probes.probes_for_tests import IDS
from tests.engine.inference.runs_for_tests import tiny_reference

pytestmark = pytest.mark.usefixtures("one_thread")

# A layer of the tiny model: q, k, v, o, gate, up, down and two norms, in float32.
LAYER_BYTES = 4 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 160 * 64 + 2 * 64)
TABLE_BYTES = 4 * 512 * 64


@pytest.mark.parametrize(
    ("room", "held"), [(0, 1), (LAYER_BYTES, 2), (LAYER_BYTES - 1, None), (10**9, 2)]
)
def test_weights_are_the_same_however_many_are_held(room: int, held: int | None) -> None:
    checkpoint = tiny_random_checkpoint()
    model = ProbeModel(checkpoint, layer_bytes=room)
    for _ in range(2):
        assert torch.equal(model.reference.logits(IDS), tiny_reference().logits(IDS))
        outside = 2 * TABLE_BYTES + 4 * 64
        assert outside + LAYER_BYTES <= model.nbytes <= outside + room + LAYER_BYTES
        if held is not None:
            assert model.nbytes == outside + held * LAYER_BYTES


def test_a_layer_is_read_once_while_it_is_walked_through() -> None:
    weights = WeightsOnDemand(tiny_random_checkpoint())
    assert weights["layers.0.q"] is weights["layers.0.q"]
    first = weights["layers.0.k"]
    assert weights["layers.1.k"] is not first
    assert weights["layers.0.k"] is not first
    assert torch.equal(weights["layers.0.k"], first)
    assert weights["embed"] is weights["embed"]
    assert list(weights) == list(tiny_random_checkpoint().names)
    assert len(weights) == len(tiny_random_checkpoint().names)
