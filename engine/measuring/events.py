"""Server-sent events out of the bytes of a response, as far as completion servers use them.

Format: WHATWG HTML, "Server-sent events". Only ``data`` fields are kept; comments, names and ids
of events are passed over.
"""

from __future__ import annotations

from engine.errors import FileFormatError

MAX_EVENT_BYTES = 2**20
"""An event that is longer is refused: no completion server sends one."""


class EventDecoder:
    """Takes blocks of bytes, cut anywhere, and gives the data of the events they complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._held = 0

    def feed(self, block: bytes) -> list[str]:
        """The data of each event that ends in this block.

        Raises:
            FileFormatError: an event is too long, or its data is not UTF-8.
        """
        found: list[str] = []
        text = self._rest + block
        # A carriage return at the end may be half of a line's end: it waits for the other half.
        whole, cut = (text[:-1], text[-1:]) if text.endswith(b"\r") else (text, b"")
        *lines, last = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = last + cut
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                found.append(self._event())
        if self._held + len(self._rest) > MAX_EVENT_BYTES:
            raise FileFormatError(f"an event is longer than {MAX_EVENT_BYTES:,} bytes")
        return found

    def finish(self) -> list[str]:
        """The data of an event that the end of the response cut off its empty line, if any."""
        if self._rest:
            self._take(self._rest.rstrip(b"\r"))
            self._rest = b""
        return [self._event()] if self._data else []

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._held += len(value)

    def _event(self) -> str:
        data, self._data, self._held = b"\n".join(self._data), [], 0
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise FileFormatError("an event is not UTF-8") from None
