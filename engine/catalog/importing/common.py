"""What the readers of all types of models share: sizes, the keys that never matter, patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.catalog.attention import (
    AttentionPattern,
    GlobalAttention,
    InterleavedAttention,
    SlidingAttention,
)
from engine.catalog.importing.document import ConfigDocument
from engine.catalog.importing.positions import read_positions
from engine.catalog.model_spec import ModelSpec
from engine.catalog.parts import MlaSpec, Mlp, ModelExtras, MoeSpec

MAX_LAYERS = 4096
MAX_WIDTH = 2**20
MAX_HEADS = 2**14
MAX_VOCABULARY = 2**24
MAX_CONTEXT = 2**32
MAX_EXPERTS = 2**16

# Names, provenance, training, sampling and numerics: a step costs the same whatever they say.
# Positions are rotated by the same arithmetic whatever their frequencies.
IRRELEVANT = frozenset(
    {
        "_name_or_path", "name_or_path", "auto_map", "transformers_version", "unsloth_version",
        "unsloth_fixed", "transformers.js_config", "is_llama_config", "_attn_implementation",
        "_attn_implementation_autoset", "attn_implementation", "use_cache", "cache_implementation",
        "finetuning_task", "task_specific_params", "problem_type", "id2label", "label2id",
        "num_labels", "tokenizer_class", "ignore_index", "prefix",
        "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id",
        "decoder_start_token_id", "image_token_id", "video_token_id", "audio_token_id",
        "vision_start_token_id", "vision_end_token_id", "vision_token_id",
        "initializer_range", "initializer_factor", "attention_dropout", "hidden_dropout",
        "attn_pdrop", "resid_pdrop", "embd_pdrop", "classifier_dropout", "pretraining_tp",
        "router_aux_loss_coef", "router_jitter_noise", "aux_loss_alpha", "seq_aux",
        "output_router_logits", "output_attentions", "output_hidden_states", "output_scores",
        "return_dict", "return_dict_in_generate", "torchscript", "gradient_checkpointing",
        "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps",
        "rope_theta", "rope_interleave", "rope_local_base_freq",
        "partial_rotary_factor", "rotary_dim", "mrope_section",
        "original_max_position_embeddings", "initial_context_length",
        "bad_words_ids", "begin_suppress_tokens", "chunk_size_feed_forward", "diversity_penalty",
        "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
        "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id",
        "length_penalty", "max_length", "min_length", "no_repeat_ngram_size", "num_beam_groups",
        "num_beams", "num_return_sequences", "remove_invalid_values", "repetition_penalty",
        "suppress_tokens", "temperature", "top_k", "top_p", "typical_p", "use_bfloat16",
    }
)  # fmt: skip

# What a decoder that only continues text is not.
_NOT_A_DECODER = (
    "is_encoder_decoder", "add_cross_attention", "cross_attention_hidden_size", "is_decoder",
    "tie_encoder_decoder", "pruned_heads", "use_bidirectional_attention",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Frame:
    """The sizes that every decoder has."""

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tied_embeddings: bool
    max_context: int


@dataclass(frozen=True, slots=True)
class FrameNames:
    """How a type of model calls the sizes of its frame."""

    num_layers: str = "num_hidden_layers"
    hidden_size: str = "hidden_size"
    heads: str = "num_attention_heads"
    context: str = "max_position_embeddings"


_USUAL_NAMES = FrameNames()


def read_frame(
    document: ConfigDocument,
    *,
    tied: bool,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    names: FrameNames = _USUAL_NAMES,
) -> Frame:
    """The sizes of a decoder, with what absent keys mean for this type of model.

    ``tied`` is whether embeddings are tied where the key is absent. Absent key-value heads are
    ``kv_heads``, or as many as query heads for None; an absent head size is ``head_dim``, or
    hidden size over heads for None.

    Raises:
        InvalidRequest: a size is missing, of the wrong type, out of range, or two do not go
            together (names the key).
    """
    num_layers = document.size(names.num_layers, MAX_LAYERS)
    hidden = document.size(names.hidden_size, MAX_WIDTH)
    heads = document.size(names.heads, MAX_HEADS)
    kv = document.size("num_key_value_heads", MAX_HEADS, default=kv_heads or heads)
    if heads % kv:
        document.wrong("num_key_value_heads", f"must divide {names.heads}")
    if head_dim is None and "head_dim" not in document and hidden % heads:
        document.wrong(names.heads, f"must divide {names.hidden_size} where head_dim is absent")
    size = document.size("head_dim", MAX_WIDTH, default=head_dim or max(hidden // heads, 1))
    return Frame(
        num_layers=num_layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_kv_heads=kv,
        head_dim=size,
        vocab_size=document.size("vocab_size", MAX_VOCABULARY),
        tied_embeddings=document.flag("tie_word_embeddings", default=tied),
        max_context=document.size(names.context, MAX_CONTEXT),
    )


def read_general(document: ConfigDocument) -> None:
    """The keys that any type of model may have and that do not shape it.

    Raises:
        InvalidRequest: a value about positions is of the wrong type.
        UnsupportedModel: the document asks for a model that is no plain decoder, or for positions
            of an unknown kind.
    """
    document.ignore(IRRELEVANT)
    read_positions(document)
    for key in _NOT_A_DECODER:
        document.expect(key, False, {})


def activation(document: ConfigDocument, *usual: str, key: str = "hidden_act") -> None:
    """Accept the activation that the type of model has, or none named."""
    document.expect(key, *usual)


def window_of_all_layers(document: ConfigDocument, default: int | None = None) -> AttentionPattern:
    """One window for every layer under "sliding_window"; null means none, absent ``default``."""
    if "sliding_window" in document:
        return SlidingAttention(document.size("sliding_window", MAX_CONTEXT))
    if default is None or document.has_key("sliding_window"):
        return GlobalAttention()
    document.defaults["sliding_window"] = default
    return SlidingAttention(default)


def interleaved(document: ConfigDocument, layers: int, window: int, every: int) -> AttentionPattern:
    """Windowed layers with every ``every``-th global, checked against "layer_types" if given.

    Raises:
        UnsupportedModel: the layers listed follow another pattern.
    """
    names = ("sliding_attention", "full_attention")
    check_layer_types(document, [names[(layer + 1) % every == 0] for layer in range(layers)])
    return InterleavedAttention(window, every)


def check_layer_types(
    document: ConfigDocument, expected: Sequence[str], key: str = "layer_types"
) -> None:
    """Refuse a list of layers that differs from what the rest of the document says."""
    given = document.texts(key)
    if given is None:
        return
    if len(given) != len(expected):
        document.wrong(key, "give one entry a layer")
    if list(given) != list(expected):
        document.refuse(key, "this pattern of layers is not understood")


def model_spec(
    frame: Frame,
    family: str,
    *,
    intermediate_size: int,
    mlp: Mlp = Mlp.SWIGLU,
    qkv_bias: bool = False,
    attention: AttentionPattern | None = None,
    moe: MoeSpec | None = None,
    mla: MlaSpec | None = None,
    extras: ModelExtras | None = None,
) -> ModelSpec:
    """The model of a frame and its parts, without a name yet."""
    pattern = attention or GlobalAttention()
    return ModelSpec(
        id="",
        family=family,
        arch=_arch(frame, pattern, moe, mla),
        num_layers=frame.num_layers,
        hidden_size=frame.hidden_size,
        num_attention_heads=frame.num_attention_heads,
        num_kv_heads=frame.num_kv_heads,
        head_dim=frame.head_dim,
        intermediate_size=intermediate_size,
        vocab_size=frame.vocab_size,
        tied_embeddings=frame.tied_embeddings,
        max_context=frame.max_context,
        mlp=mlp,
        qkv_bias=qkv_bias,
        attention=pattern,
        moe=moe,
        mla=mla,
        extras=extras or ModelExtras(),
    )


_KINDS = {"dsa": "mla-dsa", "csa_hca": "csa-hca", "hybrid_linear": "hybrid-gdn"}


def _arch(frame: Frame, pattern: AttentionPattern, moe: MoeSpec | None, mla: MlaSpec | None) -> str:
    """The catalogue's short words for the architecture: "dense-gqa", "moe-mla"."""
    several = "mha" if frame.num_kv_heads == frame.num_attention_heads else "gqa"
    heads = "mla" if mla is not None else several
    kind = _KINDS.get(pattern.kind, pattern.kind.replace("_", "-"))
    if isinstance(pattern, GlobalAttention | SlidingAttention | InterleavedAttention):
        kind = heads
    return f"{'dense' if moe is None else 'moe'}-{kind}"
