"""A roofline prediction beside every real step: this model, on this machine as calibrated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.inference.messages import EngineInfo

Shape = tuple[int, int, bool]


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """One step of a whole batch: seconds, FLOP, bytes moved, FLOP/byte, and what limits it."""

    time_s: float
    flops: float
    bytes: float
    intensity: float
    bound: Literal["compute", "memory"]


class StepPredictor:
    """Predicts steps of the running engine; None wherever nothing can be known."""

    @property
    def calibrated(self) -> bool:
        return False

    def predict(
        self, info: EngineInfo | None, dtype: str, shapes: Sequence[Shape]
    ) -> StepPrediction | None:
        return None


class RequestPrediction:
    """Adds up one request's predicted steps to its TTFT and its ITLs.

    Only computing is predicted: the time a request waits for its first step is not part of it.
    """

    def __init__(self) -> None:
        self._known = True
        self._since_sample = 0.0
        self._gaps: list[float] = []

    def add(self, samples: bool, prediction: StepPrediction | None) -> None:
        """One more step of the request; ``samples`` if it produced a token of it."""
        if prediction is None:
            self._known = False
            return
        self._since_sample += prediction.time_s
        if samples:
            self._gaps.append(self._since_sample)
            self._since_sample = 0.0

    @property
    def ttft_ms(self) -> float | None:
        """All steps up to the first token, in ms."""
        return self._gaps[0] * 1e3 if self._known and self._gaps else None

    @property
    def itl_ms(self) -> float | None:
        """Mean over the gaps between tokens, in ms."""
        gaps = self._gaps[1:]
        return sum(gaps) / len(gaps) * 1e3 if self._known and gaps else None
