"""``config.json`` of a Hugging Face folder as a ``ModelConfig``: every key read or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.config import ModelConfig
from engine.inference.weights.hf_families import FAMILIES, Family
from engine.inference.weights.hf_rope import has_two_ropes, read_rope
from engine.inference.weights.hf_values import flag, integer, number, token_ids

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
    document = family.common_form(document)
    _refuse_unknown_keys(document, family)
    rope = read_rope(document, family.usual_theta)
    if has_two_ropes(document) and not family.two_ropes:
        raise UnsupportedModel("config.json: rope_parameters differ by layer; this is not run here")
    heads = integer(document, "num_attention_heads")
    hidden_size = integer(document, "hidden_size")
    fields: dict[str, Any] = {
        "num_layers": integer(document, "num_hidden_layers"),
        "hidden_size": hidden_size,
        "num_attention_heads": heads,
        "num_kv_heads": integer(document, "num_key_value_heads", heads),
        "head_dim": integer(document, "head_dim", hidden_size // max(heads, 1)),
        "vocab_size": integer(document, "vocab_size"),
        "tied_embeddings": flag(document, "tie_word_embeddings"),
        "max_context": integer(document, "max_position_embeddings"),
        "rope_theta": rope.theta,
        "rope_scaling": rope.scaling,
        "norm_eps": number(document, "rms_norm_eps", 1e-6),
        "eos_token_ids": token_ids(generation, "eos_token_id")
        or token_ids(document, "eos_token_id"),
    }
    fields |= family.fields(document)
    if "intermediate_size" not in fields:
        fields["intermediate_size"] = integer(document, "intermediate_size")
    return ModelConfig(name=name, family=family.name, **fields)


def _refuse_unknown_keys(document: Mapping[str, Any], family: Family) -> None:
    neutral = _NEUTRAL | dict(family.neutral)
    for key, value in document.items():
        # null and false switch a feature off, whatever it is.
        known = key in _READ_KEYS or key in family.keys or value is None or value is False
        if not known and value not in neutral.get(key, ()):
            raise UnsupportedModel(f"config.json: {key[:80]} asks for what is not run here")


def _family(document: Mapping[str, Any]) -> Family:
    architectures = document.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1:
        raise UnsupportedModel("config.json: architectures does not name exactly one model class")
    family = FAMILIES.get(str(architectures[0]))
    if family is None:
        raise UnsupportedModel(
            "config.json: architectures is not a family of models that runs here"
        )
    if document.get("model_type", family.model_type) != family.model_type:
        raise FileFormatError("config.json: model_type does not go with architectures")
    return family
