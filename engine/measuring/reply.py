"""What came back for one request, and when: times, tokens, or how it failed.

    ttft   from sending the request to the first chunk that holds text
    gaps   between reads that brought text; a read may bring several chunks
    itl    mean seconds a token after the first read's: (last − first) / tokens after the first read

A chunk may hold several tokens. How many is known where the server counts them (``usage``): the
tokens of the answer are then taken to be spread evenly over its chunks. Where it does not count
them, each chunk is taken for one token, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise


class Failure(StrEnum):
    """How a request failed."""

    RATE_LIMITED = "rate limited"
    HTTP_ERROR = "HTTP error"
    ERROR_EVENT = "error in the stream"
    TIMEOUT = "timeout"
    DISCONNECTED = "connection failed"
    CUT = "stream cut off"
    EMPTY = "no text"
    MALFORMED = "not understood"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A read that brought text: ``at`` seconds after sending, ``chunks`` that hold text."""

    at: float
    chunks: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens by the server's own count; None where it does not say."""

    prompt: int | None = None
    output: int | None = None
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One request from ``sent`` (seconds on the clock of the run), with what came of it.

    ``connect`` is the time to open the connection, which no other time includes; ``total`` from
    sending to the end. ``timings`` are numbers that the server sends of itself. ``retry_after``:
    seconds that it asks to wait.
    """

    sent: float
    total: float
    connect: float = 0.0
    status: int | None = None
    arrivals: tuple[Arrival, ...] = ()
    usage: Usage = Usage()
    finish: str | None = None
    streamed: bool = True
    timings: Mapping[str, float] = field(default_factory=dict[str, float])
    failure: Failure | None = None
    detail: str = ""
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def ttft(self) -> float | None:
        """Seconds to the first text; None where none came."""
        return self.arrivals[0].at if self.arrivals else None

    @property
    def chunks(self) -> int:
        return sum(arrival.chunks for arrival in self.arrivals)

    @property
    def tokens(self) -> int:
        """Output tokens: the server's count, else the chunks."""
        return self.chunks if self.usage.output is None else self.usage.output

    @property
    def tokens_a_chunk(self) -> float:
        return self.tokens / self.chunks if self.chunks else 0.0

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between reads that brought text."""
        return tuple(later.at - earlier.at for earlier, later in pairwise(self.arrivals))

    @property
    def itl(self) -> float | None:
        """Mean seconds a token after the first read's; None where all text came at once."""
        if len(self.arrivals) < 2:
            return None
        after = (self.chunks - self.arrivals[0].chunks) * self.tokens_a_chunk
        return (self.arrivals[-1].at - self.arrivals[0].at) / after if after else None
