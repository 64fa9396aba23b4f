"""Readers of models with latent attention (MLA), sparse (DSA) and compressed (CSA/HCA) ones."""

from __future__ import annotations

from engine.catalog.attention import CompressedAttention, SparseAttention
from engine.catalog.importing.common import (
    MAX_CONTEXT,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    Frame,
    activation,
    check_layer_types,
    model_spec,
    read_frame,
)
from engine.catalog.importing.document import ConfigDocument
from engine.catalog.importing.experts import ROUTING, read_experts, routed_and_shared
from engine.catalog.model_spec import ModelSpec
from engine.catalog.parts import MlaSpec, ModelExtras

_LATENT_IRRELEVANT = ("qk_head_dim", "indexer_rope_interleave", "index_share_for_mtp_iteration")


def read_deepseek_v2(document: ConfigDocument) -> ModelSpec:
    """DeepSeek-V2 and V2-Lite, which has no low rank for its queries."""
    return _latent_model(document, "DeepSeek", router="softmax", mtp=0)


def read_deepseek_v3(document: ConfigDocument) -> ModelSpec:
    """DeepSeek-V3, V3.1 and R1; Kimi-K2 has the same layers."""
    return _latent_model(document, "DeepSeek", router="sigmoid", mtp=1)


def read_kimi_k2(document: ConfigDocument) -> ModelSpec:
    """Kimi-K2: the layers of DeepSeek-V3."""
    return _latent_model(document, "Kimi", router="sigmoid", mtp=0)


def read_deepseek_v32(document: ConfigDocument) -> ModelSpec:
    """DeepSeek-V3.2: an indexer in every layer."""
    return _latent_model(document, "DeepSeek", router="sigmoid", mtp=0, sparse=True)


def read_glm_moe_dsa(document: ConfigDocument) -> ModelSpec:
    """GLM-5: sparse attention with an indexer in every layer."""
    return _latent_model(document, "GLM", router="sigmoid", mtp=0, sparse=True)


def _latent_model(
    document: ConfigDocument, family: str, *, router: str, mtp: int, sparse: bool = False
) -> ModelSpec:
    mla = _read_mla(document)
    frame = _latent_frame(document, mla)
    activation(document, "silu")
    document.expect("attention_bias", False)
    document.expect("mlp_bias", False)
    document.ignore((*ROUTING, *_LATENT_IRRELEVANT))
    attention = _read_indexer(document, frame) if sparse else None
    width = document.size("moe_intermediate_size", MAX_WIDTH)
    moe = routed_and_shared(document, frame, width, router=router)
    document.expect("num_experts", moe.num_experts)
    first = moe.first_dense_layers
    check_layer_types(
        document,
        ["dense"] * first + ["sparse"] * (frame.num_layers - first),
        "mlp_layer_types",
    )
    return model_spec(
        frame,
        family,
        intermediate_size=document.size("intermediate_size", MAX_WIDTH),
        attention=attention,
        moe=moe,
        mla=mla,
        extras=ModelExtras(
            mtp_layers=document.size("num_nextn_predict_layers", MAX_LAYERS, low=0, default=mtp)
        ),
    )


def _read_mla(document: ConfigDocument) -> MlaSpec:
    # null: queries come from one plain projection.
    rank = document.optional_size("q_lora_rank", MAX_WIDTH)
    if rank is None and not document.has_key("q_lora_rank"):
        document.wrong("q_lora_rank", "is missing; give a whole number, or null for none")
    return MlaSpec(
        q_lora_rank=rank or 0,
        kv_lora_rank=document.size("kv_lora_rank", MAX_WIDTH),
        qk_rope_head_dim=document.size("qk_rope_head_dim", MAX_WIDTH),
        qk_nope_head_dim=document.size("qk_nope_head_dim", MAX_WIDTH),
        v_head_dim=document.size("v_head_dim", MAX_WIDTH),
    )


def _latent_frame(document: ConfigDocument, mla: MlaSpec) -> Frame:
    """All heads share one latent; "head_dim" says the rotated part only, or nothing."""
    heads = document.size("num_attention_heads", MAX_HEADS)
    document.expect("num_key_value_heads", heads)
    document.ignore(("head_dim",))
    return Frame(
        num_layers=document.size("num_hidden_layers", MAX_LAYERS),
        hidden_size=document.size("hidden_size", MAX_WIDTH),
        num_attention_heads=heads,
        num_kv_heads=heads,
        head_dim=mla.qk_nope_head_dim + mla.qk_rope_head_dim,
        vocab_size=document.size("vocab_size", MAX_VOCABULARY),
        tied_embeddings=document.flag("tie_word_embeddings", default=False),
        max_context=document.size("max_position_embeddings", MAX_CONTEXT),
    )


