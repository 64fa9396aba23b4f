"""The tap on the reference model: it sees every point, changes nothing, and replaces what it is
asked to. The logits themselves are compared with transformers in the tests of the families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from engine.inference.model.reference import TAP_POINTS, WHOLE_MODEL, ReferenceModel
from tests.engine.inference.runs_for_tests import random_ids, tiny_reference

pytestmark = pytest.mark.usefixtures("one_thread")

IDS = random_ids(11, seed=1)


class Recorder:
    """Keeps what passes; replaces what it has a function for."""

    def __init__(self, **replacements: Callable[[Tensor], Tensor]) -> None:
        self.seen: dict[tuple[str, int], Tensor] = {}
        self.calls: Counter[tuple[str, int]] = Counter()
        self._replacements = replacements

    def __call__(self, point: str, layer: int, tensor: Tensor) -> Tensor:
        self.seen[point, layer] = tensor
        self.calls[point, layer] += 1
        return self._replacements.get(point, lambda same: same)(tensor)


@pytest.fixture
def model() -> ReferenceModel:
    return tiny_reference()


def test_a_tap_that_replaces_nothing_changes_nothing(model: ReferenceModel) -> None:
    assert torch.equal(model.logits(IDS, Recorder()), model.logits(IDS))


def test_every_point_is_seen_once_a_layer_with_its_documented_shape(model: ReferenceModel) -> None:
    recorder = Recorder()
    model.logits(IDS, recorder)
    outside = {("embed", WHOLE_MODEL), ("final", WHOLE_MODEL), ("logits", WHOLE_MODEL)}
    inside = TAP_POINTS.keys() - {point for point, _ in outside}
    expected = outside | {(point, layer) for point in inside for layer in range(2)}
    assert recorder.calls == dict.fromkeys(expected, 1)
    config = model.config
    sizes = {
        "t": len(IDS), "m": config.hidden_size, "H": config.num_attention_heads,
        "h": config.num_kv_heads, "d": config.head_dim, "i": config.intermediate_size,
        "v": config.vocab_size,
    }  # fmt: skip
    for (point, layer), tensor in recorder.seen.items():
        letters = TAP_POINTS[point].partition("]")[0].removeprefix("[").split(", ")
        assert tuple(tensor.shape) == tuple(sizes[letter] for letter in letters), (point, layer)


def test_what_is_seen_fits_together(model: ReferenceModel) -> None:
    recorder = Recorder()
    logits = model.logits(IDS, recorder)
    seen = recorder.seen
    assert torch.equal(seen["logits", WHOLE_MODEL], logits)
    last = seen["residual", 0] + seen["attn_out", 1] + seen["mlp_out", 1]
    torch.testing.assert_close(seen["residual", 1], last)
    future = torch.ones(11, 11, dtype=torch.bool).triu(1)
    for layer in range(2):
        assert bool(seen["masked", layer][:, future].isinf().all())
        assert bool(seen["scores", layer].isfinite().all())
        assert bool((seen["weights", layer][:, future] == 0).all())
        torch.testing.assert_close(seen["weights", layer].sum(-1), torch.ones(4, 11))
        # Rotation by the angle 0 at the first position, and lengths kept at all of them.
        assert torch.equal(seen["q_rotated", layer][:, 0], seen["q", layer][:, 0])
        assert not torch.allclose(seen["q_rotated", layer][:, 1:], seen["q", layer][:, 1:])
        torch.testing.assert_close(
            seen["k_rotated", layer].norm(dim=-1), seen["k", layer].norm(dim=-1)
        )


@pytest.mark.parametrize("point", TAP_POINTS)
def test_what_a_tap_gives_back_is_what_follows_computes_on(
    model: ReferenceModel, point: str
) -> None:
    recorder = Recorder(**{point: lambda tensor: tensor * 0.5})
    changed = model.logits(IDS, recorder)
    assert not torch.allclose(changed, model.logits(IDS), atol=1e-3)
    assert bool(changed.isfinite().all())


def test_without_the_mask_early_positions_see_later_ones(model: ReferenceModel) -> None:
    """An ablation as probes make it: the scores take the masked scores' place."""
    scores: list[Tensor] = []

    def unmasked(point: str, layer: int, tensor: Tensor) -> Tensor:
        if point == "scores":
            scores.append(tensor)
        return scores[-1] if point == "masked" else tensor

    other_end = [*IDS[:-1], (IDS[-1] + 1) % 512]
    assert torch.equal(model.logits(IDS)[0], model.logits(other_end)[0])
    seeing = model.logits(IDS, unmasked)[0]
    assert not torch.allclose(seeing, model.logits(other_end, unmasked)[0], atol=1e-3)


def test_a_head_that_is_silenced_adds_nothing(model: ReferenceModel) -> None:
    def without_heads(tensor: Tensor) -> Tensor:
        return torch.zeros_like(tensor)

    recorder = Recorder(mixed=without_heads)
    model.logits(IDS, recorder)
    assert bool((recorder.seen["attn_out", 0] == 0).all())
