"""Readers of dense decoders. Each says which keys its type of model has and what absent ones mean.

What the keys do was read in the configuration and model classes of transformers 5.24; tests build
those classes and count their parameters.
"""

from __future__ import annotations

from engine.catalog.attention import AttentionPattern, GlobalAttention, SlidingAttention
from engine.catalog.importing.common import (
    MAX_CONTEXT,
    MAX_LAYERS,
    MAX_WIDTH,
    Frame,
    FrameNames,
    activation,
    check_layer_types,
    interleaved,
    model_spec,
    read_frame,
    window_of_all_layers,
)
from engine.catalog.importing.document import ConfigDocument
from engine.catalog.model_spec import ModelSpec
from engine.catalog.parts import Mlp, ModelExtras, Norm, QkNorm

_GELU = ("gelu_pytorch_tanh", "gelu")


def read_llama(document: ConfigDocument) -> ModelSpec:
    """Llama, and what shares its layers: SmolLM2, TinyLlama, Yi."""
    frame = read_frame(document, tied=False)
    activation(document, "silu")
    # A bias on the output projection alone is a part that no model of the catalogue has.
    document.expect("attention_bias", False)
    document.expect("mlp_bias", False)
    return model_spec(frame, "Llama", intermediate_size=_mlp_width(document))


def read_mistral(document: ConfigDocument) -> ModelSpec:
    """Mistral: a window for all layers in v0.1, none from v0.2 on."""
    frame = read_frame(document, tied=False, kv_heads=8)
    activation(document, "silu")
    attention = window_of_all_layers(document, default=4096)
    width = _mlp_width(document)
    return model_spec(frame, "Mistral", intermediate_size=width, attention=attention)


def read_qwen2(document: ConfigDocument) -> ModelSpec:
    """Qwen2 and Qwen2.5: biases on queries, keys and values."""
    frame = read_frame(document, tied=False)
    activation(document, "silu")
    return model_spec(
        frame,
        "Qwen2",
        intermediate_size=_mlp_width(document),
        qkv_bias=True,
        attention=switched_windows(document, frame),
    )


def read_qwen3(document: ConfigDocument) -> ModelSpec:
    """Qwen3: norms on queries and keys, and a head size of its own."""
    frame = read_frame(document, tied=False, head_dim=128)
    activation(document, "silu")
    document.expect("attention_bias", False)
    return model_spec(
        frame,
        "Qwen3",
        intermediate_size=_mlp_width(document),
        attention=switched_windows(document, frame),
        extras=ModelExtras(qk_norm=QkNorm.PER_HEAD),
    )


def read_gemma(document: ConfigDocument) -> ModelSpec:
    """The first Gemma."""
    frame = read_frame(document, tied=True, head_dim=256)
    _gemma_activation(document)
    document.expect("attention_bias", False)
    return model_spec(frame, "Gemma", intermediate_size=_mlp_width(document), mlp=Mlp.GEGLU)


def read_gemma2(document: ConfigDocument) -> ModelSpec:
    """Gemma-2: four norms a layer, every second layer global."""
    frame = read_frame(document, tied=True, kv_heads=4, head_dim=256)
    _gemma_activation(document)
    document.expect("attention_bias", False)
    document.ignore(("query_pre_attn_scalar", "attn_logit_softcapping", "cache_implementation"))
    window = document.size("sliding_window", MAX_CONTEXT, default=4096)
    capped = document.has_key("final_logit_softcapping")
    document.ignore(("final_logit_softcapping",))
    return model_spec(
        frame,
        "Gemma-2",
        intermediate_size=_mlp_width(document),
        mlp=Mlp.GEGLU,
        attention=interleaved(document, frame.num_layers, window, 2),
        extras=ModelExtras(
            norms_per_layer=4,
            # Absent, the cap is 30; null, there is none.
            logit_softcap=not capped or "final_logit_softcapping" in document,
        ),
    )


