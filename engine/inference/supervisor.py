"""The web process's side of the engine: starts the worker, talks to it, starts it again.

Torch-free. If the worker dies or stops answering, every request in flight gets a ``Failed`` at
once, the state says why the engine is not ready, and a new worker is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from enum import StrEnum

from engine.inference.messages import (
    Abort,
    Configure,
    Configured,
    Done,
    EngineInfo,
    Failed,
    Generate,
    Message,
    Ping,
    Pong,
    Probe,
    Probed,
    Step,
)
from engine.inference.options import EngineOptions
from engine.inference.wire import MAX_LINE_BYTES, decode, encode

log = logging.getLogger(__name__)

_PING_INTERVAL = 0.5
# Silence is counted in pings without an answer and not in seconds, so that it is never the fault
# of a worker when this process itself was stopped or its machine asleep.
_UNRESPONSIVE_AFTER = 3
_KILL_AFTER = 40
# Before its first answer a worker imports torch, which takes a while from a cold disk. Loading a
# model or fetching one takes as long as it takes: pings are answered meanwhile.
_FIRST_ANSWER_WITHIN = 240
_STOP_TIMEOUT = 5.0
_BACKOFF = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
_STABLE_AFTER = 30.0
# Messages that wait for the reader of one request. Past that its steps, which only describe, are
# dropped and counted; its tokens are bounded by its own limit and are always kept.
_MAX_QUEUED = 256


class EngineState(StrEnum):
    """``UNRESPONSIVE``: the process lives but does not answer; it may recover by itself."""

    STARTING = "starting"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"
    RESTARTING = "restarting"
    STOPPED = "stopped"


class _Stream:
    """Messages of one request on their way to whoever reads them."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._dropped = 0

    def put(self, message: Message) -> None:
        if isinstance(message, Step):
            if self._queue.qsize() >= _MAX_QUEUED:
                self._dropped += 1
                return
            message = replace(message, dropped=self._dropped)
            self._dropped = 0
        self._queue.put_nowait(message)

    async def get(self) -> Message:
        return await self._queue.get()


