"""How fast each pair of a head turns with the position, and how models stretch it for longer texts.

Plain rotary embeddings (Su et al. 2021, arXiv 2104.09864) turn pair j of a head of d numbers by
theta^(-2j/d) a position. A model that was trained on short texts and then extended to longer ones
turns some pairs more slowly. Torch-free, in float64. Numbers that give no rotation raise
``FileFormatError``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import FileFormatError


def _require_positive(scaling: object, *names: str) -> None:
    for name in names:
        value = getattr(scaling, name)
        if not (math.isfinite(value) and value > 0):
            raise FileFormatError(f"rope scaling: {name} must be a finite number above 0")


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """All pairs turn ``factor`` times as slowly (Chen et al. 2023, arXiv 2306.15595)."""

    factor: float

    def __post_init__(self) -> None:
        _require_positive(self, "factor")

    @property
    def amplitude(self) -> float:
        return 1.0

    def scaled(self, plain: Sequence[float], theta: float) -> list[float]:
        """What these frequencies become."""
        return [frequency / self.factor for frequency in plain]


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Pairs whose wave is long turn ``factor`` times as slowly, those of short waves as before,
    and between the two bounds it is blended (Llama 3.1; Meta's reference implementation).

    Bounds are numbers of turns within ``original_context`` positions.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int

    def __post_init__(self) -> None:
        _require_positive(self, "factor", "low_freq_factor", "original_context")
        if not self.low_freq_factor < self.high_freq_factor < math.inf:
            raise FileFormatError("rope scaling: high_freq_factor must be above low_freq_factor")

    @property
    def amplitude(self) -> float:
        return 1.0

    def scaled(self, plain: Sequence[float], theta: float) -> list[float]:
        """What these frequencies become."""
        low, high = self.low_freq_factor, self.high_freq_factor
        scaled: list[float] = []
        for frequency in plain:
            turns = self.original_context * frequency / (2 * math.pi)
            if turns > high:
                keep = 1.0
            elif turns < low:
                keep = 0.0
            else:
                keep = (turns - low) / (high - low)
            scaled.append(_blend(frequency, self.factor, keep))
        return scaled


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """NTK by parts (YaRN: Peng et al. 2023, arXiv 2309.00071, section 3.2).

    A ramp over the pairs, from those that turn ``beta_fast`` times within ``original_context``
    (kept) to those that turn ``beta_slow`` times (slowed by ``factor``). ``attention_factor``
    lengthens queries and keys, so that their products grow by its square. ``whole_pairs``: the
    ends of the ramp are rounded outwards to whole pairs.
    """

    factor: float
    original_context: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    whole_pairs: bool = True

    def __post_init__(self) -> None:
        names = ("factor", "original_context", "attention_factor", "beta_fast", "beta_slow")
        _require_positive(self, *names)

    @property
    def amplitude(self) -> float:
        return self.attention_factor

    @staticmethod
    def usual_attention_factor(
        factor: float, mscale: float | None = None, mscale_all_dim: float | None = None
    ) -> float:
        """0.1 ln(factor) + 1 (the paper's equation 22), or the quotient of two such terms, their
        logarithms weighted by the two numbers (DeepSeek-V2, arXiv 2405.04434)."""

        def term(weight: float) -> float:
            return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

        if mscale and mscale_all_dim:
            return term(mscale) / term(mscale_all_dim)
        return term(1.0)

    def scaled(self, plain: Sequence[float], theta: float) -> list[float]:
        """What these frequencies become."""
        pairs = len(plain)

        def pair_that_turns(times: float) -> float:
            """The pair, as a real number, with that many turns in the original context."""
            positions_per_radian = self.original_context / (times * 2 * math.pi)
            return pairs * math.log(positions_per_radian) / math.log(theta)

        first, last = pair_that_turns(self.beta_fast), pair_that_turns(self.beta_slow)
        if self.whole_pairs:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * pairs - 1)
        width = (last - first) or 0.001
        return [
            _blend(frequency, self.factor, 1 - min(max((pair - first) / width, 0.0), 1.0))
            for pair, frequency in enumerate(plain)
        ]


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling


def _blend(frequency: float, factor: float, keep: float) -> float:
    """``keep`` of the frequency as it is, and the rest slowed by ``factor``."""
    return keep * frequency + (1 - keep) * frequency / factor


@dataclass(frozen=True, slots=True)
class Rope:
    """One rotary embedding: its base, above 1, and how it is stretched."""

    theta: float
    scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        if not 1 < self.theta < math.inf:
            raise FileFormatError("rope_theta must be a finite number above 1")

    @property
    def amplitude(self) -> float:
        """What rotated queries and keys are multiplied with."""
        return 1.0 if self.scaling is None else self.scaling.amplitude

    def frequencies(self, head_dim: int) -> list[float]:
        """Radians a position of each of the ``head_dim / 2`` pairs."""
        plain = [self.theta ** (-2 * pair / head_dim) for pair in range(head_dim // 2)]
        return plain if self.scaling is None else self.scaling.scaled(plain, self.theta)
