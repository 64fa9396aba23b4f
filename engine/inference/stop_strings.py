"""Holds text back while it may still become a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from engine.refusals import refused

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256


class StopStringMatcher:
    """Cuts a stream of text at the first stop string, wherever the pieces of it fall.

    What leaves, joined, equals the whole text up to the earliest place where a stop string begins,
    however the text was cut into pieces; nothing of a stop string that matched ever leaves. Where a
    short stop lies inside the beginning of a longer one ("c" and "abcd"), the matcher waits until
    it is clear which of them begins first.

    Raises ``InvalidRequest`` (field ``stop``) for an empty stop string, one over
    ``MAX_STOP_CHARS`` or more than ``MAX_STOP_STRINGS`` of them.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if len(stops) > MAX_STOP_STRINGS:
            raise refused("too_many_stops", field="stop", high=MAX_STOP_STRINGS)
        if any(not 1 <= len(stop) <= MAX_STOP_CHARS for stop in stops):
            raise refused("stop_length", field="stop", high=MAX_STOP_CHARS)
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.matched = False

    def push(self, text: str) -> tuple[str, bool]:
        """Take more text; gives what is safe to show now, and whether a stop string matched.

        After a match everything else is dropped.
        """
        if self.matched:
            return "", True
        self._held += text
        found = self._earliest_match()
        pending = self._earliest_beginning()
        if found is not None and found <= pending:
            return self._match(found), True
        safe, self._held = self._held[:pending], self._held[pending:]
        return safe, False

    def flush(self) -> str:
        """At the end of the text: what was held back for a stop string that did not come."""
        found = self._earliest_match()
        if found is not None:
            return self._match(found)
        rest, self._held = self._held, ""
        return rest

    def _match(self, at: int) -> str:
        safe, self._held = self._held[:at], ""
        self.matched = True
        return safe

    def _earliest_match(self) -> int | None:
        return min((at for stop in self._stops if (at := self._held.find(stop)) >= 0), default=None)

    def _earliest_beginning(self) -> int:
        """Where the held text may be the beginning of a stop string; its end if nowhere."""
        held = self._held
        for start in range(max(0, len(held) - self._longest + 1), len(held)):
            if any(
                len(stop) > len(held) - start and stop.startswith(held[start:])
                for stop in self._stops
            ):
                return start
        return len(held)
