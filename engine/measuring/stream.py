"""Reads the events of a completion as they come, and keeps when text came."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from engine.errors import FileFormatError
from engine.measuring.events import EventDecoder
from engine.measuring.reply import Arrival, Failure, Reply, Usage

_DONE = "[DONE]"
_TEXTS = ("content", "reasoning_content", "reasoning")
"""Where a chat's delta has text: a model's thoughts are tokens that it makes, too."""
_MOST_DETAIL = 300
SAME_READ = 2e-4
"""Seconds within which chunks came together: they were in one packet, or in one buffer. No stream
of a server brings 5,000 tokens/s one by one."""


class StreamReader:
    """Takes the blocks of one response and their times; ``reply`` fills in what was found.

    Times are seconds after sending the request, given by the caller: nothing here has a clock.
    """

    def __init__(self, *, streamed: bool = True) -> None:
        self._streamed = streamed
        self._decoder = EventDecoder()
        self._whole: list[bytes] = []
        self._arrivals: list[Arrival] = []
        self._usage = Usage()
        self._timings: dict[str, float] = {}
        self._finish: str | None = None
        self._error: str | None = None
        self._ended: float | None = None

    @property
    def done(self) -> bool:
        """Whether the server has said that nothing more comes."""
        return self._ended is not None

    def feed(self, at: float, block: bytes) -> None:
        """One block that was read at that time.

        Raises:
            FileFormatError: it is no event of a completion.
        """
        if self._streamed:
            self._take(at, self._decoder.feed(block))
        else:
            self._whole.append(block)

    def finish(self, at: float) -> None:
        """The response has ended.

        Raises:
            FileFormatError: as for ``feed``.
        """
        self._take(at, self._decoder.finish() if self._streamed else [_text(self._whole)])
        if not self._streamed:
            self._ended = at

    def reply(self, blank: Reply) -> Reply:
        """``blank`` with what was read; the failure is its own where it has one."""
        found = replace(
            blank,
            total=blank.total if self._ended is None else self._ended,
            arrivals=tuple(self._arrivals),
            usage=self._usage,
            finish=self._finish,
            streamed=self._streamed,
            timings=self._timings,
        )
        if found.failure is not None:
            return found
        if self._error is not None:
            return replace(found, failure=Failure.ERROR_EVENT, detail=self._error)
        if not self.done and self._finish is None:
            return replace(found, failure=Failure.CUT, detail="no [DONE] and no finish_reason")
        if not self._arrivals:
            return replace(found, failure=Failure.EMPTY, detail="the answer has no text")
        return found

    def _take(self, at: float, events: list[str]) -> None:
        chunks = 0
        for data in events:
            if data.strip() == _DONE:
                self._ended = at
            elif not self.done:
                chunks += self._read(_object(data))
                # Nothing is expected after an error, not even an end.
                self._ended = at if self._error is not None else None
        if not chunks:
            return
        last = self._arrivals[-1] if self._arrivals else None
        if last is not None and at - last.at < SAME_READ:
            self._arrivals[-1] = Arrival(last.at, last.chunks + chunks)
        else:
            self._arrivals.append(Arrival(at, chunks))

    def _read(self, event: Mapping[str, object]) -> bool:
        """Keeps what the event says; whether it brings text."""
        error = event.get("error")
        if error is not None:
            self._error = error_words(error)
        usage = event.get("usage")
        if isinstance(usage, Mapping):
            self._usage = _usage(cast("Mapping[str, object]", usage))
        timings = event.get("timings")
        if isinstance(timings, Mapping):
            self._timings = _numbers(cast("Mapping[str, object]", timings))
        choices = event.get("choices")
        if not isinstance(choices, list):
            return False
        found = False
        for choice in cast("list[object]", choices):
            if isinstance(choice, Mapping):
                found |= self._choice(cast("Mapping[str, object]", choice))
        return found

    def _choice(self, choice: Mapping[str, object]) -> bool:
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self._finish = finish
        if choice.get("text"):
            return True
        inner = choice.get("delta" if self._streamed else "message")
        if not isinstance(inner, Mapping):
            return False
        return any(cast("Mapping[str, object]", inner).get(name) for name in _TEXTS)


def error_words(error: object) -> str:
    """The message of an error object, or the object as text, cut to a line's length."""
    message: object = error
    if isinstance(error, Mapping):
        fields = cast("Mapping[str, object]", error)
        message = fields.get("message", fields)
    words = message if isinstance(message, str) else json.dumps(message)
    return " ".join(words.split())[:_MOST_DETAIL]


def _text(blocks: list[bytes]) -> str:
    try:
        return b"".join(blocks).decode()
    except UnicodeDecodeError:
        raise FileFormatError("the answer is not UTF-8") from None


def _object(data: str) -> Mapping[str, object]:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        raise FileFormatError("an event is not JSON") from None
    if not isinstance(value, Mapping):
        raise FileFormatError("an event is no JSON object")
    return cast("Mapping[str, object]", value)


def _usage(usage: Mapping[str, object]) -> Usage:
    details = usage.get("prompt_tokens_details")
    cached = None
    if isinstance(details, Mapping):
        cached = _whole(cast("Mapping[str, object]", details).get("cached_tokens"))
    return Usage(_whole(usage.get("prompt_tokens")), _whole(usage.get("completion_tokens")), cached)


def _whole(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return None
    return value


def _numbers(values: Mapping[str, object]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
