"""The numbers of one decoder-only model of the Llama family, as read from its file. Torch-free."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import FileFormatError, UnsupportedModel

# Far above any model this engine can hold in memory, and small enough that no product of two of
# them is a surprise: a corrupted file is refused before anything is allocated for it.
_UPPER_BOUNDS = {
    "num_layers": 1_024,
    "hidden_size": 65_536,
    "num_attention_heads": 1_024,
    "num_kv_heads": 1_024,
    "head_dim": 1_024,
    "intermediate_size": 1_048_576,
    "vocab_size": 1_048_576,
    "max_context": 16_777_216,
}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Pre-norm decoder: RMSNorm, rotary GQA attention without biases, SwiGLU MLP.

    ``eos_token_ids``: any of them ends a text. ``bos_token_id`` is set only where the tokenizer
    is meant to put it before every prompt. ``rope_theta`` is the base of the rotary frequencies
    theta**(-2i / head_dim), unscaled.

    Raises ``FileFormatError`` where a number is impossible and ``UnsupportedModel`` where it is
    possible but not run.
    """

    name: str
    family: str
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied_embeddings: bool
    max_context: int
    rope_theta: float
    norm_eps: float
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None

    def __post_init__(self) -> None:
        for field, upper in _UPPER_BOUNDS.items():
            value = getattr(self, field)
            if type(value) is not int or not 1 <= value <= upper:
                raise FileFormatError(f"{field} must be a whole number from 1 to {upper}")
        for field in ("rope_theta", "norm_eps"):
            value = getattr(self, field)
            if not (isinstance(value, float) and math.isfinite(value) and value > 0):
                raise FileFormatError(f"{field} must be a finite number above 0")
        if self.num_attention_heads % self.num_kv_heads:
            raise FileFormatError("num_attention_heads must be a multiple of num_kv_heads")
        if self.head_dim % 2:
            raise UnsupportedModel("head_dim is odd: rotary embeddings need pairs")
        specials = (
            *self.eos_token_ids,
            *(() if self.bos_token_id is None else [self.bos_token_id]),
        )
        if any(type(token) is not int or not 0 <= token < self.vocab_size for token in specials):
            raise FileFormatError("an end or begin token id is outside the vocabulary")

    @property
    def query_size(self) -> int:
        """Width of all query heads together; equals ``hidden_size`` in most models, not in all."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key (or value) heads together."""
        return self.num_kv_heads * self.head_dim

    @property
    def queries_per_kv_head(self) -> int:
        """Query heads that share one key-value head (1: multi-head attention)."""
        return self.num_attention_heads // self.num_kv_heads

    @property
    def num_parameters(self) -> int:
        """Weights in the checkpoint; tied embeddings are counted once."""
        return sum(math.prod(shape) for shape in self.tensor_shapes().values())

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor that a checkpoint of this config holds: canonical name → shape.

        Projections are ``[out_features, in_features]``, norms ``[hidden_size]``, embeddings and
        ``lm_head`` (absent when tied) ``[vocab_size, hidden_size]``.
        """
        hidden = self.hidden_size
        layer = {
            "attn_norm": (hidden,),
            "q": (self.query_size, hidden),
            "k": (self.kv_size, hidden),
            "v": (self.kv_size, hidden),
            "o": (hidden, self.query_size),
            "mlp_norm": (hidden,),
            "gate": (self.intermediate_size, hidden),
            "up": (self.intermediate_size, hidden),
            "down": (hidden, self.intermediate_size),
        }
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab_size, hidden)}
        for index in range(self.num_layers):
            shapes |= {f"layers.{index}.{part}": shape for part, shape in layer.items()}
        shapes["final_norm"] = (hidden,)
        if not self.tied_embeddings:
            shapes["lm_head"] = (self.vocab_size, hidden)
        return shapes
