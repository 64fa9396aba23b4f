"""What is taken for granted about a model's own architecture, in words."""

from __future__ import annotations

from engine.catalog.attention import (
    CompressedAttention,
    HybridLinearAttention,
    HybridMamba2Attention,
    SparseAttention,
)
from engine.catalog.models import ModelSpec
from engine.simulator.work import MOST_ABSORBED_TOKENS

_LATENT = (
    "Latent attention: a prompt (or a chunk of it) expands its whole context into keys and values; "
    f"a decoding sequence, of {MOST_ABSORBED_TOKENS} new tokens at most, attends in the latent "
    "space and reads each latent once for all heads."
)
_CHOSEN = (
    "How many different entries the queries of one sequence pick is not known before: the fewest "
    "reads are counted, each entry at most once a step. The indexer's scores are written once and "
    "read once."
)


def model_assumptions(model: ModelSpec) -> list[str]:
    """Lines for the parts that the model has; a plain dense decoder needs none."""
    return [*_experts(model), *_attention(model), *_rest(model)]


def _experts(model: ModelSpec) -> list[str]:
    moe = model.moe
    if moe is None:
        return []
    return [
        f"Routing is uniform: {moe.top_k} of {moe.num_experts} experts a token, and a step of m "
        f"tokens reads the weights of {moe.num_experts} × (1 - (1 - {moe.top_k} / "
        f"{moe.num_experts})^m) of them a layer. Skewed routing touches fewer. All experts are in "
        "memory.",
    ]


def _attention(model: ModelSpec) -> list[str]:
    pattern = model.attention
    if isinstance(pattern, SparseAttention):
        return [
            f"Sparse attention: the indexer scores the whole context, the core sees "
            f"{pattern.index_topk:,} positions at most, in the latent space for prompts too.",
            _CHOSEN,
        ]
    if isinstance(pattern, CompressedAttention):
        return [
            f"Compressed attention: an entry is written when its {pattern.csa_ratio} or "
            f"{pattern.hca_ratio} positions are complete, counted evenly over them; the last, "
            "incomplete ones that the compressors hold are not counted.",
            _CHOSEN,
        ]
    if model.mla is not None:
        return [_LATENT]
    if isinstance(pattern, HybridLinearAttention | HybridMamba2Attention):
        return [
            "Recurrent layers read and write one state a sequence in every step (fp32 matrices and "
            "the convolution's last inputs, whatever the KV cache's format). Prompts are counted "
            "token by token, the least arithmetic; kernels that work in chunks multiply more.",
        ]
    return []


def _rest(model: ModelSpec) -> list[str]:
    extras = model.extras
    lines: list[str] = []
    if extras.hc_mult:
        lines.append(
            f"Hyper-connections keep {extras.hc_mult} residual streams; their mixing is a sum and "
            "is given no FLOPs, and the balancing of its weights takes no time."
        )
    if extras.mtp_layers:
        lines.append("The layer that predicts a further token is not loaded and not run.")
    if extras.released_weights:
        lines.append(
            f"Released as {extras.released_weights}; here all weights are in the one format above."
        )
    return lines
