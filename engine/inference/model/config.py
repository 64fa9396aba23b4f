"""The numbers of one decoder-only model, as read from its file. Torch-free.

A family is data: which norm, which MLP, which biases, who sees how far. The model's code knows no
family by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.catalog.attention import GlobalAttention, InterleavedAttention, SlidingAttention
from engine.catalog.parts import Mlp, Norm
from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.rope_frequencies import Rope, RopeScaling

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


_POSITIVE_IF_ANY = (
    "rope_theta",
    "local_rope_theta",
    "query_pre_attn_scalar",
    "attention_softcap",
    "logit_softcap",
)
_MLPS = (Mlp.SWIGLU, Mlp.GEGLU, Mlp.GELU2)

LayerAttention = GlobalAttention | SlidingAttention | InterleavedAttention
_SEES_ALL = GlobalAttention()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A pre-norm decoder with grouped query heads. Without the optional fields, a Llama: RMSNorm,
    rotary attention without biases, SwiGLU.

    ``eos_token_ids``: any of them ends a text. ``bos_token_id`` is set only where the tokenizer
    is meant to put it before every prompt.

    ``rope_theta`` is the base of the rotary embedding, stretched by ``rope_scaling``; None where
    the model looks up a learned vector a position instead. ``local_rope_theta`` is the base of
    layers with a window, never stretched, where they have one of their own.

    ``attention``: which layers see all earlier positions and which a window of them.
    ``query_pre_attn_scalar``: scores are divided by its root; by that of ``head_dim`` if None.
    ``attention_softcap`` and ``logit_softcap``: c · tanh(x / c) of scores and of logits.
    ``embedding_scale``: what looked-up rows are multiplied with. ``norm_offset``: what is added to
    the norms' stored weights. ``post_norms``: attention and MLP have a norm behind them too.
    ``qk_norm``: RMSNorm of each head's queries and keys. ``qkv_bias``, ``all_biases`` (those of
    every other matrix but the LM head) as in the catalogue.

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
    rope_theta: float | None
    norm_eps: float
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    rope_scaling: RopeScaling | None = None
    local_rope_theta: float | None = None
    attention: LayerAttention = _SEES_ALL
    query_pre_attn_scalar: float | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    embedding_scale: float = 1.0
    mlp: Mlp = Mlp.SWIGLU
    norm: Norm = Norm.RMS
    norm_offset: float = 0.0
    post_norms: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    all_biases: bool = False

    def __post_init__(self) -> None:
        for field, upper in _UPPER_BOUNDS.items():
            value = getattr(self, field)
            if type(value) is not int or not 1 <= value <= upper:
                raise FileFormatError(f"{field} must be a whole number from 1 to {upper}")
        for field in ("norm_eps", "embedding_scale"):
            self._require_positive(field)
        for field in _POSITIVE_IF_ANY:
            if getattr(self, field) is not None:
                self._require_positive(field)
        self._check_attention()
        specials = (
            *self.eos_token_ids,
            *(() if self.bos_token_id is None else [self.bos_token_id]),
        )
        if any(type(token) is not int or not 0 <= token < self.vocab_size for token in specials):
            raise FileFormatError("an end or begin token id is outside the vocabulary")
        if self.mlp not in _MLPS:
            raise UnsupportedModel(f"the MLP {self.mlp} is not run here")

    def _check_attention(self) -> None:
        if self.num_attention_heads % self.num_kv_heads:
            raise FileFormatError("num_attention_heads must be a multiple of num_kv_heads")
        if self.rope_theta is not None and self.head_dim % 2:
            raise UnsupportedModel("head_dim is odd: rotary embeddings need pairs")
        if self.rope_theta is None and (self.rope_scaling or self.local_rope_theta):
            raise FileFormatError("learned positions have no rotary embedding to change")
        window = getattr(self.attention, "window", 1)
        if type(window) is not int or window < 1:
            raise FileFormatError("the attention's window must be a whole number from 1")
        for layer in {0, self.num_layers - 1}:
            self.rope_of(layer)  # raises where a base turns nothing

    def _require_positive(self, field: str) -> None:
        value = getattr(self, field)
        if not (isinstance(value, float) and math.isfinite(value) and value > 0):
            raise FileFormatError(f"{field} must be a finite number above 0")

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
    def attention_scale(self) -> float:
        """What q · k is multiplied with."""
        return (self.query_pre_attn_scalar or self.head_dim) ** -0.5

    def window_of(self, layer: int) -> int | None:
        """How many positions a token sees in that layer, itself included; None for all."""
        if isinstance(self.attention, GlobalAttention):
            return None
        if isinstance(self.attention, InterleavedAttention):
            is_global = (layer + 1) % self.attention.global_every == 0
            return None if is_global else self.attention.window
        return self.attention.window

    def rope_of(self, layer: int) -> Rope | None:
        """How queries and keys of that layer are turned; None if they are not."""
        if self.rope_theta is None:
            return None
        if self.local_rope_theta is not None and self.window_of(layer) is not None:
            return Rope(self.local_rope_theta)
        return Rope(self.rope_theta, self.rope_scaling)

    @property
    def num_parameters(self) -> int:
        """Weights in the checkpoint; tied embeddings are counted once."""
        return sum(math.prod(shape) for shape in self.tensor_shapes().values())

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor that a checkpoint of this config holds: canonical name → shape.

        Projections are ``[out_features, in_features]``, norms ``[hidden_size]`` or ``[head_dim]``,
        embeddings and ``lm_head`` (absent when tied) ``[vocab_size, hidden_size]``, ``positions``
        (only if learned) ``[max_context, hidden_size]``. A bias is named after what it is added to:
        ``layers.0.q_bias``.
        """
        hidden = self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab_size, hidden)}
        if self.rope_theta is None:
            shapes["positions"] = (self.max_context, hidden)
        layer = self._attention_shapes() | self._mlp_shapes()
        for index in range(self.num_layers):
            shapes |= {f"layers.{index}.{part}": shape for part, shape in layer.items()}
        shapes |= self._norm_shapes("final_norm")
        if not self.tied_embeddings:
            shapes["lm_head"] = (self.vocab_size, hidden)
        return shapes

    def _norm_shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        names = (name, f"{name}_bias") if self.norm is Norm.LAYER else (name,)
        return dict.fromkeys(names, (self.hidden_size,))

    def _attention_shapes(self) -> dict[str, tuple[int, ...]]:
        hidden = self.hidden_size
        widths = {"q": self.query_size, "k": self.kv_size, "v": self.kv_size}
        shapes = self._norm_shapes("attn_norm")
        shapes |= {name: (width, hidden) for name, width in widths.items()}
        if self.qkv_bias:
            shapes |= {f"{name}_bias": (width,) for name, width in widths.items()}
        if self.qk_norm:
            shapes |= {"q_norm": (self.head_dim,), "k_norm": (self.head_dim,)}
        shapes["o"] = (hidden, self.query_size)
        if self.all_biases:
            shapes["o_bias"] = (hidden,)
        return shapes | (self._norm_shapes("attn_post_norm") if self.post_norms else {})

    def _mlp_shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, inner = self.hidden_size, self.intermediate_size
        shapes = self._norm_shapes("mlp_norm")
        for name in ("gate", "up") if self.mlp.gated else ("up",):
            shapes[name] = (inner, hidden)
            if self.all_biases:
                shapes[f"{name}_bias"] = (inner,)
        shapes["down"] = (hidden, inner)
        if self.all_biases:
            shapes["down_bias"] = (hidden,)
        return shapes | (self._norm_shapes("mlp_post_norm") if self.post_norms else {})
