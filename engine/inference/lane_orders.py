"""What is asked of whoever opens lanes, and what is told while one is being opened. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from engine.inference.lane_settings import LaneSettings


class OpeningStage(StrEnum):
    """What is done now for a lane; ``WAITING``: others come first."""

    WAITING = "waiting"
    QUANTIZING = "quantizing"
    LOADING = "loading"
    WARMING_UP = "warming_up"


Report = Callable[[OpeningStage, float, str], None]
"""Called at every safe point of an opening with the stage, the share of that stage that is done,
from 0 to 1, and what it is at: a layer (``layers.3``), a tensor, or nothing in particular. What it
raises ends the opening there."""


def no_report(stage: OpeningStage, share: float, part: str) -> None:
    """A ``Report`` for openings that nobody watches."""


class LaneAbandoned(Exception):
    """Nobody waits any more for the lane that was being opened."""


@dataclass(slots=True, eq=False)
class LaneOrder:
    """A lane that requests wait for. Two orders are never equal: the same lane may be asked for,
    abandoned and asked for again.

    ``takes_long``: minutes rather than seconds. ``abandoned`` is set by the engine's thread once
    nobody waits any more, and read by the one that opens.
    """

    settings: LaneSettings
    takes_long: bool = False
    abandoned: bool = False

    def require_wanted(self) -> None:
        """Raise ``LaneAbandoned`` if nobody waits for it any more."""
        if self.abandoned:
            raise LaneAbandoned

    def watched(self, report: Report) -> Report:
        """The same report, which ends the opening once nobody waits for it."""

        def watch(stage: OpeningStage, share: float, part: str) -> None:
            self.require_wanted()
            report(stage, share, part)

        return watch
