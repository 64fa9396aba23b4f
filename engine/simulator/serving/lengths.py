"""How long prompts and answers are: distributions over whole numbers of tokens, 1 at least."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from engine.refusals import refused
from engine.simulator.serving.checks import number, whole

MAX_TOKENS = 2_000_000


@dataclass(frozen=True, slots=True)
class FixedLength:
    """Always the same number of tokens.

    Raises:
        InvalidRequest: it is out of range (field "tokens").
    """

    tokens: int
    kind: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        whole(self.tokens, 1, MAX_TOKENS, "tokens")

    @property
    def most(self) -> int:
        return self.tokens

    @property
    def mean(self) -> float:
        return float(self.tokens)

    def draw(self, random: Random) -> int:
        """Tokens of one text."""
        return self.tokens


@dataclass(frozen=True, slots=True)
class UniformLength:
    """Each number from ``low`` to ``high`` with the same chance, both included.

    Raises:
        InvalidRequest: a number is out of range (field "low" or "high").
    """

    low: int
    high: int
    kind: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        whole(self.low, 1, MAX_TOKENS, "low")
        whole(self.high, self.low, MAX_TOKENS, "high")

    @property
    def most(self) -> int:
        return self.high

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def draw(self, random: Random) -> int:
        """Tokens of one text."""
        return random.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class LogNormalLength:
    """The logarithm is normal, as lengths of real texts nearly are.

    ``mean`` and ``cv`` (standard deviation over mean) are of the distribution before it is rounded
    and cut to 1 … ``most`` tokens. With the variance s² = ln(1 + cv²) of the logarithm, its mean is
    ln(mean) - s²/2.

    Raises:
        InvalidRequest: a number is out of range (field "mean", "cv" or "most").
    """

    mean: float
    cv: float = 1.0
    most: int = MAX_TOKENS
    kind: ClassVar[str] = "lognormal"

    def __post_init__(self) -> None:
        number(self.mean, 1, MAX_TOKENS, "mean")
        number(self.cv, 0, 100, "cv")
        whole(self.most, 1, MAX_TOKENS, "most")
        if self.most < self.mean:
            raise refused("most_below_mean", field="most")

    def draw(self, random: Random) -> int:
        """Tokens of one text."""
        variance = math.log1p(self.cv**2)
        drawn = random.lognormvariate(math.log(self.mean) - variance / 2, math.sqrt(variance))
        return min(max(round(drawn), 1), self.most)


Lengths = FixedLength | UniformLength | LogNormalLength
