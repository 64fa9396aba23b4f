"""AWQ and GPTQ: what they promise for one matrix, and for a whole small model."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch

from engine.catalog.parts import Mlp, Norm
from engine.inference.lane_settings import KVSettings, parse_weights
from engine.inference.model.load import load_transformer
from engine.inference.model.reference import ReferenceModel
from engine.inference.quantization.awq import best_scale, divide_norm, fold, search_scales
from engine.inference.quantization.calibration_text import (
    CALIBRATION,
    HELD_OUT,
    text_of,
    token_windows,
)
from engine.inference.quantization.gptq import gptq
from engine.inference.quantization.grams import GramTap, output_error
from engine.inference.quantization.lane import logits_through_cache
from engine.inference.quantization.quantize import quantize
from engine.inference.quantization.rtn import round_to_nearest
from engine.inference.weights.checkpoint import Checkpoint, stored_floats
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.runs_for_tests import CPU, random_ids

pytestmark = pytest.mark.usefixtures("one_thread")

FAMILIES = ["llama", "tied", "qwen", "gemma", "gpt2"]

SCHEMES = ["int4-g32", "int4-g128", "int4-channel", "int4-tensor", "int8-channel"]


def family_checkpoint(family: str) -> Checkpoint:
    """A tiny random model of a shape like the family's."""
    tiny = tiny_random_checkpoint(tied_embeddings=family not in ("llama", "qwen"))
    fields: dict[str, Any] = {
        "llama": {},
        "tied": {},
        "qwen": {"qkv_bias": True, "qk_norm": True},
        "gemma": {
            "mlp": Mlp.GEGLU,
            "norm_offset": 1.0,
            "post_norms": True,
            "embedding_scale": 2.0,
            "logit_softcap": 20.0,
        },
        "gpt2": {
            "mlp": Mlp.GELU2,
            "norm": Norm.LAYER,
            "rope_theta": None,
            "qkv_bias": True,
            "all_biases": True,
            "max_context": 64,
        },
    }[family]
    config = replace(tiny.config, **fields)
    generator = torch.Generator().manual_seed(8)
    tensors = {
        name: stored_floats((torch.randn(shape, generator=generator) * 0.1 + one_d(name)).numpy())
        for name, shape in config.tensor_shapes().items()
    }
    return replace(tiny, config=config, tensors=tensors)


def one_d(name: str) -> float:
    return 0.5 if name.endswith("norm") else 0.0


def inputs(width: int = 256, tokens: int = 2_048, seed: int = 0) -> torch.Tensor:
    """Correlated inputs, some of them much larger than others."""
    generator = torch.Generator().manual_seed(seed)
    causes = torch.randn(tokens, 24, generator=generator)
    mixed = causes @ torch.randn(24, width, generator=generator)
    noise = torch.randn(tokens, width, generator=generator)
    return (mixed + noise) * torch.logspace(-1, 1, width)[torch.randperm(width)]


def gram(x: torch.Tensor) -> torch.Tensor:
    return x.T @ x / len(x)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gptq_beats_rounding_on_correlated_inputs_it_has_not_seen(scheme: str) -> None:
    settings = parse_weights(scheme)
    torch.manual_seed(1)
    weight = torch.randn(96, 256)
    x = inputs()
    seen, unseen = x[:1_024], x[1_024:]
    errors = {
        name: float(((tensor.dequantize() - weight) @ unseen.T).square().mean())
        for name, tensor in (
            ("rtn", round_to_nearest(weight, settings)),
            ("gptq", gptq(weight, gram(seen), settings)),
        )
    }
    assert errors["gptq"] < 0.5 * errors["rtn"]


def test_gptq_is_the_textbook_algorithm() -> None:
    """Against the same in its first form: after each column, H⁻¹ is eliminated anew."""
    settings = parse_weights("int4-channel")
    torch.manual_seed(2)
    weight = torch.randn(8, 32)
    g = gram(inputs(32)).double()
    damped = g + 0.1 * g.diagonal().mean() * torch.eye(32, dtype=torch.float64)
    grid = round_to_nearest(weight, settings)
    scale, offset = grid.scales_oq[:, 0].double(), grid.offsets_oq
    assert offset is not None
    offset = offset[:, 0].double()
    w, inverse = weight.double(), torch.linalg.inv(damped)
    expected = torch.empty_like(w)
    for c in range(32):
        level = ((w[:, c] - offset) / scale).round().clamp(0, 15)
        expected[:, c] = level * scale + offset
        error = (w[:, c] - expected[:, c]) / inverse[c, c]
        w = w - torch.outer(error, inverse[c])
        inverse = inverse - torch.outer(inverse[:, c], inverse[c]) / inverse[c, c]
    got = gptq(weight, g.float(), settings, damping=0.1, largest_first=False).dequantize()
    assert (got.double() - expected).abs().gt(1e-3).float().mean() < 0.02  # ties fall either way
    assert output_error(got - weight, g.float()) == pytest.approx(
        output_error((expected - weight).float(), g.float()), rel=0.05
    )


