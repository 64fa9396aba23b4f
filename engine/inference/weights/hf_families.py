"""The families of models in Hugging Face layout: what each one's ``config.json`` adds to a Llama.

Defaults of missing keys are those of transformers 5.24, which older files were written against.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.catalog.attention import GlobalAttention, InterleavedAttention, SlidingAttention
from engine.catalog.parts import Mlp, Norm
from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.config import LayerAttention
from engine.inference.weights.hf_rope import read_local_theta
from engine.inference.weights.hf_values import flag, integer, number, number_or_none

_USUAL_WINDOW = 4_096
_GEMMA3_LOCAL_THETA = 10_000.0


@dataclass(frozen=True, slots=True)
class Family:
    """How the files of one family are read.

    ``keys``: keys beyond the common ones that are acted on. ``neutral``: values under which a key
    changes nothing. ``defaults``: values of missing keys where they are not a Llama's.
    ``renamed``: this family's names of common keys. ``fields``: the fields of ``ModelConfig`` that
    make the family what it is. ``usual_theta``: the rotary base where the file names none.
    ``two_ropes``: layers with a window may have a rotary embedding of their own.
    """

    name: str
    model_type: str
    fields: Callable[[Mapping[str, Any]], dict[str, Any]]
    keys: frozenset[str] = frozenset()
    neutral: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    usual_theta: float = 10_000.0
    two_ropes: bool = False

    def common_form(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The document under the common names of its keys, missing ones filled in.

        Raises ``FileFormatError`` where both names of a key are there and differ.
        """
        common: dict[str, Any] = {}
        for key, value in document.items():
            name = self.renamed.get(key, key)
            if common.setdefault(name, value) != value:
                raise FileFormatError(f"config.json: {name} is given twice and differs")
        return {**self.defaults, **common}