class EngineClient:
    """One worker process at a time, supervised."""

    def __init__(
        self, options: EngineOptions | None = None, command: Sequence[str] | None = None
    ) -> None:
        self._options = options or EngineOptions()
        self._command = list(command or [sys.executable, "-m", "engine.inference.worker"])
        self._streams: dict[str, _Stream] = {}
        self._supervisor: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._unanswered = 0
        self._answered_once = False
        self._last_words = ""
        self.state = EngineState.STOPPED
        self.reason = "the engine has not been started"
        self.info: EngineInfo | None = None
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None when there is none."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start supervising; returns at once, while the worker loads its model."""
        if self._supervisor is None:
            self._set(EngineState.STARTING, "the model is loading")
            self._supervisor = asyncio.create_task(self._supervise(), name="engine supervisor")

    async def stop(self) -> None:
        """End the worker and every request in flight."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervisor
        self._set(EngineState.STOPPED, "the engine was stopped")
        self._fail_streams("engine_unavailable", "the engine was stopped")

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    async def generate(self, request: Generate) -> AsyncGenerator[Message]:
        """Messages of one request, ending with ``Done`` or ``Failed``.

        Closing the iterator early aborts the request.
        """
        request_id = request.request_id
        if self.state is not EngineState.READY:
            yield Failed(request_id, "engine_unavailable", f"{self.reason}; try again in a moment")
            return
        if request_id in self._streams:
            yield Failed(request_id, "invalid_request", "this id is in use", "request_id")
            return
        stream = self._streams[request_id] = _Stream()
        ended = False
        try:
            await self._write(request)
            while not ended:
                message = await stream.get()
                ended = _is_last(message)
                yield message
        finally:
            del self._streams[request_id]
            if not ended:
                await self.abort(request_id)

    async def abort(self, request_id: str) -> None:
        """End a request early; its generator ends with ``Done`` and finish reason ``abort``."""
        await self._write(Abort(request_id))

    async def ask(self, request: Configure | Probe) -> Configured | Probed | Failed:
        """The one answer to a question that is not about generating."""
        request_id = request.request_id
        if self.state is not EngineState.READY:
            return Failed(request_id, "engine_unavailable", f"{self.reason}; try again in a moment")
        if request_id in self._streams:
            return Failed(request_id, "invalid_request", "this id is in use", "request_id")
        stream = self._streams[request_id] = _Stream()
        try:
            await self._write(request)
            answer = await stream.get()
        finally:
            del self._streams[request_id]
        if not isinstance(answer, Configured | Probed | Failed):
            raise AssertionError("the engine answered with something else")
        return answer

    async def _write(self, message: Message) -> None:
        writer = self._writer
        if writer is None or writer.is_closing():
            return  # the worker is gone, and the supervisor tells every stream so
        # A connection that breaks here is noticed by the reading side, which tells the streams.
        with contextlib.suppress(ConnectionError):
            writer.write(encode(message))
            await writer.drain()

    # ── supervision ──────────────────────────────────────────────────────────────────────────

    def _set(self, state: EngineState, reason: str) -> None:
        if state is not self.state:
            log.info("engine %s: %s", state, reason)
        self.state = state
        self.reason = reason

    def _fail_streams(self, code: str, message: str) -> None:
        for request_id, stream in self._streams.items():
            stream.put(Failed(request_id, code, message))

    async def _supervise(self) -> None:
        attempt = 0
        while True:
            await asyncio.sleep(_BACKOFF[min(attempt, len(_BACKOFF) - 1)])
            began = asyncio.get_running_loop().time()
            try:
                why = await self._run_worker()
            except Exception as error:
                # Too few files or processes left, say: it may work later, so supervision goes on.
                log.exception("the engine's process could not be run")
                why = f"the engine's process could not be run ({type(error).__name__})"
            lived = asyncio.get_running_loop().time() - began
            attempt = 0 if lived > _STABLE_AFTER else attempt + 1
            self.restarts += 1
            self._lost(why)

    def _lost(self, why: str) -> None:
        """There is no engine just now: say so at once, to everyone who waits for it."""
        self.info = None
        self._set(EngineState.RESTARTING, f"{why}; it is being started again")
        message = f"{why}; run the prompt again when the engine is ready"
        self._fail_streams("engine_restarted", message)

    async def _run_worker(self) -> str:
        """Start a worker and read from it until it ends; why it ended."""
        self._last_words = ""
        self._unanswered = 0
        self._answered_once = False
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(ours.close)
            process = await self._spawn(theirs)
            on_failure.pop_all()
        self._process = process
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        self._writer = writer
        watch = asyncio.create_task(self._watch(process), name="engine heartbeat")
        try:
            await self._read(reader)
            self._lost("the engine's process ended")
        finally:
            watch.cancel()
            self._writer = None
            writer.close()
            await self._end(process)
            self._process = None
        ended = _describe(process.returncode)
        log.error("the engine's process ended with %s", ended)
        return f"the engine's process ended ({self._last_words or ended})"

    async def _spawn(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        with theirs:
            return await asyncio.create_subprocess_exec(
                *self._command,
                "--socket-fd",
                str(theirs.fileno()),
                *self._options.to_arguments(),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
            )

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Pass every message on, until the connection closes."""
        try:
            while line := await reader.readline():
                self._on_message(decode(line))
        except (ConnectionError, ValueError):
            log.exception("the connection to the engine broke")

    def _on_message(self, message: Message) -> None:
        self._unanswered = 0
        self._answered_once = True
        if self.state is EngineState.UNRESPONSIVE:
            self._set(EngineState.READY, "")
        if isinstance(message, Pong):
            return
        if isinstance(message, Failed) and not message.request_id:
            self._last_words = message.message
        elif isinstance(message, EngineInfo):
            self.info = message
            self._set(EngineState.READY, "")
        else:
            stream = self._streams.get(getattr(message, "request_id", ""))
            if stream is not None:
                stream.put(message)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Ping the worker; a silent one is not ready, one that stays silent is killed."""
        number = 0
        while True:
            await asyncio.sleep(_PING_INTERVAL)
            patience = _KILL_AFTER if self._answered_once else _FIRST_ANSWER_WITHIN
            if self._unanswered >= patience:
                log.error("the engine does not answer; ending it")
                process.kill()
                return
            if self._unanswered >= _UNRESPONSIVE_AFTER and self.state is EngineState.READY:
                self._set(EngineState.UNRESPONSIVE, "the engine does not answer")
            number += 1
            self._unanswered += 1
            if self._writer is not None and not self._writer.is_closing():
                # Not drained: a worker that does not read must not keep us from noticing it.
                self._writer.write(encode(Ping(number)))

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """The socket is closed, which tells the worker to go; kill it if it does not."""
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _is_last(message: Message) -> bool:
    if isinstance(message, Done):
        return message.samples_left == 0
    return isinstance(message, Failed)


def _describe(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        number = -returncode
        known = number in set(signal.Signals)
        return f"signal {number} ({signal.Signals(number).name})" if known else f"signal {number}"
    return f"exit status {returncode}"
