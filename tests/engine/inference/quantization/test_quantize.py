"""A whole quantised model: real bytes, the right function, and no difference in company."""

from __future__ import annotations

from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch

from engine.errors import InvalidRequest
from engine.inference.executor import TorchExecutor
from engine.inference.lane_settings import parse_weights
from engine.inference.model.load import load_transformer
from engine.inference.model.reference import ReferenceModel
from engine.inference.model.transformer import Transformer
from engine.inference.quantization.packed import pack
from engine.inference.quantization.quantize import QuantizedWeights, quantize, quantized_names
from engine.inference.weights.checkpoint import Checkpoint, StoredTensor
from engine.inference.weights.ggml_types import BY_NAME
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.runs_for_tests import (
    CPU,
    Run,
    alone,
    logits,
    new_cache,
    random_ids,
    sequence,
)

pytestmark = pytest.mark.usefixtures("one_thread")

SCHEMES = ["int8-tensor", "int8-channel", "int8-g64", "int4-channel", "int4-g32", "int4-g128"]


def transformer(weights: QuantizedWeights, dtype: torch.dtype = torch.float32) -> Transformer:
    return load_transformer(weights.checkpoint, dtype, CPU, matrices=weights.matrices)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_model_computes_with_the_dequantised_weights(scheme: str, tied: bool) -> None:
    weights = quantize(tiny_random_checkpoint(tied_embeddings=tied), parse_weights(scheme))
    ids = random_ids(40, seed=1)
    model = transformer(weights)
    got = logits(model, new_cache(model), sequence(ids, table=range(3)))["a"]
    expected = ReferenceModel(weights.dequantized()).logits(ids)[-1]
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("tied", [False, True])
def test_bytes_in_memory_fall_by_what_is_claimed(tied: bool) -> None:
    checkpoint = tiny_random_checkpoint(tied_embeddings=tied)
    shapes = checkpoint.config.tensor_shapes()
    names = quantized_names(checkpoint.config)
    left = sum(torch.Size(shape).numel() for n, shape in shapes.items() if n not in names)
    for scheme in SCHEMES:
        weights = quantize(checkpoint, parse_weights(scheme))
        packed = [pack(matrix) for matrix in weights.matrices.values()]
        expected = sum(matrix.nbytes for matrix in packed) + 4 * left
        assert transformer(weights).weights.nbytes == expected
        count = sum(torch.Size(shapes[name]).numel() for name in names)
        assert weights.bits_per_weight == 8 * sum(matrix.nbytes for matrix in packed) / count


def test_what_is_left_in_float() -> None:
    for tied in (True, False):
        config = tiny_random_checkpoint(tied_embeddings=tied).config
        left = set(config.tensor_shapes()) - set(quantized_names(config))
        assert {name.rpartition(".")[2] for name in left} - {"embed"} == {
            "attn_norm",
            "mlp_norm",
            "final_norm",
        }
        assert ("embed" in left) is not tied


@pytest.mark.parametrize("scheme", ["int8-channel", "int4-g32"])
def test_a_request_gets_the_same_tokens_in_company(scheme: str) -> None:
    model = transformer(quantize(tiny_random_checkpoint(), parse_weights(scheme)))
    prompts = {f"r{i}": random_ids(3 + 17 * i, seed=i) for i in range(4)}
    expected = {n: alone(TorchExecutor(model, num_blocks=64), p, 12) for n, p in prompts.items()}
    run = Run(TorchExecutor(model, num_blocks=64))
    for name, prompt in prompts.items():
        run.add(name, prompt, 12)
        run.loop.step()
    run.finish()
    assert {name: run.tokens(name) for name in prompts} == expected


def test_progress_goes_from_nothing_to_done() -> None:
    heard: list[float] = []
    quantize(
        tiny_random_checkpoint(), parse_weights("int8"), lambda share, what: heard.append(share)
    )
    assert heard == sorted(heard)
    assert (heard[0], heard[-1]) == (0.0, 1.0)


def test_a_file_whose_blocks_are_used_as_they_are() -> None:
    checkpoint = tiny_random_checkpoint(tied_embeddings=True)
    as_file = in_blocks(checkpoint, {})
    weights = quantize(as_file, parse_weights("file"))
    assert weights.bits_per_weight == pytest.approx(5.0)
    ids = random_ids(30, seed=2)
    model = transformer(weights)
    got = logits(model, new_cache(model), sequence(ids, table=range(2)))["a"]
    torch.testing.assert_close(got, ReferenceModel(as_file).logits(ids)[-1], rtol=1e-4, atol=2e-4)


def test_blocks_of_two_types_cannot_be_one_matrix() -> None:
    mixed = in_blocks(tiny_random_checkpoint(tied_embeddings=True), {"layers.1.k": "Q8_0"})
    with pytest.raises(InvalidRequest, match="layer 1 mixes Q4_1, Q8_0"):
        quantize(mixed, parse_weights("file"))


def in_blocks(checkpoint: Checkpoint, types: dict[str, str]) -> Checkpoint:
    """The checkpoint with its matrices stored as Q4_1, or as ``types`` says by name."""
    tensors = dict(checkpoint.tensors)
    for name in quantized_names(checkpoint.config):
        kind = types.get(name, "Q4_1")
        blocks = gguf.quants.quantize(checkpoint.tensor(name), gguf.GGMLQuantizationType[kind])
        stored = blocks.view(np.uint8).reshape(-1)
        tensors[name] = StoredTensor(BY_NAME[kind], tensors[name].shape, stored)
    return replace(checkpoint, tensors=tensors)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "file"])
def test_what_cannot_be_quantised_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        quantize(tiny_random_checkpoint(), parse_weights(name))
    assert caught.value.field == "weights"
