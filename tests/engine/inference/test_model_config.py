"""The numbers of a model: what is derived from them, and which are refused."""

from __future__ import annotations

import dataclasses

import pytest

from engine.catalog.attention import InterleavedAttention, SlidingAttention
from engine.catalog.parts import Mlp
from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.config import ModelConfig
from engine.inference.model.rope_frequencies import LinearScaling, Rope

SMOLLM2 = ModelConfig(
    name="SmolLM2-135M-Instruct",
    family="llama",
    num_layers=30,
    hidden_size=576,
    num_attention_heads=9,
    num_kv_heads=3,
    head_dim=64,
    intermediate_size=1_536,
    vocab_size=49_152,
    tied_embeddings=True,
    max_context=8_192,
    rope_theta=100_000.0,
    norm_eps=1e-5,
    eos_token_ids=(2,),
)


def change(**values: object) -> ModelConfig:
    return dataclasses.replace(SMOLLM2, **values)


def test_derived_values():
    assert SMOLLM2.num_parameters == 134_515_008  # as published: 135M
    assert (SMOLLM2.query_size, SMOLLM2.kv_size, SMOLLM2.queries_per_kv_head) == (576, 192, 3)
    assert len(SMOLLM2.tensor_shapes()) == 272


def test_untied_embeddings_add_a_head():
    untied = change(tied_embeddings=False)
    assert untied.tensor_shapes()["lm_head"] == (49_152, 576)
    assert untied.num_parameters == SMOLLM2.num_parameters + 49_152 * 576
    assert "lm_head" not in SMOLLM2.tensor_shapes()


def test_heads_may_be_wider_or_narrower_than_the_hidden_size():
    shapes = change(head_dim=128).tensor_shapes()
    assert shapes["layers.29.q"] == (1_152, 576)
    assert shapes["layers.0.k"] == shapes["layers.0.v"] == (384, 576)
    assert shapes["layers.0.o"] == (576, 1_152)


@pytest.mark.parametrize(
    "field",
    ["num_layers", "hidden_size", "num_attention_heads", "num_kv_heads", "head_dim",
     "intermediate_size", "vocab_size", "max_context"],
)  # fmt: skip
@pytest.mark.parametrize("value", [0, -1, 2**62, 1.0, True, "1", None])
def test_sizes_are_positive_and_bounded(field, value):
    with pytest.raises(FileFormatError, match=field):
        change(**{field: value})


@pytest.mark.parametrize(
    "field",
    ["rope_theta", "norm_eps", "local_rope_theta", "query_pre_attn_scalar", "attention_softcap",
     "logit_softcap", "embedding_scale"],
)  # fmt: skip
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1])
def test_reals_are_finite_and_positive(field, value):
    with pytest.raises(FileFormatError, match=field):
        change(**{field: value})


@pytest.mark.parametrize(
    "values",
    [
        {"num_kv_heads": 2},
        {"eos_token_ids": (2, 49_152)},
        {"eos_token_ids": (-1,)},
        {"bos_token_id": 49_152},
        {"bos_token_id": True},
    ],
)
def test_numbers_fit_together(values):
    with pytest.raises(FileFormatError):
        change(**values)


def test_an_odd_head_cannot_be_rotated():
    with pytest.raises(UnsupportedModel, match="head_dim"):
        change(head_dim=63)


def test_an_odd_head_that_is_not_rotated_is_no_matter():
    assert change(head_dim=63, rope_theta=None).rope_of(0) is None


@pytest.mark.parametrize(
    "values",
    [
        {"rope_theta": None, "rope_scaling": LinearScaling(2.0)},
        {"rope_theta": None, "local_rope_theta": 100.0},
        {"rope_theta": 1.0},
        {"attention": SlidingAttention(0)},
        {"attention": SlidingAttention(1.5)},  # type: ignore[arg-type]
    ],
)
def test_attention_that_makes_no_sense_is_refused(values):
    with pytest.raises(FileFormatError):
        change(**values)


def test_an_mlp_that_is_not_run_is_refused():
    with pytest.raises(UnsupportedModel, match="relu2"):
        change(mlp=Mlp.RELU2_2)


def test_windows_by_layer():
    assert [change().window_of(layer) for layer in range(3)] == [None] * 3
    sliding = change(attention=SlidingAttention(7))
    assert [sliding.window_of(layer) for layer in range(3)] == [7] * 3
    interleaved = change(attention=InterleavedAttention(7, 3))
    assert [interleaved.window_of(layer) for layer in range(6)] == [7, 7, None] * 2


def test_rotary_embeddings_by_layer():
    config = change(
        attention=InterleavedAttention(7, 2),
        rope_scaling=LinearScaling(2.0),
        local_rope_theta=50.0,
    )
    assert config.rope_of(0) == Rope(50.0)
    assert config.rope_of(1) == Rope(100_000.0, LinearScaling(2.0))
    assert dataclasses.replace(config, local_rope_theta=None).rope_of(0) == config.rope_of(1)


def test_scores_are_scaled_by_the_head_or_by_a_number_of_the_model():
    assert change().attention_scale == 64**-0.5
    assert change(query_pre_attn_scalar=100.0).attention_scale == 0.1
