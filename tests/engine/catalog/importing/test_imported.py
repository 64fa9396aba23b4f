"""Published config.json files, against the catalogue and the models of transformers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import transformers
from transformers.models.auto import modeling_auto

from engine.catalog.attention import SlidingAttention
from engine.catalog.importing.families import CLASSES, READERS, WRAPPERS
from engine.catalog.importing.imported import import_model
from engine.catalog.model_spec import ModelSpec
from engine.catalog.models import get_model
from engine.errors import InvalidRequest, UnsupportedModel
from tests.engine.catalog.importing.released import RELEASED, released

NOT_IN_CATALOGUE = {"nemotron-h-56b", "qwen3.5-27b"}
IN_CATALOGUE = sorted(RELEASED.keys() - NOT_IN_CATALOGUE)

# What the catalogue took from other places than these files, and what the files say.
DIFFERENT: dict[str, dict[str, Any]] = {
    "phi-3-mini-4k": {"attention": SlidingAttention(2047)},  # the catalogue has litgpt's 2048
    "deepseek-v2-lite": {"max_context": 163_840},
    "gemma-3-27b": {"vocab_size": 262_208},  # with the rows of images, absent in the file
}


def _structure(spec: ModelSpec) -> ModelSpec:
    """A spec without names, sources and what its step does not run."""
    extras = replace(spec.extras, mtp_layers=0, expert_dtype="", released_weights="")
    return replace(
        spec,
        id="",
        family="",
        source="",
        nominal_params="",
        notes="",
        verified=False,
        extras=extras,
    )


@pytest.mark.parametrize("model_id", IN_CATALOGUE)
def test_an_imported_model_has_the_structure_of_the_catalogues(model_id: str) -> None:
    imported = import_model(released(model_id)).spec
    expected = replace(get_model(model_id), **DIFFERENT.get(model_id, {}))
    assert _structure(imported) == _structure(expected)


def _meta_parameters(config: dict[str, Any]) -> int:
    """Parameters of the model that transformers builds from the same document."""
    import torch

    outside = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    text = {**outside, **config["text_config"]} if "text_config" in config else {**config}
    text.pop("quantization_config", None)
    # Kimi-K2 ships the model classes of DeepSeek-V3.
    model_type = str(text.pop("model_type")).replace("kimi_k2", "deepseek_v3")
    made = transformers.AutoConfig.for_model(model_type, **text)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("model_id", sorted(RELEASED))
def test_parameters_equal_those_of_the_model_that_transformers_builds(model_id: str) -> None:
    config = released(model_id)
    assert import_model(config).spec.num_parameters == _meta_parameters(config)


def test_every_type_of_model_is_covered_by_a_published_file() -> None:
    seen = {entry["config"]["model_type"] for entry in RELEASED.values()}
    inner = {
        entry["config"].get("text_config", {}).get("model_type") for entry in RELEASED.values()
    }
    covered = seen | inner
    assert READERS.keys() - covered <= {"gemma"}
    assert WRAPPERS.keys() - covered <= {"kimi_k25"}
    assert len(seen) >= 12


def test_what_was_understood_ignored_and_assumed_is_told() -> None:
    found = import_model(released("llama-2-7b"))
    assert "config.hidden_size" in found.understood
    assert "config.pretraining_tp" in found.ignored
    assert found.defaults == {"config.head_dim": 128}
    wrapped = import_model(released("gemma-3-27b"))
    assert wrapped.left_out == ("vision_config",)
    assert wrapped.defaults["config.text_config.vocab_size"] == 262_208
    assert "config.text_config.num_attention_heads" in wrapped.understood


def test_the_id_is_the_name_given_or_says_the_type() -> None:
    config = released("llama-3.1-8b")
    assert import_model(config).spec.id == "imported-llama"
    assert import_model(config, "my/llama-8b").spec.id == "my/llama-8b"
    for name in ("", "<b>", "a" * 101, "a b", "../x\n"):
        with pytest.raises(InvalidRequest) as caught:
            import_model(config, name)
        assert caught.value.field == "name"


UNKNOWN_KEYS = ["moe_every", "cross_attention_layers", "use_parallel_residual"]


@pytest.mark.parametrize("key", UNKNOWN_KEYS)
@pytest.mark.parametrize("model_id", ["llama-3.1-8b", "deepseek-v3", "nemotron-3-nano-30b-a3b"])
def test_a_key_that_is_not_understood_is_refused_by_its_name(model_id: str, key: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        import_model(released(model_id, **{key: 4}))
    assert caught.value.field == f"config.{key}"
    assert key in caught.value.message


NOT_UNDERSTOOD: list[tuple[str, dict[str, Any], str]] = [
    ("llama-3.1-8b", {"model_type": "rwkv7"}, "config.model_type"),
    ("llama-3.1-8b", {"attention_bias": True}, "config.attention_bias"),
    ("llama-3.1-8b", {"mlp_bias": True}, "config.mlp_bias"),
    ("llama-3.1-8b", {"hidden_act": "relu"}, "config.hidden_act"),
    (
        "llama-3.1-8b",
        {"architectures": ["LlamaForSequenceClassification"]},
        "config.architectures",
    ),
    ("llama-3.1-8b", {"architectures": ["FooForCausalLM"]}, "config.architectures"),
    ("llama-3.1-8b", {"architectures": ["MistralForCausalLM"]}, "config.architectures"),
    (
        "llama-3.1-8b",
        {"rope_scaling": {"rope_type": "weird", "factor": 8}},
        "config.rope_scaling.rope_type",
    ),
    ("llama-3.1-8b", {"rope_scaling": {"type": "weird"}}, "config.rope_scaling.type"),
    (
        "llama-3.1-8b",
        {"rope_scaling": {"rope_type": "linear", "factor": 2, "twist": 3}},
        "config.rope_scaling.twist",
    ),
    (
        "gemma-3-1b",
        {"rope_parameters": {"full_attention": {"rope_type": "weird"}}},
        "config.rope_parameters.full_attention.rope_type",
    ),
    ("llama-3.1-8b", {"rope_type": "weird"}, "config.rope_type"),
    (
        "qwen2.5-7b",
        {"use_sliding_window": True, "max_window_layers": 14},
        "config.max_window_layers",
    ),
    ("gemma-2-2b", {"layer_types": ["full_attention"] * 26}, "config.layer_types"),
    ("gpt-oss-20b", {"layer_types": ["sliding_attention"] * 24}, "config.layer_types"),
    ("gpt-oss-20b", {"experts_per_token": 8}, "config.experts_per_token"),
    ("qwen3-30b-a3b", {"mlp_only_layers": [3]}, "config.mlp_only_layers"),
    ("qwen3-30b-a3b", {"decoder_sparse_step": 2}, "config.decoder_sparse_step"),
    ("minimax-m2.5", {"attn_type_list": [0] * 62}, "config.attn_type_list"),
    ("deepseek-v3", {"moe_layer_freq": 2}, "config.moe_layer_freq"),
    ("deepseek-v3", {"scoring_func": "tanh"}, "config.scoring_func"),
    ("glm-5", {"indexer_types": ["full"] * 77 + ["shared"]}, "config.indexer_types"),
    ("deepseek-v4-flash", {"compress_ratios": [8] * 43}, "config.compress_ratios"),
    ("nemotron-3-nano-30b-a3b", {"moe_latent_size": 1024}, "config.moe_latent_size"),
    ("nemotron-3-nano-30b-a3b", {"use_conv_bias": False}, "config.use_conv_bias"),
    (
        "nemotron-3-nano-30b-a3b",
        {"hybrid_override_pattern": "MX"},
        "config.hybrid_override_pattern",
    ),
    ("qwen3-next-80b-a3b", {"layer_types": ["full_attention"] * 48}, "config.layer_types"),
]


@pytest.mark.parametrize(("model_id", "changes", "field"), NOT_UNDERSTOOD)
def test_another_architecture_under_a_known_type_is_refused(
    model_id: str, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        import_model(released(model_id, **changes))
    assert caught.value.field == field


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"hidden_size": -1}, "config.hidden_size"),
    ({"hidden_size": 4096.0}, "config.hidden_size"),
    ({"hidden_size": True}, "config.hidden_size"),
    ({"hidden_size": "4096"}, "config.hidden_size"),
    ({"hidden_size": None}, "config.hidden_size"),
    ({"hidden_size": 1e300}, "config.hidden_size"),
    ({"hidden_size": float("nan")}, "config.hidden_size"),
    ({"hidden_size": [4096]}, "config.hidden_size"),
    ({"num_hidden_layers": 10**9}, "config.num_hidden_layers"),
    ({"num_hidden_layers": 0}, "config.num_hidden_layers"),
    ({"num_key_value_heads": 5}, "config.num_key_value_heads"),
    ({"num_attention_heads": 31}, "config.num_key_value_heads"),
    ({"vocab_size": 10**30}, "config.vocab_size"),
    ({"tie_word_embeddings": "yes"}, "config.tie_word_embeddings"),
    ({"tie_word_embeddings": 1}, "config.tie_word_embeddings"),
    ({"model_type": 7}, "config.model_type"),
    ({"model_type": None}, "config.model_type"),
    ({"architectures": "LlamaForCausalLM"}, "config.architectures"),
    ({"rope_scaling": "yarn"}, "config.rope_scaling"),
    ({"rope_scaling": {"a": [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}}, "config"),
    ({"note": "x" * 5000}, "config"),
    ({"x" * 5000: 1}, "config"),
    ({"eos_token_id": [1] * 200_000}, "config"),
]


@pytest.mark.parametrize(("changes", "field"), IMPOSSIBLE, ids=range(len(IMPOSSIBLE)))
def test_impossible_values_are_refused_with_their_key(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        import_model(released("llama-3.1-8b", **changes))
    assert caught.value.field == field


def test_scaled_positions_are_listed_and_cost_nothing() -> None:
    scaling = {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32}
    plain, scaled = (
        import_model(released("llama-3.1-8b", rope_scaling=value)) for value in (None, scaling)
    )
    assert scaled.spec == plain.spec
    assert "config.rope_scaling" in scaled.understood
    assert "config.rope_scaling" not in (*plain.understood, *plain.ignored)


def test_every_type_of_model_has_its_classes() -> None:
    assert set(CLASSES) == {*READERS, *WRAPPERS}
    of_transformers = {
        **modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        **modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    }
    for model_type, names in CLASSES.items():
        if model_type in of_transformers:
            assert of_transformers[model_type] in names


@pytest.mark.parametrize("value", [None, 7, "llama", [], [{}], True])
def test_what_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequest):
        import_model(value)


def test_all_sizes_at_their_limits_are_no_model() -> None:
    huge = released(
        "llama-3.1-8b",
        hidden_size=2**20,
        intermediate_size=2**20,
        num_hidden_layers=4096,
        vocab_size=2**24,
    )
    with pytest.raises(InvalidRequest) as caught:
        import_model(huge)
    assert caught.value.field == "config"


def test_keys_with_unusual_names_are_not_repeated() -> None:
    with pytest.raises(UnsupportedModel) as caught:
        import_model(released("llama-3.1-8b", **{"<script>alert(1)</script>": 1}))
    assert "script" not in caught.value.message
    assert caught.value.field == "config"
