"""Tokenizers of other families for tests, built from a few dozen tokens, and the default model's
built a second time from what the ``gguf`` package reads."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from engine.inference.weights.default import installed_file
from engine.inference.weights.fetch import SMOLLM2

LLAMA2_SPECIALS = ("<unk>", "<s>", "</s>")


def default_model_path() -> Path:
    path = installed_file(SMOLLM2)
    assert path is not None
    return path


@cache
def default_backend() -> tuple[Tokenizer, str]:
    """The default model's tokenizer without our code, and its chat template."""
    fields = gguf.GGUFReader(default_model_path()).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    backend.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    backend.add_special_tokens(
        [AddedToken(t, special=True) for t, kind in zip(tokens, kinds, strict=True) if kind == 3]
    )
    return backend, fields["tokenizer.chat_template"].contents()


def llama2_backend(*, legacy: bool) -> Tokenizer:
    """Plain text with ▁ for spaces and <0xNN> for other bytes. ``legacy`` puts the first ▁ with a
    normalizer, as old conversions do; newer ones with a pre-tokenizer, before the first part only.
    """
    letters = [*"▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,!?\n[]</>|_"]
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("h", "e"), ("l", "o"), ("▁", "▁")]
    tokens = [*LLAMA2_SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    tokens += [left + right for left, right in merges]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    backend = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    if legacy:
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    backend.add_special_tokens([AddedToken(text, special=True) for text in LLAMA2_SPECIALS])
    return backend
