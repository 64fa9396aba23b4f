"""Models as data: their structure with its source; parameters and bytes follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from engine.catalog import kv_cache
from engine.catalog.attention import (
    AttentionPattern,
    CompressedAttention,
    GlobalAttention,
    HybridLinearAttention,
    HybridMamba2Attention,
    InterleavedAttention,
    SlidingAttention,
    SparseAttention,
)
from engine.catalog.loading import Table, read_catalogue
from engine.catalog.parameters import ParameterCount, count_parameters
from engine.catalog.parts import MlaSpec, Mlp, ModelExtras, MoeSpec, Norm, QkNorm
from engine.catalog.precision import Number
from engine.errors import FileFormatError, UnknownName


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
        qkv_bias: bool = False,
        source: str = "read from the weights file",
    ) -> ModelSpec:
        """A gated, RMS-normed, globally attending model, such as one loaded from a file."""
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
            qkv_bias=qkv_bias,
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


@cache
def all_models() -> tuple[ModelSpec, ...]:
    """Every model of the catalogue, by family.

    Raises:
        FileFormatError: a catalogue file is malformed, or an id occurs twice.
    """
    models: dict[str, ModelSpec] = {}
    for file in read_catalogue("models"):
        family = file.text("family")
        for entry in file.tables("models"):
            spec = _read_model(entry, family)
            if spec.id in models:
                raise FileFormatError(f"model {spec.id} occurs twice", field="id")
            models[spec.id] = spec
        file.done()
    return tuple(models.values())


@cache
def _by_id() -> dict[str, ModelSpec]:
    return {spec.id: spec for spec in all_models()}


def get_model(model_id: str) -> ModelSpec:
    """The model of that id, in any case.

    Raises:
        UnknownName: the catalogue has none of that id (field "model").
    """
    spec = _by_id().get(model_id.lower())
    if spec is None:
        raise UnknownName(
            "no model of this id in the catalogue; see the models list", field="model"
        )
    return spec


def _read_model(entry: Table, family: str) -> ModelSpec:
    spec = ModelSpec(
        id=entry.text("id"),
        family=family,
        arch=entry.text("arch"),
        num_layers=entry.integer("num_layers"),
        hidden_size=entry.integer("hidden_size"),
        num_attention_heads=entry.integer("num_attention_heads"),
        num_kv_heads=entry.integer("num_kv_heads"),
        head_dim=entry.integer("head_dim"),
        intermediate_size=entry.integer("intermediate_size"),
        vocab_size=entry.integer("vocab_size"),
        tied_embeddings=entry.flag("tied_embeddings"),
        max_context=entry.integer("max_context"),
        mlp=Mlp(entry.text("mlp")),
        qkv_bias=entry.flag("qkv_bias"),
        attention=_read_attention(entry.table("attention")),
        moe=_read_moe(entry.table("moe")),
        mla=_read_mla(entry.table("mla")),
        extras=_read_extras(entry.table("extras")),
        nominal_params=entry.text("nominal_params"),
        source=entry.text("source"),
        verified=entry.flag("verified"),
        notes=entry.text("notes", ""),
    )
    entry.done()
    return spec


def _read_attention(table: Table | None) -> AttentionPattern:
    if table is None:
        return GlobalAttention()
    kind = table.text("type")
    pattern: AttentionPattern
    if kind == SlidingAttention.kind:
        pattern = SlidingAttention(table.integer("window"))
    elif kind == InterleavedAttention.kind:
        pattern = InterleavedAttention(table.integer("window"), table.integer("global_every"))
    elif kind == SparseAttention.kind:
        pattern = SparseAttention(
            table.integer("index_n_heads"),
            table.integer("index_head_dim"),
            table.integer("index_topk"),
        )
    elif kind == CompressedAttention.kind:
        pattern = _read_compressed(table)
    elif kind == HybridLinearAttention.kind:
        pattern = HybridLinearAttention(
            full_attention_interval=table.integer("full_attention_interval"),
            linear_num_key_heads=table.integer("linear_num_key_heads"),
            linear_num_value_heads=table.integer("linear_num_value_heads"),
            linear_key_head_dim=table.integer("linear_key_head_dim"),
            linear_value_head_dim=table.integer("linear_value_head_dim"),
            conv_kernel=table.integer("conv_kernel"),
        )
    elif kind == HybridMamba2Attention.kind:
        pattern = HybridMamba2Attention(
            layer_pattern=table.text("layer_pattern"),
            mamba_num_heads=table.integer("mamba_num_heads"),
            mamba_head_dim=table.integer("mamba_head_dim"),
            ssm_state_size=table.integer("ssm_state_size"),
            n_groups=table.integer("n_groups"),
            conv_kernel=table.integer("conv_kernel"),
        )
    else:
        raise FileFormatError("unknown type of attention in the catalogue", field="type")
    table.done()
    return pattern


def _read_compressed(table: Table) -> CompressedAttention:
    return CompressedAttention(
        window=table.integer("window"),
        csa_ratio=table.integer("csa_ratio"),
        hca_ratio=table.integer("hca_ratio"),
        compress_ratios=table.integers("compress_ratios"),
        index_n_heads=table.integer("index_n_heads"),
        index_head_dim=table.integer("index_head_dim"),
        index_topk=table.integer("index_topk"),
        q_lora_rank=table.integer("q_lora_rank"),
        o_groups=table.integer("o_groups"),
        o_lora_rank=table.integer("o_lora_rank"),
        qk_rope_head_dim=table.integer("qk_rope_head_dim"),
    )


def _read_moe(table: Table | None) -> MoeSpec | None:
    if table is None:
        return None
    moe = MoeSpec(
        num_experts=table.integer("num_experts"),
        top_k=table.integer("top_k"),
        expert_intermediate=table.integer("expert_intermediate"),
        num_shared_experts=table.integer("num_shared_experts"),
        shared_intermediate=table.integer("shared_intermediate"),
        first_dense_layers=table.integer("first_dense_layers"),
        router=table.text("router"),
        shared_gate=table.flag("shared_gate", False),
    )
    table.done()
    return moe


def _read_mla(table: Table | None) -> MlaSpec | None:
    if table is None:
        return None
    mla = MlaSpec(
        q_lora_rank=table.integer("q_lora_rank"),
        kv_lora_rank=table.integer("kv_lora_rank"),
        qk_rope_head_dim=table.integer("qk_rope_head_dim"),
        qk_nope_head_dim=table.integer("qk_nope_head_dim"),
        v_head_dim=table.integer("v_head_dim"),
    )
    table.done()
    return mla


def _read_extras(table: Table | None) -> ModelExtras:
    if table is None:
        return ModelExtras()
    usual = ModelExtras()
    extras = ModelExtras(
        learned_positions=table.integer("learned_positions", 0),
        all_biases=table.flag("all_biases", False),
        norm=Norm(table.text("norm", usual.norm)),
        norms_per_layer=table.integer("norms_per_layer", usual.norms_per_layer),
        qk_norm=QkNorm(table.text("qk_norm", usual.qk_norm)),
        logit_softcap=table.flag("logit_softcap", False),
        attn_sinks=table.flag("attn_sinks", False),
        attn_output_gate=table.flag("attn_output_gate", False),
        mtp_layers=table.integer("mtp_layers", 0),
        hc_mult=table.integer("hc_mult", 0),
        hc_sinkhorn_iters=table.integer("hc_sinkhorn_iters", 0),
        num_hash_layers=table.integer("num_hash_layers", 0),
        expert_dtype=table.text("expert_dtype", ""),
        released_weights=table.text("released_weights", ""),
    )
    table.done()
    return extras