def _llama(document: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def _mistral(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"attention": _all_layers(document)}


def _qwen2(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"qkv_bias": True, "attention": _last_layers(document)}


def _qwen3(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"qk_norm": True, "attention": _last_layers(document)}


def _gemma2(document: Mapping[str, Any]) -> dict[str, Any]:
    return _gemma(document, usual_every=2) | {
        "attention_softcap": number_or_none(document, "attn_logit_softcapping", 50.0),
        "logit_softcap": number_or_none(document, "final_logit_softcapping", 30.0),
    }


def _gemma3(document: Mapping[str, Any]) -> dict[str, Any]:
    every = integer(document, "sliding_window_pattern", 6)
    return _gemma(document, usual_every=every) | {
        "qk_norm": True,
        "local_rope_theta": read_local_theta(document, _GEMMA3_LOCAL_THETA),
        "attention_softcap": number_or_none(document, "attn_logit_softcapping"),
        "logit_softcap": number_or_none(document, "final_logit_softcapping"),
    }


def _gemma(document: Mapping[str, Any], usual_every: int) -> dict[str, Any]:
    """Norms before and behind, their weights stored less 1; a gated GELU; scaled embeddings."""
    window = document.get("sliding_window", _USUAL_WINDOW)
    return {
        "mlp": Mlp.GEGLU,
        "norm_offset": 1.0,
        "post_norms": True,
        "embedding_scale": math.sqrt(integer(document, "hidden_size")),
        "query_pre_attn_scalar": number(document, "query_pre_attn_scalar", 256.0),
        "attention": (
            GlobalAttention()
            if window is None
            else _pattern(document, integer(document, "sliding_window", window))
            or _interleaved(_num_layers(document), window, usual_every)
        ),
    }


def _gpt2(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rope_theta": None,
        "norm": Norm.LAYER,
        "intermediate_size": integer(
            document, "intermediate_size", 4 * integer(document, "hidden_size")
        ),
        "mlp": Mlp.GELU2,
        "qkv_bias": True,
        "all_biases": True,
    }


def _num_layers(document: Mapping[str, Any]) -> int:
    return integer(document, "num_hidden_layers")


def _all_layers(document: Mapping[str, Any]) -> LayerAttention:
    """The same window in every layer, or none where ``sliding_window`` is null."""
    if document.get("sliding_window", _USUAL_WINDOW) is None:
        return GlobalAttention()
    return SlidingAttention(integer(document, "sliding_window", _USUAL_WINDOW))


def _last_layers(document: Mapping[str, Any]) -> LayerAttention:
    """A window in the layers from ``max_window_layers`` on, where ``use_sliding_window`` is set."""
    if not flag(document, "use_sliding_window"):
        return GlobalAttention()
    if document.get("sliding_window", _USUAL_WINDOW) is None:
        return GlobalAttention()
    window = integer(document, "sliding_window", _USUAL_WINDOW)
    given = _pattern(document, window)
    if given is not None:
        return given
    first = integer(document, "max_window_layers", 28)
    if first >= _num_layers(document):
        return GlobalAttention()
    if first > 0:
        raise UnsupportedModel(
            "config.json: max_window_layers leaves some of the layers without the window, which is"
            " not run here"
        )
    return SlidingAttention(window)


def _pattern(document: Mapping[str, Any], window: int) -> LayerAttention | None:
    """What ``layer_types`` says, if it is there: all alike, or every n-th layer global."""
    kinds = document.get("layer_types")
    if kinds is None:
        return None
    if not isinstance(kinds, list) or len(kinds) != _num_layers(document):
        raise FileFormatError("config.json: layer_types does not name one kind a layer")
    sees_all = [kind == "full_attention" for kind in kinds]
    if any(kind not in ("full_attention", "sliding_attention") for kind in kinds):
        raise UnsupportedModel("config.json: layer_types has a kind that is not run here")
    if all(sees_all):
        return GlobalAttention()
    every = sees_all.index(True) + 1 if any(sees_all) else len(kinds) + 1
    if sees_all != [(layer + 1) % every == 0 for layer in range(len(kinds))]:
        raise UnsupportedModel("config.json: layer_types has an order that is not run here")
    return _interleaved(len(kinds), window, every)


def _interleaved(num_layers: int, window: int, every: int) -> LayerAttention:
    if every < 1:
        raise FileFormatError("config.json: sliding_window_pattern is below 1")
    return SlidingAttention(window) if every > num_layers else InterleavedAttention(window, every)


_GELU_TANH = ("gelu_pytorch_tanh",)
_GEMMA_KEYS = frozenset(
    {
        "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping",
        "sliding_window", "layer_types", "cache_implementation",
    }
)  # fmt: skip
_QWEN_KEYS = frozenset({"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"})
_GEMMA_DEFAULTS = {"tie_word_embeddings": True, "head_dim": 256}
_SILU = {"hidden_act": ("silu",)}

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": Family("llama", "llama", _llama, neutral=_SILU),
    "MistralForCausalLM": Family(
        "mistral", "mistral", _mistral, frozenset({"sliding_window"}), _SILU
    ),
    "Qwen2ForCausalLM": Family("qwen2", "qwen2", _qwen2, _QWEN_KEYS, _SILU),
    "Qwen3ForCausalLM": Family(
        "qwen3", "qwen3", _qwen3, _QWEN_KEYS, _SILU, defaults={"head_dim": 128}
    ),
    "Gemma2ForCausalLM": Family(
        "gemma2",
        "gemma2",
        _gemma2,
        _GEMMA_KEYS,
        {"hidden_act": _GELU_TANH, "hidden_activation": _GELU_TANH},
        _GEMMA_DEFAULTS,
    ),
    "Gemma3ForCausalLM": Family(
        "gemma3",
        "gemma3_text",
        _gemma3,
        _GEMMA_KEYS | {"sliding_window_pattern", "_sliding_window_pattern", "rope_local_base_freq"},
        {"hidden_act": _GELU_TANH, "hidden_activation": _GELU_TANH},
        _GEMMA_DEFAULTS,
        usual_theta=1e6,
        two_ropes=True,
    ),
    "GPT2LMHeadModel": Family(
        "gpt2",
        "gpt2",
        _gpt2,
        frozenset(
            {
                "n_ctx", "summary_type", "summary_use_proj", "summary_activation",
                "summary_proj_to_labels", "summary_first_dropout", "task_specific_params",
                "attn_pdrop",
            }
        ),
        {"activation_function": ("gelu_new",), "scale_attn_weights": (True,)},
        {"tie_word_embeddings": True, "rms_norm_eps": 1e-5},
        {
            "n_embd": "hidden_size", "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads", "n_positions": "max_position_embeddings",
            "n_inner": "intermediate_size", "layer_norm_epsilon": "rms_norm_eps",
        },
    ),
}  # fmt: skip
"""By the class that ``architectures`` names."""
