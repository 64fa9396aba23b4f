"""What one more token costs at a given context: FLOPs and KV cache, for comparing architectures.

Published comparisons of long-context models count "equivalent FP8 FLOPs": products in BF16 count
twice and products in FP4 half. Which product runs in which format is not written out there; what
is assumed here is the ``FlopWeighting``, and each says it in ``assumption``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from engine.catalog.attention import CompressedAttention
from engine.catalog.models import ModelSpec
from engine.catalog.precision import Number, get_format
from engine.errors import InvalidRequest
from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import DecoderStep
from engine.simulator.formats import StorageFormats
from engine.simulator.operators import Role

MOST_CONTEXT = 16_777_216


class FlopWeighting(StrEnum):
    """How FLOPs of different formats are added up."""

    RAW = "raw"
    FP8_EQUIVALENT = "fp8-equivalent"

    @property
    def assumption(self) -> str:
        """What this weighting takes for granted, in words."""
        if self is FlopWeighting.RAW:
            return "Every FLOP counts once, whatever its format."
        return (
            "Equivalent FP8 FLOPs, as assumed here: of DeepSeek-V4 the attention core (BF16) "
            "counts twice and the indexer's scores (FP4) half; everything else, and all of the "
            "other models, counts once. How the report weights each is not known; these "
            "reproduce its ratios."
        )

    def factor(self, model: ModelSpec, role: Role) -> float:
        """What a FLOP of that part of the model counts."""
        if self is FlopWeighting.RAW or not isinstance(model.attention, CompressedAttention):
            return 1.0
        return {Role.ATTENTION: 2.0, Role.INDEXER: 0.5}.get(role, 1.0)


@dataclass(frozen=True, slots=True)
class ContextCost:
    """FLOPs of the token that brings a sequence to ``context`` positions, and its cache then.

    ``flops`` holds the three parts, each times its factor in ``weighting``: products with weights
    (of experts the active ones; the LM head is one of them), attention core, indexer's scores.
    """

    context: int
    weighting: FlopWeighting
    products: float
    attention: float
    indexer: float
    kv_bytes: Number

    @property
    def flops(self) -> float:
        return self.products + self.attention + self.indexer


def context_cost(
    model: ModelSpec,
    context: int,
    kv: str = "fp8",
    weighting: FlopWeighting = FlopWeighting.RAW,
) -> ContextCost:
    """The cost of one decoded token at a context of that many positions, its own included.

    ``kv`` names the format of the cache; for sparse and compressed attention "fp8" means the
    layout of DeepSeek's kernels. Recurrent states count as cache.

    Raises:
        InvalidRequest: the context is out of range (field "context").
        UnknownName: there is no such format (field "kv").
        UnsupportedModel: the model's parts do not go together (field "model").
    """
    if not 1 <= context <= MOST_CONTEXT:
        raise InvalidRequest(f"choose 1 to {MOST_CONTEXT:,} positions", field="context")
    bits = get_format(kv, "kv").bits
    step = _step(model)
    parts = dict.fromkeys(Role, 0.0)
    for operator in step.operators(step.measure([SequenceShape(context - 1, 1, True)])):
        parts[operator.role] += operator.flops * weighting.factor(model, operator.role)
    return ContextCost(
        context,
        weighting,
        parts[Role.PRODUCT],
        parts[Role.ATTENTION],
        parts[Role.INDEXER],
        model.kv_cache_bytes(context, bits),
    )


def flops_crossover(
    cheaper_far: ModelSpec,
    cheaper_near: ModelSpec,
    weighting: FlopWeighting = FlopWeighting.FP8_EQUIVALENT,
    most: int = 1_048_576,
) -> int | None:
    """The first context from which the one model's token takes fewer FLOPs than the other's.

    None where it does not at ``most`` positions; 1 where it always does. Found by halving: the
    difference of such a pair changes its sign once, but for the few positions beside it where a
    compressed entry of one of them has just become complete.
    """

    def wins(context: int) -> bool:
        far, near = (
            context_cost(model, context, weighting=weighting)
            for model in (cheaper_far, cheaper_near)
        )
        return far.flops < near.flops

    if not wins(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if wins(middle) else (middle, high)
    return high


@lru_cache(maxsize=64)
def _step(model: ModelSpec) -> DecoderStep:
    """The model's operators; their FLOPs do not depend on the formats."""
    bf16 = get_format("bf16")
    return DecoderStep(model, StorageFormats(bf16, bf16, bf16))
