"""A tiny random model that is made in memory: for tests, and as the labelled last resort.

Its answers are noise. Everything around it is real: byte-level BPE with merges, control tokens, a
chat template, grouped-query attention, and logits that differ enough for greedy decoding to be
stable.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.inference import tokenizer as ours
from engine.inference.model.config import ModelConfig
from engine.inference.weights.checkpoint import Checkpoint, stored_floats

TINY_VOCAB_SIZE = 512
_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_BEGIN, _END = 1, 2

TINY_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Merges are made from these words front to back ("Ġt", "Ġth", "Ġthe"), so that ordinary English
# takes fewer tokens than bytes.
_WORDS = (
    "the of and to in is was for that with as on are it be this from which have not or by at "
    "an were but had their has one all they you he her his she there been if who would more when "
    "what so can out about up said some into them then could time other only its people than now "
    "very like over our first after also where how made many before way years through just such "
    "because model token user system assistant question answer hello world "
    "capital france city country water small large number word language think story morning"
)


def tiny_random_checkpoint(
    seed: int = 0, *, tied_embeddings: bool = False, padding_rows: int = 0
) -> Checkpoint:
    """Two layers of width 64 over 512 tokens; the same weights for the same seed, everywhere.

    ``padding_rows``: rows of the embedding above the tokenizer's last token, as models have whose
    vocabulary was rounded up.
    """
    config = ModelConfig(
        name="tiny-random",
        family="llama",
        num_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        num_kv_heads=2,
        head_dim=16,
        intermediate_size=160,
        vocab_size=TINY_VOCAB_SIZE + padding_rows,
        tied_embeddings=tied_embeddings,
        max_context=2_048,
        rope_theta=10_000.0,
        norm_eps=1e-5,
        eos_token_ids=(_END,),
        bos_token_id=None,
    )
    generator = np.random.default_rng(seed)
    tensors = {
        name: stored_floats(_random_weights(generator, name, shape))
        for name, shape in config.tensor_shapes().items()
    }
    return Checkpoint(
        config=config,
        tensors=tensors,
        file_bytes=4 * config.num_parameters,
        chat_template=TINY_CHAT_TEMPLATE,
        build_tokenizer=_tokenizer,
    )


def _random_weights(
    generator: np.random.Generator, name: str, shape: tuple[int, ...]
) -> npt.NDArray[np.float32]:
    """Normal weights that keep activations near unit size and spread the logits by about 3."""
    noise = generator.standard_normal(shape, dtype=np.float32)
    if name.endswith("norm"):
        return 1 + 0.1 * noise
    if name == "embed":
        return noise
    return noise * np.float32((3.0 if name == "lm_head" else 1.5) / np.sqrt(shape[1]))


def _tokenizer() -> ours.Tokenizer:
    alphabet = sorted(ours.BYTE_LEVEL_ALPHABET, key=ours.BYTE_LEVEL_ALPHABET.__getitem__)
    tokens = {token: number for number, token in enumerate((*_CONTROL, *alphabet))}
    merges: list[tuple[str, str]] = []
    for word in _WORDS.split():
        left = "Ġ"
        for letter in word:
            if left + letter not in tokens and len(tokens) < TINY_VOCAB_SIZE:
                tokens[left + letter] = len(tokens)
                merges.append((left, letter))
            left += letter
    backend = Tokenizer(models.BPE(tokens, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in _CONTROL])
    return ours.Tokenizer(
        backend,
        ours.TokenizerSettings(
            special_tokens={"bos_token": _CONTROL[_BEGIN], "eos_token": _CONTROL[_END]},
            chat_template=TINY_CHAT_TEMPLATE,
        ),
    )
