"""A model whose weights are there in native form only, beside the same model in torch's forms."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.inference.device import Device
from engine.inference.lane_settings import parse_lane, parse_weights
from engine.inference.lanes import LaneOpener
from engine.inference.model.load import load_transformer
from engine.inference.model.transformer import Transformer
from engine.inference.native.linear import NativeEmbedding, NativeLinear
from engine.inference.native.matrix import MatrixPacker
from engine.inference.quantization.quantize import quantize
from engine.inference.weights.checkpoint import Checkpoint
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.native.steps import decoder, library, step
from tests.engine.inference.runs_for_tests import (
    CPU,
    alone,
    logits,
    new_cache,
    random_ids,
    sequence,
)

pytestmark = pytest.mark.usefixtures("one_thread")

DEVICE = Device("cpu", "a processor", 1, "bfloat16")
FORMATS = ["float32", "bfloat16", "int8-g32", "int8-channel", "int4-g32"]


def _loaded(checkpoint: Checkpoint, name: str, packer: MatrixPacker | None) -> Transformer:
    settings = parse_weights(name)
    if not settings.quantized:
        return load_transformer(checkpoint, getattr(torch, name), CPU, packer=packer)
    weights = quantize(checkpoint, settings)
    return load_transformer(
        weights.checkpoint, torch.float32, CPU, matrices=weights.matrices, packer=packer
    )


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("tied", [False, True])
@torch.inference_mode()
def test_both_forms_give_the_same_logits(name: str, tied: bool) -> None:
    checkpoint = tiny_random_checkpoint(tied_embeddings=tied)
    torchs = _loaded(checkpoint, name, None)
    ours = _loaded(checkpoint, name, MatrixPacker(library()))
    assert isinstance(ours.weights.head, NativeLinear)
    assert isinstance(ours.weights.embed, NativeEmbedding) == tied
    part = sequence(random_ids(50, seed=4), table=range(4))
    native = step(decoder(ours, new_cache(ours)), part)["a"]
    # The very same native numbers as from matrices that were packed beside torch's form.
    assert torch.equal(native, step(decoder(torchs, new_cache(torchs)), part)["a"])
    slow = logits(ours, new_cache(ours), part)["a"]
    expected = logits(torchs, new_cache(torchs), part)["a"]
    bound = 0.3 if name == "bfloat16" else 1e-3
    assert (slow - expected).abs().max() < bound


def test_biases_come_along() -> None:
    packer = MatrixPacker(library())
    weight, bias = torch.randn(70, 96), torch.randn(70)
    layer = NativeLinear(packer.pack_floats(weight, bias, bfloat16=False), torch.float32, bias)
    x = torch.randn(5, 96)
    torch.testing.assert_close(layer(x), x @ weight.T + bias)
    kept, its_bias = layer.plain()
    assert torch.equal(kept, weight)
    assert its_bias is bias


@pytest.mark.parametrize(
    ("name", "bits"), [("float32", 32), ("bfloat16", 16), ("int8-g32", 8.5), ("int4-g32", 5)]
)
def test_a_lane_takes_the_bits_that_its_format_claims(name: str, bits: float) -> None:
    library()  # so that the lane is native from the start
    checkpoint = tiny_random_checkpoint(tied_embeddings=True)
    opened = LaneOpener(checkpoint, DEVICE, 160).open(parse_lane(name))
    shapes = checkpoint.config.tensor_shapes().values()
    matrices = sum(shape[0] * shape[1] for shape in shapes if len(shape) == 2)
    norms = sum(shape[0] for shape in shapes if len(shape) == 1)
    assert opened.executor.weight_bytes == matrices * bits / 8 + norms * 4


@pytest.mark.parametrize("name", ["float32", "float32/paged-int8", "float32/off"])
def test_a_lane_says_what_torch_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library()
    device = replace(DEVICE, default_dtype="float32")
    texts = []
    for mode in ("auto", "off"):
        monkeypatch.setenv("FIRSTTOKEN_NATIVE", mode)
        opened = LaneOpener(tiny_random_checkpoint(), device, 320).open(parse_lane(name))
        native = isinstance(opened.executor._transformer.weights.head, NativeLinear)
        assert native == (mode == "auto")
        texts.append(alone(opened.executor, random_ids(120, seed=3), 20))
    assert texts[0] == texts[1]


def test_rows_that_are_not_there_are_refused() -> None:
    matrix = MatrixPacker(library()).pack_floats(torch.ones(5, 32), bfloat16=False)
    assert matrix.rows(torch.tensor([4])).sum() == 32
    assert matrix.rows(torch.tensor([], dtype=torch.long)).shape == (0, 32)
    for outside in ([5], [0, -1]):
        with pytest.raises(IndexError, match="0 to 4"):
            matrix.rows(torch.tensor(outside))
