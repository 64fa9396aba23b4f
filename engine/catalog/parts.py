"""Parts that only some models have: experts, latent attention, and the small print."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mlp(StrEnum):
    """The feed-forward block. The gated ones have three matrices, the others two."""

    SWIGLU = "swiglu"
    GEGLU = "geglu"
    GELU2 = "gelu2"
    RELU2_2 = "relu2_2"

    @property
    def gated(self) -> bool:
        return self in (Mlp.SWIGLU, Mlp.GEGLU)

    @property
    def matrices(self) -> int:
        return 3 if self.gated else 2


class Norm(StrEnum):
    """RMSNorm has a weight a channel, LayerNorm a weight and a bias."""

    RMS = "RMSNorm"
    LAYER = "LayerNorm"

    @property
    def vectors(self) -> int:
        return 2 if self is Norm.LAYER else 1


class QkNorm(StrEnum):
    """Norms on queries and keys: none, shared by all heads, or over all heads of a layer."""

    NONE = "none"
    PER_HEAD = "per_head"
    PER_LAYER = "per_layer"


@dataclass(frozen=True, slots=True)
class MoeSpec:
    """A mixture of experts in place of the MLP, from layer ``first_dense_layers`` on."""

    num_experts: int
    top_k: int
    expert_intermediate: int
    num_shared_experts: int
    shared_intermediate: int
    first_dense_layers: int
    router: str
    shared_gate: bool = False

    def expected_experts(self, tokens: int) -> float:
        """Distinct experts of a layer that ``tokens`` tokens touch, if routing is uniform.

        E (1 - (1 - k/E)^m): each expert is missed by all m tokens with probability (1 - k/E)^m.
        """
        return self.num_experts * (1 - (1 - self.top_k / self.num_experts) ** tokens)


@dataclass(frozen=True, slots=True)
class MlaSpec:
    """Multi-head latent attention: the cache holds one latent and one rotated key a token."""

    q_lora_rank: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int

    @property
    def cached_elements(self) -> int:
        """Numbers a token and layer in the cache, whatever the number of heads."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    def layer_parameters(self, hidden_size: int, heads: int) -> int:
        """Down- and up-projections with their norms; rank 0 means one plain query projection."""
        query_size = heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        if self.q_lora_rank:
            query = self.q_lora_rank * (hidden_size + 1 + query_size)
        else:
            query = hidden_size * query_size
        down = hidden_size * self.cached_elements + self.kv_lora_rank
        up = self.kv_lora_rank * heads * (self.qk_nope_head_dim + self.v_head_dim)
        return query + down + up + heads * self.v_head_dim * hidden_size


@dataclass(frozen=True, slots=True)
class ModelExtras:
    """The small print of an architecture; a field at its default means "as usual".

    ``hc_*`` are DeepSeek-V4's hyper-connections, which keep ``hc_mult`` residual streams and mix
    them before and after each block. ``mtp_layers`` predict further tokens and are not counted.
    """

    learned_positions: int = 0
    all_biases: bool = False
    norm: Norm = Norm.RMS
    norms_per_layer: int = 2
    qk_norm: QkNorm = QkNorm.NONE
    logit_softcap: bool = False
    attn_sinks: bool = False
    attn_output_gate: bool = False
    mtp_layers: int = 0
    hc_mult: int = 0
    hc_sinkhorn_iters: int = 0
    num_hash_layers: int = 0
    expert_dtype: str = ""
    released_weights: str = ""

    def hyper_connection_parameters(self, hidden_size: int) -> int:
        """Of one layer: mixing for attention and for the experts, each with bias and scales."""
        if not self.hc_mult:
            return 0
        outputs = (2 + self.hc_mult) * self.hc_mult
        return 2 * (outputs * (self.hc_mult * hidden_size + 1) + 3)

    def hyper_connection_head(self, hidden_size: int) -> int:
        """Of the model's end, where the streams become one again."""
        return self.hc_mult * (self.hc_mult * hidden_size + 1) + 1 if self.hc_mult else 0
