"""The engine's own process, so that torch never holds the web process's loop.

Two threads: one reads, checks and tokenizes requests; the main one steps the engine and writes.
The process ends when the socket closes, so it never outlives the process that started it.
"""

from __future__ import annotations

import logging
import queue
import socket
import sys
import threading
import time

from engine.errors import EngineError, StepFailed
from engine.inference.engine import Engine
from engine.inference.loading import load_model
from engine.inference.messages import Abort, Failed, Generate, Message, Ping, Pong
from engine.inference.options import EngineOptions, parse_worker_arguments
from engine.inference.preparing import PreparedRequest
from engine.inference.wire import MAX_LINE_BYTES, decode, encode
from engine.scheduling.scheduler import SchedulerLimits

log = logging.getLogger("engine.worker")

_MAX_FAILED_STEPS = 3

_Refusal = tuple[str, EngineError]
_Item = PreparedRequest | Abort | _Refusal | None


class Worker:
    """Reads requests from a socket, steps the engine, writes messages back."""

    def __init__(self, connection: socket.socket, options: EngineOptions) -> None:
        self._connection = connection
        self._inbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._write_lock = threading.Lock()
        self._pending: list[bytes] = []
        model = load_model(options)
        limits = SchedulerLimits(
            max_running=options.max_running,
            max_waiting=options.max_waiting,
            max_step_tokens=options.max_step_tokens,
            max_context=model.config.max_context,
        )
        self._engine = Engine(model, limits, self._queue_message)

    def run(self) -> None:
        """Serve until the socket closes."""
        self._send(encode(self._engine.info))
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        failed_steps = 0
        while self._take_in():
            try:
                if self._engine.step():
                    failed_steps = 0
            except StepFailed:
                failed_steps += 1
                log.exception("step failed")
                if failed_steps == _MAX_FAILED_STEPS:
                    self._flush()
                    raise
            self._flush()

    def _take_in(self) -> bool:
        """Act on what was read; waits only when there is nothing to step. False: time to go."""
        block = not self._engine.has_work
        while True:
            try:
                item = self._inbox.get(block=block)
            except queue.Empty:
                return True
            if item is None:
                return False
            if isinstance(item, PreparedRequest):
                self._engine.submit(item)
            elif isinstance(item, Abort):
                self._engine.abort(item.request_id)
            else:
                self._engine.refuse(*item)
            self._flush()
            block = False

    # ── the reading thread ───────────────────────────────────────────────────────────────────

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                while line := lines.readline(MAX_LINE_BYTES):
                    self._on_message(decode(line), time.perf_counter())
        finally:
            # Whatever ended the reading, the main thread must not wait for more.
            self._inbox.put(None)

    def _on_message(self, message: Message, received: float) -> None:
        if isinstance(message, Ping):
            self._send(encode(Pong(message.number)))
        elif isinstance(message, Abort):
            self._inbox.put(message)
        elif isinstance(message, Generate):
            try:
                self._inbox.put(self._engine.prepare(message, received))
            except EngineError as error:
                self._inbox.put((message.request_id, error))
            except Exception:
                # A fault of ours in one request must not end the requests of everyone else.
                log.exception("a request could not be prepared")
                error = EngineError("the engine could not take this request; the fault was logged")
                self._inbox.put((message.request_id, error))

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def _queue_message(self, message: Message) -> None:
        self._pending.append(encode(message))

    def _flush(self) -> None:
        if self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            self._send(data)

    def _send(self, data: bytes) -> None:
        with self._write_lock:
            self._connection.sendall(data)


def main() -> None:
    """Entry point of ``python -m engine.inference.worker``."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s"
    )
    socket_fd, options = parse_worker_arguments()
    with socket.socket(fileno=socket_fd) as connection:
        try:
            Worker(connection, options).run()
        except (BrokenPipeError, ConnectionResetError):
            log.info("the web process is gone; stopping")
        except EngineError as error:
            # The one who waits for this engine shall read why it never got ready.
            connection.sendall(encode(Failed("", error.code, error.message, error.field)))
            raise


if __name__ == "__main__":
    main()
