"""Sends one request and times what comes back, over a connection of its own.

The clock starts when the request is sent on an open connection: name look-up, TCP and TLS are
timed apart. Redirects are not followed, and no proxy is used: either would be measured too.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from engine.errors import FileFormatError
from engine.measuring.reply import Failure, Reply
from engine.measuring.stream import StreamReader, error_words
from engine.measuring.target import Target

Clock = Callable[[], float]
_READ = 2**16
_MOST_BYTES = 2**26
"""Of one response. A server that never ends cannot fill the memory."""
_MOST_REST = 0.5
"""Seconds that a transfer may take to end after its answer has."""
_ERROR_BYTES = 2**14
_RATE_LIMITED = (429, 503)
MOST_WAIT = 30.0
"""Seconds that a client waits at most when the server asks it to."""
DEFAULT_WAIT = 1.0
"""Seconds that it waits where the server does not say how long."""


class Stopped(Exception):
    """The run was stopped while an answer was on its way."""


@dataclass(frozen=True, slots=True)
class Client:
    """``timeout`` in seconds, for a whole request; ``stop`` ends what is under way."""

    target: Target
    stop: threading.Event
    timeout: float = 120.0
    clock: Clock = time.perf_counter

    def ask(self, prompt: str, output_tokens: int) -> Reply:
        """One answer. What fails is a reply too, with the kind of its failure.

        Raises:
            Stopped: ``stop`` was set before the answer was whole.
        """
        connection = self._connection()
        try:
            start = self.clock()
            try:
                connection.connect()
            except OSError as error:
                return _failed(Reply(start, self.clock() - start), error)
            sent = self.clock()
            body = self.target.body(prompt, output_tokens)
            reply = self._exchange(connection, body, sent)
            return replace(reply, connect=sent - start)
        finally:
            connection.close()

    def wait(self, reply: Reply) -> None:
        """Wait as long as a server that took no request asks for, or until the run is stopped."""
        asked = DEFAULT_WAIT if reply.retry_after is None else reply.retry_after
        self.stop.wait(min(asked, MOST_WAIT))

    def _connection(self) -> http.client.HTTPConnection:
        address = self.target.address
        if address.scheme == "http":
            return http.client.HTTPConnection(address.host, address.port, timeout=self.timeout)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            address.host, address.port, timeout=self.timeout, context=context
        )

    def _exchange(self, connection: http.client.HTTPConnection, body: bytes, sent: float) -> Reply:
        status: int | None = None
        reader = StreamReader()
        try:
            connection.request("POST", self.target.path, body, self.target.headers)
            response = connection.getresponse()
            status = response.status
            if status != http.HTTPStatus.OK:
                return self._refusal(response, sent)
            kind = response.headers.get_content_type()
            reader = StreamReader(streamed=kind != "application/json")
            self._read(connection, response, reader, sent)
        except (OSError, http.client.HTTPException, FileFormatError) as error:
            blank = Reply(sent, self.clock() - sent, status=status)
            return reader.reply(_failed(blank, error))
        return reader.reply(Reply(sent, self.clock() - sent, status=status))

    def _read(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        reader: StreamReader,
        sent: float,
    ) -> None:
        """Feeds the response to the reader, each block with the time at which it came."""
        taken = 0
        while not reader.done:
            block = self._block(connection, response, sent + self.timeout)
            at = self.clock() - sent
            if not block:
                reader.finish(at)
                return
            taken += len(block)
            if taken > _MOST_BYTES:
                raise FileFormatError(f"an answer of more than {_MOST_BYTES:,} bytes")
            reader.feed(at, block)
        # The answer is whole. The rest of the transfer is read, so that the server does not see
        # a client that went away; how that ends says nothing about the answer.
        with contextlib.suppress(OSError, http.client.HTTPException):
            end = self.clock() + _MOST_REST
            while self._block(connection, response, end):
                pass

    def _block(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        deadline: float,
    ) -> bytes:
        """What comes next, as soon as it comes; nothing at the end."""
        left = deadline - self.clock()
        if left <= 0:
            raise TimeoutError(f"no whole answer within {self.timeout:g} s")
        # The last bytes of a response that closes its connection have no socket any more.
        if connection.sock is not None:
            connection.sock.settimeout(left)
        block = response.read1(_READ)
        if self.stop.is_set():
            raise Stopped
        return block

    def _refusal(self, response: http.client.HTTPResponse, sent: float) -> Reply:
        """The reply of an answer that is not 200, with the words of its body."""
        status, words = response.status, response.reason
        content = response.read(_ERROR_BYTES)
        try:
            document: object = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            fields = cast("dict[str, object]", document)
            told = fields.get("error") or fields.get("detail") or fields.get("message")
            words = error_words(told) if told else words
        limited = status in _RATE_LIMITED
        return Reply(
            sent,
            self.clock() - sent,
            status=status,
            failure=Failure.RATE_LIMITED if limited else Failure.HTTP_ERROR,
            detail=f"{status} {words}",
            retry_after=_seconds(response.getheader("Retry-After")) if limited else None,
        )


def _failed(reply: Reply, error: Exception) -> Reply:
    """The reply with its failure. A certificate that is not right is a connection that failed."""
    if isinstance(error, TimeoutError):
        return replace(reply, failure=Failure.TIMEOUT, detail=str(error) or "timed out")
    if isinstance(error, FileFormatError):
        return replace(reply, failure=Failure.MALFORMED, detail=error.message)
    if isinstance(error, http.client.IncompleteRead):
        return replace(reply, failure=Failure.CUT, detail="the connection ended within the answer")
    words = str(error) or type(error).__name__
    return replace(reply, failure=Failure.DISCONNECTED, detail=words)


def _seconds(text: str | None) -> float | None:
    """Seconds of a Retry-After; None for a date, and for what is no number."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
