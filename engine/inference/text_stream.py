"""From token ids to text for one request: detokenizing, stop strings, times."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise

from engine.inference.detokenizer import StreamDetokenizer
from engine.inference.stop_strings import StopStringMatcher
from engine.inference.tokenizer import Tokenizer


@dataclass(slots=True)
class TextStream:
    """What is known of one request's answer so far. Times are seconds on one wall clock.

    ``received`` is when the request reached the worker: TTFT counts from there, so it includes
    tokenizing and waiting.
    """

    tokenizer: Tokenizer
    received: float
    stop_strings: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    token_ids: list[int] = field(default_factory=list[int])
    token_times: list[float] = field(default_factory=list[float])
    stopped: bool = False
    _detokenizer: StreamDetokenizer = field(init=False)
    _matcher: StopStringMatcher = field(init=False)

    def __post_init__(self) -> None:
        self._detokenizer = StreamDetokenizer(self.tokenizer)
        self._matcher = StopStringMatcher(self.stop_strings)

    def push(self, token_id: int, now: float) -> tuple[str, float]:
        """Take a token; the text that is safe to show now, and the seconds that took.

        A stop token gives no text. ``stopped`` is set when a stop string is complete.
        """
        start = time.perf_counter()
        self.token_ids.append(token_id)
        self.token_times.append(now)
        text = ""
        if token_id not in self.stop_token_ids:
            text, matched = self._matcher.push(self._detokenizer.push(token_id))
            self.stopped = self.stopped or matched
        return text, time.perf_counter() - start

    def tail(self) -> str:
        """At the end: the text that was held back; nothing of a stop string ever leaves."""
        if self.stopped:
            return ""
        text, _ = self._matcher.push(self._detokenizer.flush())
        # Only the end settles a short stop string inside the beginning of a longer one.
        text += self._matcher.flush()
        self.stopped = self._matcher.matched
        return text

    @property
    def itl_ms(self) -> tuple[float, ...]:
        times = self.token_times
        return tuple((b - a) * 1e3 for a, b in pairwise(times))

    @property
    def last_itl_ms(self) -> float | None:
        times = self.token_times
        return (times[-1] - times[-2]) * 1e3 if len(times) > 1 else None

    @property
    def ttft_ms(self) -> float | None:
        return (self.token_times[0] - self.received) * 1e3 if self.token_times else None

    def whole_text(self) -> str:
        """The answer decoded in one go, cut at the first stop string: the slow way to the text."""
        ids = [token for token in self.token_ids if token not in self.stop_token_ids]
        text = self.tokenizer.decode(ids)
        cuts = [at for stop in self.stop_strings if (at := text.find(stop)) >= 0]
        return text[: min(cuts)] if cuts else text
