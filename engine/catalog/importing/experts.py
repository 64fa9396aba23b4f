"""Readers of mixtures of experts whose attention has heads of its own."""

from __future__ import annotations

from engine.catalog.importing.common import (
    MAX_CONTEXT,
    MAX_EXPERTS,
    MAX_LAYERS,
    MAX_WIDTH,
    Frame,
    activation,
    interleaved,
    model_spec,
    read_frame,
    window_of_all_layers,
)
from engine.catalog.importing.dense import switched_windows
from engine.catalog.importing.document import ConfigDocument
from engine.catalog.model_spec import ModelSpec
from engine.catalog.parts import ModelExtras, MoeSpec, QkNorm

# How the scores of the router become weights: the same handful of products whatever they say.
ROUTING = (
    "norm_topk_prob", "routed_scaling_factor", "n_group", "topk_group", "topk_method",
    "use_routing_bias", "ep_size", "moe_router_dtype",
)  # fmt: skip


def read_mixtral(document: ConfigDocument) -> ModelSpec:
    """Mixtral: every layer has experts and no shared one."""
    frame = read_frame(document, tied=False, kv_heads=8)
    activation(document, "silu")
    width = document.size("intermediate_size", MAX_WIDTH)
    return model_spec(
        frame,
        "Mixtral",
        intermediate_size=width,
        attention=window_of_all_layers(document),
        moe=read_experts(document, "num_local_experts", width, router="softmax"),
    )


def read_qwen3_moe(document: ConfigDocument) -> ModelSpec:
    """Qwen3 with experts: norms on queries and keys, no shared expert."""
    frame = read_frame(document, tied=False, kv_heads=4)
    activation(document, "silu")
    for key in ("attention_bias", "qkv_bias"):
        document.expect(key, False)
    document.expect("use_qk_norm", True)
    document.expect("shared_expert_intermediate_size", 0)
    document.ignore((*ROUTING, "max_window_layers"))
    attention = switched_windows(document, frame)
    return model_spec(
        frame,
        "Qwen3",
        intermediate_size=document.size("intermediate_size", MAX_WIDTH),
        attention=attention,
        moe=read_experts(
            document,
            "num_local_experts" if "num_local_experts" in document else "num_experts",
            document.size("moe_intermediate_size", MAX_WIDTH),
            router="softmax",
            first_dense=leading_dense(document, frame),
        ),
        extras=ModelExtras(qk_norm=QkNorm.PER_HEAD),
    )


def read_gpt_oss(document: ConfigDocument) -> ModelSpec:
    """gpt-oss: biases everywhere, attention sinks, every second layer global."""
    frame = read_frame(document, tied=False, kv_heads=8, head_dim=64)
    activation(document, "silu")
    document.expect("attention_bias", True)
    document.ignore(("swiglu_limit", "swiglu_alpha"))
    width = document.size("intermediate_size", MAX_WIDTH)
    window = document.size("sliding_window", MAX_CONTEXT, default=128)
    moe = read_experts(document, "num_local_experts", width, router="softmax")
    document.expect("experts_per_token", moe.top_k)
    return model_spec(
        frame,
        "gpt-oss",
        intermediate_size=width,
        qkv_bias=True,
        attention=interleaved(document, frame.num_layers, window, 2),
        moe=moe,
        extras=ModelExtras(all_biases=True, attn_sinks=True),
    )


def read_glm4_moe(document: ConfigDocument) -> ModelSpec:
    """GLM-4.5 to GLM-4.7: leading dense layers and a shared expert."""
    frame = read_frame(document, tied=False, kv_heads=8)
    activation(document, "silu")
    document.ignore(ROUTING)
    bias = document.flag("attention_bias", default=False)
    norm = document.flag("use_qk_norm", default=False)
    width = document.size("moe_intermediate_size", MAX_WIDTH)
    return model_spec(
        frame,
        "GLM",
        intermediate_size=document.size("intermediate_size", MAX_WIDTH),
        qkv_bias=bias,
        moe=routed_and_shared(document, frame, width, router="sigmoid"),
        extras=ModelExtras(
            qk_norm=QkNorm.PER_HEAD if norm else QkNorm.NONE,
            mtp_layers=document.size("num_nextn_predict_layers", MAX_LAYERS, low=0, default=1),
        ),
    )


