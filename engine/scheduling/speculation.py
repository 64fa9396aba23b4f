"""Speculative decoding as the scheduler sees it: cheap guesses, verified in one step.

A draft is a guess at a token that has not been sampled yet. A step computes the last known token
and the drafts after it together, and samples at each of these positions exactly as plain decoding
would: the drafts up to the first that differs from its sample are accepted, and the sample there
is one more token for free. So the text is the same as without drafts, whatever they are; only the
number of steps depends on them (Leviathan et al. 2023, arXiv 2211.17192, with the draft as a fixed
token).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.refusals import refused

MAX_DRAFT_TOKENS = 16
DEFAULT_DRAFT_TOKENS = 4
MAX_NGRAM = 8
MAX_EXIT_LAYER = 1_024

TO_DRAFT = -1
"""Stands in a plan for a draft that the executor makes itself, within the step."""


class SpeculationMethod(StrEnum):
    """Who guesses: the text so far, the model's own first layers, or a smaller model."""

    NGRAM = "ngram"
    EARLY_EXIT = "early-exit"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    """How a request is to be sped up. ``draft_tokens``: the most drafts of one step.

    ``exit_layer``: layers of the model that an early exit runs; half of them at None. The last two
    are the longest and the shortest end of the text that a look-up searches for.

    Raises:
        InvalidRequest: a number is out of range, or goes with another method (field
            "speculation." and its name).
    """

    method: SpeculationMethod
    draft_tokens: int = DEFAULT_DRAFT_TOKENS
    exit_layer: int | None = None
    max_ngram: int = 4
    min_ngram: int = 1

    def __post_init__(self) -> None:
        _check("draft_tokens", self.draft_tokens, 1, MAX_DRAFT_TOKENS)
        _check("max_ngram", self.max_ngram, 1, MAX_NGRAM)
        _check("min_ngram", self.min_ngram, 1, self.max_ngram)
        if self.exit_layer is None:
            return
        if self.method is not SpeculationMethod.EARLY_EXIT:
            raise refused("exit_layer_method", field="speculation.exit_layer")
        _check("exit_layer", self.exit_layer, 1, MAX_EXIT_LAYER)


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        field = f"speculation.{name}"
        raise refused("integer_range", field=field, name=name, low=low, high=high)