def test_gptq_leaves_weights_that_are_on_the_grid() -> None:
    for scheme in SCHEMES:
        settings = parse_weights(scheme)
        once = round_to_nearest(torch.randn(16, 256), settings)
        again = gptq(once.dequantize(), gram(inputs()), settings)
        assert torch.equal(again.levels_oi, once.levels_oi)


def test_inputs_that_are_never_there() -> None:
    weight = torch.randn(16, 64)
    settings = parse_weights("int4")
    plain = round_to_nearest(weight, settings)
    nothing = torch.zeros(64, 64)
    assert torch.equal(gptq(weight, nothing, settings).levels_oi, plain.levels_oi)
    assert torch.equal(best_scale([weight], nothing, nothing.diagonal(), settings), torch.ones(64))
    half = gram(inputs(64))
    half[32:] = half[:, 32:] = 0
    assert gptq(weight, half, settings).dequantize().isfinite().all()
    assert best_scale([weight], half, half.diagonal(), settings).isfinite().all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_scales_of_awq_are_never_worse_than_none(scheme: str) -> None:
    settings = parse_weights(scheme)
    torch.manual_seed(3)
    weight, g = torch.randn(96, 256), gram(inputs(seed=4))
    scale = best_scale([weight], g, g.diagonal(), settings)
    scaled = round_to_nearest(weight * scale, settings).dequantize() / scale
    plain = round_to_nearest(weight, settings).dequantize()
    assert output_error(scaled - weight, g) <= output_error(plain - weight, g)
    if scheme in ("int4-channel", "int4-g128"):
        assert output_error(scaled - weight, g) < 0.8 * output_error(plain - weight, g)


@pytest.mark.parametrize("family", FAMILIES)
def test_folding_leaves_the_function_as_it_is(family: str) -> None:
    checkpoint = family_checkpoint(family)
    config = checkpoint.config
    torch.manual_seed(5)
    tensors = {name: torch.from_numpy(checkpoint.tensor(name)) for name in checkpoint.names}
    folded = dict(tensors)
    for layer in range(config.num_layers):
        prefix = f"layers.{layer}."
        one_a_value = torch.rand(config.num_kv_heads, 1, config.head_dim) + 0.5
        scales = {
            "attn_in": torch.rand(64) + 0.5,
            "mixed": one_a_value.expand(-1, config.queries_per_kv_head, -1).flatten(),
            "mlp_in": torch.rand(64) + 0.5,
        }
        if config.mlp.gated:
            scales["act"] = torch.rand(160) + 0.5
        inside = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        folded |= {prefix + n: t for n, t in fold(inside, scales, config).items()}
    if not config.tied_embeddings:
        scale = torch.rand(64) + 0.5
        folded["lm_head"] = folded["lm_head"] * scale
        divide_norm(folded, "final_norm", scale, config)
    stored = {name: stored_floats(tensor.numpy()) for name, tensor in folded.items()}
    ids = random_ids(30, seed=6)
    expected = ReferenceModel(checkpoint).logits(ids)
    got = ReferenceModel(replace(checkpoint, tensors=stored)).logits(ids)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert not torch.equal(folded["layers.0.v"], tensors["layers.0.v"])