def read_minimax_m2(document: ConfigDocument) -> ModelSpec:
    """MiniMax-M2: norms over all heads of queries and keys."""
    frame = read_frame(document, tied=False, kv_heads=8, head_dim=128)
    activation(document, "silu")
    document.expect("use_qk_norm", True)
    document.expect("qk_norm_type", "per_layer")
    document.expect("scoring_func", "sigmoid")
    document.expect("shared_intermediate_size", 0)
    document.ignore(ROUTING)
    # 1 is softmax attention, 0 the linear attention of MiniMax-01.
    kinds = document.sizes("attn_type_list", 1)
    if kinds is not None and kinds != (1,) * frame.num_layers:
        document.refuse("attn_type_list", "only 1 for every layer is understood")
    width = document.size("intermediate_size", MAX_WIDTH)
    return model_spec(
        frame,
        "MiniMax",
        intermediate_size=width,
        attention=window_of_all_layers(document),
        moe=read_experts(document, "num_local_experts", width, router="sigmoid"),
        extras=ModelExtras(qk_norm=QkNorm.PER_LAYER, mtp_layers=_minimax_mtp(document)),
    )


def _minimax_mtp(document: ConfigDocument) -> int:
    used = document.flag("use_mtp", default=False)
    modules = document.size("num_mtp_modules", MAX_LAYERS, low=0, default=0)
    each = document.size("mtp_transformer_layers", MAX_LAYERS, low=0, default=1)
    return modules * each if used else 0


def routed_and_shared(
    document: ConfigDocument, frame: Frame, width: int, *, router: str
) -> MoeSpec:
    """Routed and shared experts of one width, after "first_k_dense_replace" dense layers."""
    document.expect("moe_layer_freq", 1)
    first = document.size("first_k_dense_replace", MAX_LAYERS, low=0)
    if first > frame.num_layers:
        document.wrong("first_k_dense_replace", "give at most as many as there are layers")
    shared = document.size("n_shared_experts", MAX_EXPERTS, low=0)
    return read_experts(
        document,
        "n_routed_experts",
        width,
        router=document.text("scoring_func", ("softmax", "sigmoid"), default=router),
        first_dense=first,
        shared=shared,
        shared_width=width if shared else 0,
    )


def leading_dense(document: ConfigDocument, frame: Frame) -> int:
    """Layers without experts by "mlp_only_layers": the first ones, or none.

    Raises:
        UnsupportedModel: other layers are without experts.
    """
    document.expect("decoder_sparse_step", 1)
    dense = document.sizes("mlp_only_layers", frame.num_layers - 1) or ()
    if sorted(dense) != list(range(len(dense))):
        document.refuse("mlp_only_layers", "only the first layers can be without experts")
    return len(dense)


def read_experts(
    document: ConfigDocument,
    key: str,
    width: int,
    *,
    router: str,
    first_dense: int = 0,
    shared: int = 0,
    shared_width: int = 0,
    shared_gate: bool = False,
) -> MoeSpec:
    """The experts of a model; ``key`` is what its type calls their number.

    Raises:
        InvalidRequest: a number is missing or out of range, or more are chosen than there are.
    """
    experts = document.size(key, MAX_EXPERTS)
    chosen = document.size("num_experts_per_tok", MAX_EXPERTS)
    if chosen > experts:
        document.wrong("num_experts_per_tok", f"give at most as many as {key}")
    return MoeSpec(
        num_experts=experts,
        top_k=chosen,
        expert_intermediate=width,
        num_shared_experts=shared,
        shared_intermediate=shared_width,
        first_dense_layers=first_dense,
        router=router,
        shared_gate=shared_gate,
    )
