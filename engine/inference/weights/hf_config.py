"""``config.json`` of a Hugging Face folder as a ``ModelConfig``: every key read or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.config import ModelConfig
from engine.inference.weights.json_file import JsonObject

_ARCHITECTURES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral"}

# Acted on below, or harmless whatever they say: names, training settings, caching, provenance.
_READ_KEYS = frozenset(
    {
        "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size",
        "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
        "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_parameters",
        "rope_scaling", "tie_word_embeddings", "bos_token_id", "eos_token_id",
        "pad_token_id", "torch_dtype", "dtype", "transformers_version", "_name_or_path",
        "name_or_path", "use_cache", "initializer_range", "attention_dropout", "hidden_dropout",
        "resid_pdrop", "embd_pdrop", "is_llama_config", "transformers.js_config", "auto_map",
        "unsloth_version", "unsloth_fixed", "_attn_implementation_autoset",
    }
)  # fmt: skip
# Keys that change the computation, with the values under which they do not.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "hidden_act": ("silu",),
    "pretraining_tp": (0, 1),
    "partial_rotary_factor": (1.0,),
    "attention_multiplier": (1.0,),
    "embedding_multiplier": (1.0,),
    "residual_multiplier": (1.0,),
    "logits_scaling": (1.0,),
    "logit_scale": (1.0,),
}


def hf_config(document: Mapping[str, Any], generation: Mapping[str, Any], name: str) -> ModelConfig:
    """The numbers of ``config.json``; end tokens from ``generation_config.json`` where it has them.

    ``bos_token_id`` stays None: whether a begin token is put before a prompt is the tokenizer's
    to say. Raises ``UnsupportedModel`` naming the first key that asks for what is not run,
    ``FileFormatError`` for numbers that are missing or impossible.
    """
    family = _family(document)
    for key, value in document.items():
        # null and false switch a feature off, whatever it is.
        known = key in _READ_KEYS or value is None or value is False
        if not known and value not in _NEUTRAL.get(key, ()):
            raise UnsupportedModel(f"config.json: {key[:80]} asks for what is not run here")
    heads = _integer(document, "num_attention_heads")
    hidden_size = _integer(document, "hidden_size")
    return ModelConfig(
        name=name,
        family=family,
        num_layers=_integer(document, "num_hidden_layers"),
        hidden_size=hidden_size,
        num_attention_heads=heads,
        num_kv_heads=_integer(document, "num_key_value_heads", heads),
        head_dim=_integer(document, "head_dim", hidden_size // max(heads, 1)),
        intermediate_size=_integer(document, "intermediate_size"),
        vocab_size=_integer(document, "vocab_size"),
        tied_embeddings=_flag(document, "tie_word_embeddings"),
        max_context=_integer(document, "max_position_embeddings"),
        rope_theta=_rope_theta(document),
        norm_eps=_number(document, "rms_norm_eps", 1e-6),
        eos_token_ids=_token_ids(generation, "eos_token_id")
        or _token_ids(document, "eos_token_id"),
    )


def _family(document: Mapping[str, Any]) -> str:
    architectures = document.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1:
        raise UnsupportedModel("config.json: architectures does not name exactly one model class")
    family = _ARCHITECTURES.get(str(architectures[0]))
    if family is None:
        raise UnsupportedModel("config.json: architectures is not a model of the Llama family")
    if document.get("model_type", family) != family:
        raise FileFormatError("config.json: model_type does not go with architectures")
    return family


def _rope_theta(document: Mapping[str, Any]) -> float:
    """The rotary base, from either of the two places that transformers has written it to."""
    scaling = document.get("rope_scaling")
    parameters = document.get("rope_parameters")
    found: list[float] = []
    if "rope_theta" in document:
        found.append(_number(document, "rope_theta"))
    for key, value in (("rope_scaling", scaling), ("rope_parameters", parameters)):
        if value is None:
            continue
        if not isinstance(value, dict):
            raise FileFormatError(f"config.json: {key} is not an object")
        _refuse_scaled_rope(key, value)
        if "rope_theta" in value:
            found.append(_number(value, "rope_theta"))
    if len(set(found)) > 1:
        raise FileFormatError("config.json: rope_theta is given twice and differs")
    return found[0] if found else 10_000.0


def _refuse_scaled_rope(key: str, value: JsonObject) -> None:
    kinds = {value.get("rope_type", "default"), value.get("type", "default")}
    others = value.keys() - {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    if kinds != {"default"} or others or value.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModel(
            f"config.json: {key} scales the rotary embedding; it is not run here"
        )


def _integer(document: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = document.get(key)
    value = default if value is None else value
    if type(value) is not int:
        raise FileFormatError(f"config.json: {key} is missing or not a whole number")
    return value


def _number(document: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = document.get(key, default)
    if type(value) not in (int, float):
        raise FileFormatError(f"config.json: {key} is missing or not a number")
    try:
        return float(value)
    except OverflowError as error:
        raise FileFormatError(f"config.json: {key} is too large") from error


def _flag(document: Mapping[str, Any], key: str) -> bool:
    value = document.get(key, False)
    if type(value) is not bool:
        raise FileFormatError(f"config.json: {key} is neither true nor false")
    return value


def _token_ids(document: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value = document.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(token) is not int for token in values):
        raise FileFormatError(f"{key} is not a token id or a list of them")
    return tuple(dict.fromkeys(values))
