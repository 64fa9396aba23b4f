"""A checkpoint as probes see it: the reference model, its embedding table, its tokens' texts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.inference.model.config import ModelConfig
from engine.inference.model.reference import ReferenceModel, Tap
from engine.inference.probes.arrays import Piece
from engine.inference.probes.embeddings import EmbeddingTable
from engine.inference.probes.weights import WeightsOnDemand
from engine.inference.weights.checkpoint import Checkpoint


class ProbeModel:
    """Float32 on the CPU, with its own weights: quantised and packed lanes cannot share theirs.

    Memory: the embedding (and an untied head) in float32 from the first use on, and one layer at a
    time, or as many as ``layer_bytes`` holds. Not for several threads at once.
    """

    def __init__(self, checkpoint: Checkpoint, *, layer_bytes: int = 0) -> None:
        tokenizer = checkpoint.tokenizer()
        self.config: ModelConfig = checkpoint.config
        self.piece: Piece = tokenizer.piece
        self.text = tokenizer.decode
        self.num_tokens = tokenizer.vocab_size
        """Tokens that texts are made of: ids from here on have rows and logits but no text."""
        self._weights = WeightsOnDemand(checkpoint, layer_bytes)
        self.reference = ReferenceModel(checkpoint, self._weights)
        self._unknown = torch.tensor(tokenizer.unknown_ids(tokenizer.vocab_size), dtype=torch.int64)
        stored = checkpoint.tensors["embed"]
        self.embeddings = EmbeddingTable(
            lambda: self._weights["embed"],
            stored.storage,
            self.piece,
            self.num_tokens,
            self._unknown,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of weights that are in memory now."""
        return self._weights.nbytes

    def sampled_logits(self, residual_tm: Tensor) -> Tensor:
        """``[t, v]``: final norm and head, over the tokens that have a text; -inf for holes."""
        return self.only_known(self.reference.head(residual_tm))

    def only_known(self, logits_tv: Tensor) -> Tensor:
        """Logits of the tokens that have a text; -inf for holes."""
        return logits_tv[:, : self.num_tokens].index_fill(1, self._unknown, -math.inf)

    @torch.inference_mode()
    def next_logits(self, texts: Sequence[Sequence[int]], taps: Sequence[Tap]) -> list[Tensor]:
        """The logits ``[v]`` after each text, all computed again, each with its own tap.

        Layer by layer for all texts, so that a layer's weights are read once.
        """
        reference = self.reference
        pairs = list(zip(texts, taps, strict=True))
        streams = [reference.embed(text, tap) for text, tap in pairs]
        for index in range(self.config.num_layers):
            streams = [
                reference.layer(index, x_tm, tap) for x_tm, tap in zip(streams, taps, strict=True)
            ]
        return [self.sampled_logits(x_tm[-1:])[0] for x_tm in streams]
