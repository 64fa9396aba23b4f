"""The structure of a model; parameters and bytes follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.catalog import kv_cache
from engine.catalog.attention import (
    AttentionPattern,
    GlobalAttention,
    InterleavedAttention,
    SlidingAttention,
)
from engine.catalog.parameters import ParameterCount, count_parameters
from engine.catalog.parts import MlaSpec, Mlp, ModelExtras, MoeSpec, Norm, QkNorm
from engine.catalog.precision import Number


@dataclass(frozen=True)
class ModelSpec:
    """The structure of one model. ``head_dim`` is its own number, not hidden size over heads.

    ``source`` says where the structure was read; ``verified`` that every number was. Derived
    values are properties. Bytes take bits a number, scales included (``NumberFormat.bits``).
    """

    id: str
    family: str
    arch: str
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied_embeddings: bool
    max_context: int
    mlp: Mlp = Mlp.SWIGLU
    qkv_bias: bool = False
    attention: AttentionPattern = field(default_factory=GlobalAttention)
    moe: MoeSpec | None = None
    mla: MlaSpec | None = None
    extras: ModelExtras = field(default_factory=ModelExtras)
    nominal_params: str = ""
    source: str = ""
    verified: bool = False
    notes: str = ""

    @classmethod
    def dense(
        cls,
        *,
        id: str,
        num_layers: int,
        hidden_size: int,
        num_attention_heads: int,
        num_kv_heads: int,
        head_dim: int,
        intermediate_size: int,
        vocab_size: int,
        tied_embeddings: bool,
        max_context: int,
        family: str = "",
        mlp: str = Mlp.SWIGLU,
        norm: str = Norm.RMS,
        norms_per_layer: int = 2,
        qk_norm: str = QkNorm.NONE,
        qkv_bias: bool = False,
        all_biases: bool = False,
        learned_positions: int = 0,
        logit_softcap: bool = False,
        window: int | None = None,
        global_every: int | None = None,
        source: str = "read from the weights file",
    ) -> ModelSpec:
        """A model such as one loaded from a file; a Llama where nothing else is said.

        All arguments are plain numbers, texts and flags. ``window``: of every layer, or of all but
        each ``global_every``-th.

        Raises:
            ValueError: no such MLP or norm.
        """
        return cls(
            id=id,
            family=family,
            arch="dense-mha" if num_kv_heads == num_attention_heads else "dense-gqa",
            num_layers=num_layers,
            hidden_size=hidden_size,
            num_attention_heads=num_attention_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            intermediate_size=intermediate_size,
            vocab_size=vocab_size,
            tied_embeddings=tied_embeddings,
            max_context=max_context,
            mlp=Mlp(mlp),
            qkv_bias=qkv_bias,
            attention=_windowed(window, global_every),
            extras=ModelExtras(
                learned_positions=learned_positions,
                all_biases=all_biases,
                norm=Norm(norm),
                norms_per_layer=norms_per_layer,
                qk_norm=QkNorm(qk_norm),
                logit_softcap=logit_softcap,
            ),
            source=source,
            verified=True,
        )

    @property
    def query_size(self) -> int:
        """H·dh: numbers in the queries of one token."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Hkv·dh: numbers in the keys (or the values) of one token and layer."""
        return self.num_kv_heads * self.head_dim

    @property
    def is_dense(self) -> bool:
        """No experts and no latent, sparse, compressed or recurrent layers."""
        plain = GlobalAttention | SlidingAttention | InterleavedAttention
        return self.moe is None and self.mla is None and isinstance(self.attention, plain)

    @property
    def parameters(self) -> ParameterCount:
        """The parameters by the way a step uses them."""
        return count_parameters(self)

    @property
    def num_parameters(self) -> int:
        """All parameters, a tied embedding once; multi-token-prediction layers left out."""
        return self.parameters.total

    @property
    def num_streamed_parameters(self) -> int:
        """Parameters that a decode step of one token reads whole.

        Looked-up rows (an untied input embedding, learned positions) and idle experts are not in
        it; a tied embedding is, as the LM head reads it.
        """
        return self.parameters.active

    @property
    def state_bytes_per_sequence(self) -> int:
        """Recurrent state of a sequence, whatever its length; 0 for attention-only models."""
        return kv_cache.state_bytes_per_sequence(self)

    def kv_bytes_per_token(self, kv_bits: float = 16) -> Number:
        """Bytes of cache that one more token adds while every window still has room."""
        return kv_cache.kv_bytes_per_token(self, kv_bits)

    def kv_cache_bytes(self, tokens: int, kv_bits: float = 16, block_size: int = 1) -> Number:
        """Bytes of cache and state of one sequence of ``tokens`` positions."""
        return kv_cache.kv_cache_bytes(self, tokens, kv_bits, block_size)


def _windowed(window: int | None, global_every: int | None) -> AttentionPattern:
    if window is None:
        return GlobalAttention()
    if global_every is None:
        return SlidingAttention(window)
    return InterleavedAttention(window, global_every)