def _read_indexer(document: ConfigDocument, frame: Frame) -> SparseAttention:
    if "q_lora_rank" not in document:
        document.refuse("q_lora_rank", "an indexer needs low-rank queries")
    layers = frame.num_layers
    check_layer_types(document, ["indexed_attention"] * layers)
    # Layers may share the choice of an earlier one; only models in which each chooses are known.
    check_layer_types(document, ["full"] * layers, "indexer_types")
    document.expect("index_topk_freq", 1)
    if document.plain_text("index_topk_pattern").strip("F"):
        document.refuse("index_topk_pattern", "layers that share an indexer are not understood")
    document.ignore(("index_skip_topk_offset",))
    return SparseAttention(
        index_n_heads=document.size("index_n_heads", MAX_HEADS),
        index_head_dim=document.size("index_head_dim", MAX_WIDTH),
        index_topk=document.size("index_topk", MAX_CONTEXT),
    )


_V4_KINDS = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}


def read_deepseek_v4(document: ConfigDocument) -> ModelSpec:
    """DeepSeek-V4: compressed attention (CSA and HCA) and hyper-connections."""
    frame = read_frame(document, tied=False, kv_heads=1, head_dim=512)
    activation(document, "silu")
    document.expect("num_key_value_heads", 1)
    document.expect("attention_bias", False)
    document.expect("mlp_bias", False)
    document.ignore((*ROUTING, "swiglu_limit", "hc_eps", "compress_rope_theta"))
    document.ignore(("mlp_layer_types",))
    width = document.size("moe_intermediate_size", MAX_WIDTH)
    shared = document.size("n_shared_experts", 1, low=0, default=1)
    moe = read_experts(
        document,
        "n_routed_experts",
        width,
        router=document.text("scoring_func", ("sqrtsoftplus", "softmax", "sigmoid")),
        shared=shared,
        shared_width=width if shared else 0,
    )
    return model_spec(
        frame,
        "DeepSeek",
        intermediate_size=document.size("intermediate_size", MAX_WIDTH, default=width),
        attention=_read_compressed(document, frame),
        moe=moe,
        extras=ModelExtras(
            hc_mult=document.size("hc_mult", 64, default=4),
            hc_sinkhorn_iters=document.size("hc_sinkhorn_iters", 1000, low=0, default=20),
            num_hash_layers=document.size("num_hash_layers", MAX_LAYERS, low=0, default=3),
            mtp_layers=document.size("num_nextn_predict_layers", MAX_LAYERS, low=0, default=1),
        ),
    )


def _read_compressed(document: ConfigDocument, frame: Frame) -> CompressedAttention:
    return CompressedAttention(
        window=document.size("sliding_window", MAX_CONTEXT, default=128),
        csa_ratio=_V4_KINDS["compressed_sparse_attention"],
        hca_ratio=_V4_KINDS["heavily_compressed_attention"],
        compress_ratios=_ratios(document, frame.num_layers),
        index_n_heads=document.size("index_n_heads", MAX_HEADS),
        index_head_dim=document.size("index_head_dim", MAX_WIDTH),
        index_topk=document.size("index_topk", MAX_CONTEXT),
        q_lora_rank=document.size("q_lora_rank", MAX_WIDTH),
        o_groups=document.size("o_groups", MAX_HEADS),
        o_lora_rank=document.size("o_lora_rank", MAX_WIDTH),
        qk_rope_head_dim=document.size("qk_rope_head_dim", MAX_WIDTH, default=64),
    )


def _ratios(document: ConfigDocument, layers: int) -> tuple[int, ...]:
    """Tokens an entry of each layer, from either of the two ways to write them.

    "compress_ratios" goes on over the layers that predict further tokens; they are not counted.
    """
    rates = document.inner("compress_rates")
    if rates is not None:
        for kind, ratio in _V4_KINDS.items():
            rates.expect(kind, ratio)
        rates.done()
    kinds = document.texts("layer_types")
    ratios = document.sizes("compress_ratios", 128)
    if kinds is not None:
        if any(kind not in _V4_KINDS for kind in kinds):
            document.refuse("layer_types", f"only {', '.join(_V4_KINDS)} are understood")
        named = tuple(_V4_KINDS[kind] for kind in kinds)
        if ratios is not None and ratios[: len(named)] != named:
            document.wrong("layer_types", "does not go with compress_ratios")
        ratios = named
    if ratios is None:
        document.wrong("compress_ratios", "is missing; give a ratio for each layer")
    if len(ratios) < layers:
        document.wrong("compress_ratios", "give a ratio for each layer")
    if any(ratio not in _V4_KINDS.values() for ratio in ratios):
        document.refuse("compress_ratios", "only 0, 4 and 128 are understood")
    return ratios[:layers]
