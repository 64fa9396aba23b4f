"""How far a measurement is, on standard error: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, TextIO

from engine.measuring.reply import Reply
from engine.measuring.session import Listener

_WIDTH = 24
_LINE_EVERY = 10.0
"""Seconds between two lines where there is no terminal."""


class MeasuringBar(Listener):
    """Shows requests that are done, of ``total``. Leaves the terminal's line empty at its end."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._done = self._failed = self._width = 0
        self._words = ""
        self._told = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._terminal:
            self._stream.write(f"\r{' ' * self._width}\r")
            self._stream.flush()

    def warming(self, words: str) -> None:
        self._words = f"warm-up: {words}"
        self._show(important=True)

    def point(self, prompt_tokens: int, concurrency: int, requests: int) -> None:
        self._words = f"{prompt_tokens:,} prompt tokens, {concurrency:,} at once"
        self._show(important=True)

    def reply(self, reply: Reply) -> None:
        self._done += 1
        self._failed += not reply.ok
        self._show(important=False)

    def _show(self, *, important: bool) -> None:
        failed = f", {self._failed:,} failed" if self._failed else ""
        line = f"{self._done:,}/{self._total:,}{failed}  {self._words}"
        if self._terminal:
            full = min(self._done * _WIDTH // self._total, _WIDTH)
            line = f"[{'█' * full}{'·' * (_WIDTH - full)}] {line}"
            self._stream.write(f"\r{line.ljust(self._width)}")
            self._width = len(line)
        elif important or time.monotonic() - self._told >= _LINE_EVERY:
            self._told = time.monotonic()
            self._stream.write(f"{line}\n")
        self._stream.flush()
