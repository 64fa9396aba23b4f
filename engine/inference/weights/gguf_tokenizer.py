"""The tokenizer that a GGUF file carries in its metadata."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference import tokenizer as ours
from engine.inference.weights.gguf_reader import MetadataValue, StringArray

# Keys under ``tokenizer.`` that are read, or that say nothing about how ordinary text is split.
# Any other may change the ids, so it is refused rather than passed over.
_READ_KEYS = frozenset(
    f"tokenizer.ggml.{name}"
    for name in (
        "model", "pre", "tokens", "token_type", "merges", "scores", "add_bos_token",
        "add_eos_token", "add_space_prefix", "bos_token_id", "eos_token_id", "eot_token_id",
        "eom_token_id", "unknown_token_id", "padding_token_id", "seperator_token_id",
        "separator_token_id", "cls_token_id", "mask_token_id", "add_sep_token",
    )
) | {"tokenizer.chat_template", "tokenizer.chat_templates"}  # fmt: skip
_MUST_BE_FALSE = ("add_eos_token", "add_space_prefix", "add_sep_token")
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
_NAMED_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


# How Qwen2 and Qwen3 cut text (the pattern in their published tokenizer.json).
_QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    """How text is cut before merging, by the name that llama.cpp gives the rule."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "gpt-2":
        return byte_level
    if name == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, byte_level])
    if name == "qwen2":
        cut = pre_tokenizers.Split(Regex(_QWEN2_PATTERN), behavior="isolated")
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([cut, bytes_only])
    raise UnsupportedModel("tokenizer.ggml.pre names a way to cut text that is not known here")


def gguf_tokenizer(metadata: Mapping[str, MetadataValue]) -> ours.Tokenizer:
    """Build the byte-level BPE tokenizer that the metadata describes.

    Raises ``UnsupportedModel`` for another kind of tokenizer or a missing pre-tokenizer (older
    converters left it out; guessing would give wrong ids without a word), ``FileFormatError`` for
    lists that do not fit together.
    """
    _refuse_what_is_not_run(metadata)
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    merges = [_pair(merge) for merge in _strings(metadata, "tokenizer.ggml.merges")]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise FileFormatError("tokenizer.ggml.tokens has an entry twice")
    kinds = _token_kinds(metadata, len(tokens))
    pre = metadata["tokenizer.ggml.pre"]
    try:
        backend = Tokenizer(models.BPE(vocabulary, merges))
    except Exception as error:  # the library raises bare Exceptions, for merges out of vocabulary
        raise FileFormatError("tokenizer.ggml.merges do not fit tokenizer.ggml.tokens") from error
    backend.pre_tokenizer = _pre_tokenizer(str(pre))
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    template = chat_template(metadata)
    # A marker that the template writes is a control token, whatever kind the file gives it.
    written = [i for i in kinds[_USER_DEFINED] if tokens[i] in (template or "")]
    plain = [tokens[i] for i in kinds[_USER_DEFINED] if i not in written]
    control = [tokens[i] for i in (*kinds[_CONTROL], *written)]
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    backend.add_tokens([AddedToken(text, normalized=False) for text in plain])
    settings = ours.TokenizerSettings(
        spelling=ours.Spelling.BYTE_LEVEL,
        bos_token_id=begin_token(metadata),
        special_tokens=_named_tokens(metadata, tokens),
        chat_template=template,
        unused_ids=frozenset(kinds[_UNUSED]),
        shown_control_ids=frozenset(written),
    )
    return ours.Tokenizer(backend, settings)


def begin_token(metadata: Mapping[str, MetadataValue]) -> int | None:
    """The token that goes before every prompt, where the file says that one does."""
    if metadata.get("tokenizer.ggml.add_bos_token", False) is not True:
        return None
    token = metadata.get("tokenizer.ggml.bos_token_id")
    if not isinstance(token, int):
        raise FileFormatError("tokenizer.ggml.add_bos_token is set without a bos_token_id")
    return token


def end_tokens(metadata: Mapping[str, MetadataValue]) -> tuple[int, ...]:
    """Tokens that end a text or a turn."""
    keys = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
    found = (metadata.get(key) for key in keys)
    return tuple(dict.fromkeys(token for token in found if isinstance(token, int)))


def chat_template(metadata: Mapping[str, MetadataValue]) -> str | None:
    """The default chat template's source."""
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise FileFormatError("tokenizer.chat_template is not a string")
    return template


def _refuse_what_is_not_run(metadata: Mapping[str, MetadataValue]) -> None:
    if metadata.get("tokenizer.ggml.model") != "gpt2":
        raise UnsupportedModel("tokenizer.ggml.model is not gpt2 (byte-level BPE)")
    if not isinstance(metadata.get("tokenizer.ggml.pre"), str):
        raise UnsupportedModel(
            "tokenizer.ggml.pre is missing: the file does not say how text is cut, so its token ids"
            " would be guesses; convert the model again with a newer converter"
        )
    for name in _MUST_BE_FALSE:
        if metadata.get(f"tokenizer.ggml.{name}", False) is not False:
            raise UnsupportedModel(f"tokenizer.ggml.{name} is set, which is not run here")
    for key in metadata:
        named_template = key.startswith("tokenizer.chat_template.")
        if key.startswith("tokenizer.") and key not in _READ_KEYS and not named_template:
            raise UnsupportedModel(f"the metadata key {key[:80]} is not known here")


def _strings(metadata: Mapping[str, MetadataValue], key: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, StringArray) or not len(value):
        raise FileFormatError(f"{key} is not a list of strings")
    return list(value)


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not left or not right:
        raise FileFormatError("tokenizer.ggml.merges has an entry that is not a pair")
    return left, right


def _token_kinds(metadata: Mapping[str, MetadataValue], count: int) -> dict[int, list[int]]:
    """Ids by kind of token."""
    value = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(value, np.ndarray) or len(value) != count:
        raise FileFormatError("tokenizer.ggml.token_type does not have one number a token")
    return {
        kind: np.flatnonzero(value == kind).tolist() for kind in (_CONTROL, _USER_DEFINED, _UNUSED)
    }


def _named_tokens(metadata: Mapping[str, MetadataValue], tokens: list[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for name, key in _NAMED_TOKENS.items():
        token = metadata.get(f"tokenizer.ggml.{key}")
        if isinstance(token, int) and 0 <= token < len(tokens):
            named[name] = tokens[token]
    return named
