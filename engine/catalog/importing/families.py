"""Which types of models are understood, and which reader understands each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.catalog.importing import dense, experts, hybrid, latent
from engine.catalog.importing.document import ConfigDocument
from engine.catalog.model_spec import ModelSpec
from engine.errors import UnsupportedModel

Reader = Callable[[ConfigDocument], ModelSpec]

READERS: Mapping[str, Reader] = {
    "llama": dense.read_llama,
    "mistral": dense.read_mistral,
    "qwen2": dense.read_qwen2,
    "qwen3": dense.read_qwen3,
    "gemma": dense.read_gemma,
    "gemma2": dense.read_gemma2,
    "gemma3_text": dense.read_gemma3,
    "phi3": dense.read_phi3,
    "gpt2": dense.read_gpt2,
    "mixtral": experts.read_mixtral,
    "qwen3_moe": experts.read_qwen3_moe,
    "gpt_oss": experts.read_gpt_oss,
    "glm4_moe": experts.read_glm4_moe,
    "minimax_m2": experts.read_minimax_m2,
    "deepseek_v2": latent.read_deepseek_v2,
    "deepseek_v3": latent.read_deepseek_v3,
    "kimi_k2": latent.read_kimi_k2,
    "deepseek_v32": latent.read_deepseek_v32,
    "glm_moe_dsa": latent.read_glm_moe_dsa,
    "deepseek_v4": latent.read_deepseek_v4,
    "qwen3_next": hybrid.read_qwen3_next,
    "qwen3_5_text": hybrid.read_qwen3_5,
    "qwen3_5_moe_text": hybrid.read_qwen3_5_moe,
    "nemotron_h": hybrid.read_nemotron_h,
}


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A model that sees as well: its language model stands under "text_config".

    ``texts`` are the types that the inner document may have; the first one is meant where it
    names none.
    """

    texts: tuple[str, ...]


WRAPPERS: Mapping[str, Wrapper] = {
    "gemma3": Wrapper(("gemma3_text",)),
    "qwen3_5": Wrapper(("qwen3_5_text",)),
    "qwen3_5_moe": Wrapper(("qwen3_5_moe_text",)),
    "kimi_k25": Wrapper(("deepseek_v3", "kimi_k2")),
}

# The other towers and how they meet the text: not part of the language model.
_TOWERS = ("vision_config", "audio_config", "mm_tokens_per_image", "boi_token_index",
    "eoi_token_index", "image_token_index", "video_token_index", "media_placeholder_token_id",
    "video_placeholder", "use_unified_vision_chunk", "language_model_only",
    "projection_hidden_size", "projection_layer_norm_eps")  # fmt: skip

# The classes that predict the next token, as transformers 5.24 or the model's own files call them.
CLASSES: Mapping[str, tuple[str, ...]] = {
    "llama": ("LlamaForCausalLM", "LLaMAForCausalLM"),
    "mistral": ("MistralForCausalLM",),
    "qwen2": ("Qwen2ForCausalLM",),
    "qwen3": ("Qwen3ForCausalLM",),
    "gemma": ("GemmaForCausalLM",),
    "gemma2": ("Gemma2ForCausalLM",),
    "gemma3_text": ("Gemma3ForCausalLM",),
    "phi3": ("Phi3ForCausalLM",),
    "gpt2": ("GPT2LMHeadModel",),
    "mixtral": ("MixtralForCausalLM",),
    "qwen3_moe": ("Qwen3MoeForCausalLM",),
    "gpt_oss": ("GptOssForCausalLM",),
    "glm4_moe": ("Glm4MoeForCausalLM",),
    "minimax_m2": ("MiniMaxM2ForCausalLM",),
    "deepseek_v2": ("DeepseekV2ForCausalLM",),
    "deepseek_v3": ("DeepseekV3ForCausalLM",),
    "kimi_k2": ("DeepseekV3ForCausalLM", "KimiK2ForCausalLM"),
    "deepseek_v32": ("DeepseekV32ForCausalLM",),
    "glm_moe_dsa": ("GlmMoeDsaForCausalLM",),
    "deepseek_v4": ("DeepseekV4ForCausalLM",),
    "qwen3_next": ("Qwen3NextForCausalLM",),
    "qwen3_5_text": ("Qwen3_5ForCausalLM",),
    "qwen3_5_moe_text": ("Qwen3_5MoeForCausalLM",),
    "nemotron_h": ("NemotronHForCausalLM",),
    "gemma3": ("Gemma3ForConditionalGeneration",),
    "qwen3_5": ("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"),
    "qwen3_5_moe": ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"),
    "kimi_k25": ("KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"),
}


@dataclass(frozen=True, slots=True)
class Found:
    """The part of a document that describes the language model, and its reader.

    ``left_out`` names parts of the document's model that are not the language model.
    """

    text: ConfigDocument
    reader: Reader
    model_type: str
    left_out: tuple[str, ...]


def find(document: ConfigDocument) -> Found:
    """The language model in a document, told by "model_type".

    Raises:
        InvalidRequest: "model_type" is missing or "text_config" no object.
        UnsupportedModel: the type is not one that is understood.
    """
    model_type = document.plain_text("model_type")
    if not model_type:
        document.wrong("model_type", "is missing; paste the whole config.json of the model")
    wrapper = WRAPPERS.get(model_type)
    if wrapper is None:
        reader = _reader(document, model_type)
        _check_classes(document, model_type)
        return Found(document, reader, model_type, ())
    _check_classes(document, model_type)
    text = document.inner("text_config")
    if text is None:
        document.wrong("text_config", "is missing; the language model is described there")
    inner_type = text.plain_text("model_type") or wrapper.texts[0]
    if inner_type not in wrapper.texts:
        text.refuse("model_type", f"only {', '.join(wrapper.texts)} goes with {model_type}")
    _check_classes(text, model_type, inner_type)
    left_out = tuple(key for key in ("vision_config", "audio_config") if key in document)
    document.ignore(_TOWERS)
    _tied_outside(document, text)
    return Found(text, _reader(text, inner_type), inner_type, left_out)


def _reader(document: ConfigDocument, model_type: str) -> Reader:
    reader = READERS.get(model_type)
    if reader is None:
        known = ", ".join(sorted([*READERS, *WRAPPERS]))
        raise UnsupportedModel(
            f"{document.field('model_type')}: this type is not understood; known are {known}",
            field=document.field("model_type"),
        )
    return reader


def _tied_outside(document: ConfigDocument, text: ConfigDocument) -> None:
    """The wrapper's "tie_word_embeddings" holds for its text, which must not say otherwise."""
    if "tie_word_embeddings" not in document:
        return
    outside = document.flag("tie_word_embeddings", default=False)
    text.default("tie_word_embeddings", outside)
    text.expect("tie_word_embeddings", outside)


def _check_classes(document: ConfigDocument, *model_types: str) -> None:
    """Refuse "architectures" that are none of these types', or that end in something else."""
    known = [name for model_type in model_types for name in CLASSES[model_type]]
    names = document.texts("architectures")
    if names is not None and not set(names) <= set(known):
        document.refuse("architectures", f"only {', '.join(known)} is understood for this type")