def read_gemma3(document: ConfigDocument) -> ModelSpec:
    """Gemma-3, its text tower: five windowed layers, then a global one.

    Released files leave out what equals the class's defaults, heads among them.
    """
    for key, default in (("num_attention_heads", 8), ("vocab_size", 262_208)):
        document.default(key, default)
    document.default("max_position_embeddings", 131_072)
    frame = read_frame(document, tied=True, kv_heads=4, head_dim=256)
    _gemma_activation(document)
    document.expect("attention_bias", False)
    document.ignore(("query_pre_attn_scalar", "attn_logit_softcapping", "cache_implementation"))
    window = document.size("sliding_window", MAX_CONTEXT, default=4096)
    every = document.size("sliding_window_pattern", MAX_LAYERS, default=6)
    capped = "final_logit_softcapping" in document
    document.ignore(("final_logit_softcapping", "_sliding_window_pattern"))
    return model_spec(
        frame,
        "Gemma-3",
        intermediate_size=_mlp_width(document),
        mlp=Mlp.GEGLU,
        attention=interleaved(document, frame.num_layers, window, every),
        extras=ModelExtras(norms_per_layer=4, qk_norm=QkNorm.PER_HEAD, logit_softcap=capped),
    )


def read_phi3(document: ConfigDocument) -> ModelSpec:
    """Phi-3 and Phi-4: queries, keys and values from one matrix, gate and up from another."""
    frame = read_frame(document, tied=False)
    activation(document, "silu")
    document.expect("attention_bias", False)
    document.expect("mlp_bias", False)
    return model_spec(
        frame,
        "Phi",
        intermediate_size=_mlp_width(document),
        attention=window_of_all_layers(document),
    )


_GPT2_NAMES = FrameNames("n_layer", "n_embd", "n_head", "n_positions")


def read_gpt2(document: ConfigDocument) -> ModelSpec:
    """GPT-2: learned positions, LayerNorm, biases everywhere, an MLP of two matrices."""
    frame = read_frame(document, tied=True, names=_GPT2_NAMES)
    activation(document, "gelu_new", "gelu", "gelu_pytorch_tanh", key="activation_function")
    if frame.num_kv_heads != frame.num_attention_heads:
        document.refuse("num_key_value_heads", "this type of model has none")
    if frame.head_dim * frame.num_attention_heads != frame.hidden_size:
        document.refuse("head_dim", "this type of model has no head size of its own")
    document.ignore(
        (
            "n_ctx", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
            "summary_type", "summary_use_proj", "scale_attn_weights",
            "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
        )
    )  # fmt: skip
    width = document.size("n_inner", MAX_WIDTH, default=4 * frame.hidden_size)
    return model_spec(
        frame,
        "GPT-2",
        intermediate_size=width,
        mlp=Mlp.GELU2,
        qkv_bias=True,
        extras=ModelExtras(learned_positions=frame.max_context, all_biases=True, norm=Norm.LAYER),
    )


def switched_windows(document: ConfigDocument, frame: Frame) -> AttentionPattern:
    """Windows from layer "max_window_layers" on, where "use_sliding_window" says so.

    Raises:
        UnsupportedModel: only a part of the layers has them.
    """
    used = document.flag("use_sliding_window", default=False)
    if not used or "sliding_window" not in document:
        document.ignore(("sliding_window", "max_window_layers"))
        check_layer_types(document, ["full_attention"] * frame.num_layers)
        return GlobalAttention()
    first = document.size("max_window_layers", MAX_LAYERS, low=0, default=28)
    window = document.size("sliding_window", MAX_CONTEXT)
    if first >= frame.num_layers:
        check_layer_types(document, ["full_attention"] * frame.num_layers)
        return GlobalAttention()
    if first > 0:
        document.refuse("max_window_layers", "windows in the last layers only are not understood")
    check_layer_types(document, ["sliding_attention"] * frame.num_layers)
    return SlidingAttention(window)


def _mlp_width(document: ConfigDocument) -> int:
    return document.size("intermediate_size", MAX_WIDTH)


def _gemma_activation(document: ConfigDocument) -> None:
    # "gelu" in the first releases meant its tanh approximation; both are GEGLU here.
    activation(document, *_GELU)
    activation(document, *_GELU, key="hidden_activation")