@pytest.mark.parametrize("method", ["rtn", "awq", "gptq"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_computes_with_its_quantised_weights(family: str, method: str) -> None:
    checkpoint = family_checkpoint(family)
    weights = quantize(checkpoint, parse_weights(f"int8-g32-{method}"), calibration_tokens=400)
    ids = random_ids(30, seed=7)
    model = load_transformer(weights.checkpoint, torch.float32, CPU, matrices=weights.matrices)
    got = logits_through_cache(model, KVSettings(), longest=30)(ids)
    expected = ReferenceModel(weights.dequantized()).logits(ids)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    whole = ReferenceModel(checkpoint).logits(ids)
    assert (got - whole).square().mean() < 1e-3 * whole.square().mean()


def test_query_heads_of_one_kv_head_share_their_scale() -> None:
    checkpoint = tiny_random_checkpoint()
    config = checkpoint.config
    prefix = "layers.0."
    tensors = {
        name.removeprefix(prefix): torch.from_numpy(checkpoint.tensor(name))
        for name in checkpoint.names
        if name.startswith(prefix)
    }
    tap = GramTap()
    ReferenceModel(checkpoint).layer(0, torch.randn(200, 64), tap)
    scales = search_scales(tensors, tap.averages(), config, parse_weights("int4-g32"))
    assert scales.keys() == {"attn_in", "mixed", "mlp_in", "act"}
    by_head = scales["mixed"].view(config.num_kv_heads, config.queries_per_kv_head, -1)
    assert torch.equal(by_head[:, 0], by_head[:, 1])
    in_tensor = search_scales(tensors, _grams(checkpoint), config, parse_weights("int4-tensor"))
    assert in_tensor.keys() == {"attn_in", "mlp_in"}


def _grams(checkpoint):
    tap = GramTap()
    ReferenceModel(checkpoint).layer(0, torch.randn(200, 64), tap)
    return tap.averages()


def test_a_tap_averages_over_all_tokens_and_begins_anew() -> None:
    tap = GramTap()
    x = torch.randn(50, 8)
    heads = torch.randn(2, 50, 4)
    for part in (slice(0, 20), slice(20, 50)):
        assert tap("attn_in", 0, x[part]) is not None
        tap("mixed", 0, heads[:, part])
        tap("residual", 0, x[part])
    grams = tap.averages()
    torch.testing.assert_close(grams["attn_in"], x.T @ x / 50)
    flat = torch.cat((heads[0], heads[1]), dim=1)
    torch.testing.assert_close(grams["mixed"], flat.T @ flat / 50)
    assert grams.keys() == {"attn_in", "mixed"}
    assert tap.averages() == {}


@pytest.mark.parametrize("method", ["awq", "gptq"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_whole_model_errs_less_than_with_rounding(method: str, tied: bool) -> None:
    checkpoint = tiny_random_checkpoint(tied_embeddings=tied)
    windows = token_windows(HELD_OUT, checkpoint.tokenizer(), checkpoint.config, 600, 200)
    reference = ReferenceModel(checkpoint)

    def divergence(name: str) -> float:
        weights = quantize(checkpoint, parse_weights(name), calibration_tokens=1_024)
        model = ReferenceModel(weights.dequantized())
        kl = [
            torch.nn.functional.kl_div(
                model.logits(ids).log_softmax(-1),
                reference.logits(ids).log_softmax(-1),
                log_target=True,
                reduction="batchmean",
            )
            for ids in windows
        ]
        return float(torch.stack(kl).mean())

    assert divergence(f"int4-channel-{method}") < divergence("int4-channel-rtn")


def test_the_two_texts_have_nothing_in_common() -> None:
    calibration, held_out = text_of(CALIBRATION), text_of(HELD_OUT)
    for text in (calibration, held_out):
        assert 20_000 < len(text.encode()) < 60_000
    sentences = [s for s in held_out.replace("\n", " ").split(". ") if len(s) > 40]
    assert len(sentences) > 100
    assert not [s for s in sentences if s in calibration]


def test_windows_do_not_overlap() -> None:
    checkpoint = tiny_random_checkpoint()
    tokenizer = checkpoint.tokenizer()
    windows = token_windows(HELD_OUT, tokenizer, checkpoint.config, 1_000, 300)
    assert [len(window) for window in windows] == [300, 300, 300, 100]
    assert list(chain(*windows)) == tokenizer.encode(text_of(HELD_OUT))[:1_000]
    begin = replace(checkpoint.config, bos_token_id=1)
    windows = token_windows(HELD_OUT, tokenizer, begin, 1_000, 300)
    assert {window[0] for window in windows} == {1}
    assert max(map(len, windows)) == 300
    assert (
        list(chain(*(window[1:] for window in windows)))
        == tokenizer.encode(text_of(HELD_OUT))[:1_000]
    )
