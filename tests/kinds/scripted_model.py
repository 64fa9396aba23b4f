"""A model that says what it is told to: real weights that make a given token follow another.

Each token of a script has an axis of its own in the embedding, and the layers add nothing, so that
the row of the head that reads this axis is the next token. It is written as a model folder and runs
through the whole engine, which knows nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from engine.inference.byte_level import BYTE_LEVEL_ALPHABET
from tests.engine.inference.weights.hf_folders import CONFIG, tokenizer_json, write_folder

HIDDEN, HEAD_DIM, FFN = 64, 16, 32
END = 2
"""The tiny tokenizer's end token, which ends every script."""

PADDING_ROWS = 13
"""Rows above the tokenizer's last token. The last one scores highest of all, always."""


class ScriptedModel:
    """Collects scripts; each is started by a prompt that ends in its first token."""

    def __init__(self, merges: Sequence[tuple[str, str]] = ()) -> None:
        """``merges``: further tokens of the tokenizer, each out of two that it has."""
        self.tokenizer = tokenizer_json()
        vocabulary: dict[str, int] = self.tokenizer["model"]["vocab"]
        for left, right in merges:
            vocabulary[left + right] = len(vocabulary)
            self.tokenizer["model"]["merges"].append([left, right])
        self.vocabulary = dict(vocabulary)
        self._following: dict[int, int] = {}

    def says(self, cue: str, *tokens: str | bytes) -> None:
        """After the token ``cue``, say these tokens one by one and end.

        A token may appear in all scripts once, for what follows depends on it alone.
        """
        ids = [self._id(token) for token in (cue, *tokens)]
        for token, after in pairwise([*ids, END]):
            if self._following.setdefault(token, after) != after:
                raise ValueError(f"two tokens follow {token}")

    def _id(self, token: str | bytes) -> int:
        content = token.encode() if isinstance(token, str) else token
        letters = {byte: letter for letter, byte in BYTE_LEVEL_ALPHABET.items()}
        return self.vocabulary["".join(letters[byte] for byte in content)]

    def write(self, folder: Path, max_context: int) -> Path:
        """The folder of a model with this context, for ``EngineOptions.model``."""
        rows = len(self.vocabulary) + PADDING_ROWS
        config = CONFIG | {
            "hidden_size": HIDDEN,
            "num_attention_heads": HIDDEN // HEAD_DIM,
            "num_key_value_heads": 2,
            "num_hidden_layers": 1,
            "intermediate_size": FFN,
            "max_position_embeddings": max_context,
            "tie_word_embeddings": False,
            "vocab_size": rows,
        }
        write_folder(folder, config, self._weights(rows))
        (folder / "tokenizer.json").write_text(json.dumps(self.tokenizer), encoding="utf-8")
        return folder

    def _weights(self, rows: int) -> Mapping[str, Any]:
        embed = np.zeros((rows, HIDDEN), np.float32)
        head = np.zeros((rows, HIDDEN), np.float32)
        # Whatever a prompt says before its cue: an axis that nothing follows.
        embed[:, 0] = 1
        for axis, (token, after) in enumerate(self._following.items(), 1):
            embed[token] = np.eye(HIDDEN, dtype=np.float32)[axis]
            head[after, axis] = 2
        head[-1] = 4
        layer = "model.layers.0."
        kv_size = 2 * HEAD_DIM
        shapes = {
            f"{layer}self_attn.q_proj.weight": (HIDDEN, HIDDEN),
            f"{layer}self_attn.k_proj.weight": (kv_size, HIDDEN),
            f"{layer}self_attn.v_proj.weight": (kv_size, HIDDEN),
            f"{layer}self_attn.o_proj.weight": (HIDDEN, HIDDEN),
            f"{layer}mlp.gate_proj.weight": (FFN, HIDDEN),
            f"{layer}mlp.up_proj.weight": (FFN, HIDDEN),
            f"{layer}mlp.down_proj.weight": (HIDDEN, FFN),
        }
        norms = (f"{layer}input_layernorm", f"{layer}post_attention_layernorm", "model.norm")
        return {
            "model.embed_tokens.weight": embed,
            "lm_head.weight": head,
            **{name: np.zeros(shape, np.float32) for name, shape in shapes.items()},
            **{f"{name}.weight": np.ones(HIDDEN, np.float32) for name in norms},
        }
