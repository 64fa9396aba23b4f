"""The engine's own process, so that torch never holds the web process's loop.

Six threads. One reads, and answers pings, from the first moment on. One checks and tokenizes
requests, in the order in which they came, and answers what is asked about the tokenizer alone. One
answers probes, which may take seconds. Two open
lanes (see ``Openings``). The main one steps the engine and writes. The process ends when the socket
closes, so it never outlives the process that started it.
"""

from __future__ import annotations

import logging
import queue
import signal
import socket
import threading
import time

from engine.errors import EngineError, QueueFull, StepFailed
from engine.inference.engine import Engine
from engine.inference.lanes import OpenedLane
from engine.inference.loading import load_model
from engine.inference.log_lines import configure_logging
from engine.inference.messages import (
    Abort,
    Configure,
    Generate,
    Message,
    Ping,
    Pong,
    Probe,
    Probed,
)
from engine.inference.openings import LaneFailed, LaneProgressed, News, Openings
from engine.inference.options import EngineOptions, parse_worker_arguments
from engine.inference.preparing import PreparedRequest
from engine.inference.probes.texts import TEXT_KINDS
from engine.inference.telling import failed
from engine.inference.wire import MAX_LINE_BYTES, decode, encode
from engine.refusals import refused
from engine.scheduling.scheduler import SchedulerLimits

log = logging.getLogger("engine.worker")

_MAX_FAILED_STEPS = 3

_MAX_PROBES_WAITING = 32

_Refusal = tuple[str, EngineError]


_Arrival = tuple[Generate, float] | Abort | Probe | None
_Item = PreparedRequest | Abort | Configure | News | Probed | _Refusal | None


class Worker:
    """Reads requests from a socket, steps the engine, writes messages back.

    ``None`` in a queue means that the socket has closed.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._arrivals: queue.SimpleQueue[_Arrival] = queue.SimpleQueue()
        self._inbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._probes: queue.SimpleQueue[Probe | None] = queue.SimpleQueue()
        self._openings = Openings(self._inbox.put)
        self._write_lock = threading.Lock()
        self._pending: list[bytes] = []
        self._max_unprepared = 0

    def run(self, options: EngineOptions) -> None:
        """Load the model and serve until the socket closes.

        Raises:
            EngineError: the model could not be loaded; the other side was told why.
            StepFailed: step after step fails, so this process is of no more use.
        """
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        try:
            model = load_model(options)
        except EngineError as error:
            # The one who waits for this engine shall read why it never got ready.
            self._send(encode(failed("", error)))
            raise
        limits = SchedulerLimits(
            max_running=options.max_running,
            max_waiting=options.max_waiting,
            max_step_tokens=options.max_step_tokens,
            max_context=model.config.max_context,
        )
        self._max_unprepared = limits.max_running + limits.max_waiting
        engine = Engine(model, limits, self._queue_message, options.policy)
        self._openings.start(engine.open_lane)
        for name, work in (("tokenizer", self._prepare), ("probes", self._answer_probes)):
            threading.Thread(target=work, args=(engine,), name=name, daemon=True).start()
        self._send(encode(engine.info))
        self._serve(engine)

    def _serve(self, engine: Engine) -> None:
        failed_steps = 0
        while self._take_in(engine):
            try:
                if engine.step():
                    failed_steps = 0
            except StepFailed:
                failed_steps += 1
                log.exception("step failed")
                if failed_steps == _MAX_FAILED_STEPS:
                    self._flush()
                    raise
            self._flush()

    def _take_in(self, engine: Engine) -> bool:
        """Act on what has come; waits only when there is nothing to step. False: time to go."""
        block = not engine.has_work
        while True:
            try:
                item = self._inbox.get(block=block)
            except queue.Empty:
                return True
            if item is None:
                return False
            self._act_on(engine, item)
            self._flush()
            block = False

    def _act_on(self, engine: Engine, item: _Item) -> None:
        match item:
            case PreparedRequest() if engine.missing_lane(item) is None:
                engine.submit(item)
            case PreparedRequest():
                order = engine.hold(item)
                if order is not None:
                    self._openings.add(order)
            case Abort():
                engine.abort(item.request_id)
            case Configure():
                engine.configure(item)
            case OpenedLane():
                engine.add_lane(item)
            case LaneFailed():
                engine.lane_failed(item.order, item.error)
            case LaneProgressed():
                engine.opening_progressed(item.order, item.stage, item.share, item.part)
            case Probed():
                self._queue_message(item)
            case (request_id, error):
                engine.refuse(request_id, error)
            case None:
                raise AssertionError("the end of the queue is not an item to act on")

    # ── the reading thread ───────────────────────────────────────────────────────────────────

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                while line := lines.readline(MAX_LINE_BYTES):
                    self._on_message(decode(line))
        finally:
            # Whatever ended the reading, the other threads must not wait for more.
            self._arrivals.put(None)
            self._probes.put(None)
            self._openings.stop()
            self._inbox.put(None)

    def _on_message(self, message: Message) -> None:
        if isinstance(message, Ping):
            self._send(encode(Pong(message.number)))
        elif isinstance(message, Abort):
            self._arrivals.put(message)
        elif isinstance(message, Configure):
            self._inbox.put(message)
        elif isinstance(message, Probe):
            questions = self._arrivals if message.kind in TEXT_KINDS else self._probes
            if questions.qsize() >= _MAX_PROBES_WAITING:
                error = refused("probes_at_once", kind=QueueFull)
                self._inbox.put((message.request_id, error))
            else:
                questions.put(message)
        elif isinstance(message, Generate):
            if self._arrivals.qsize() >= self._max_unprepared:
                error = refused("prompts_at_once", kind=QueueFull)
                self._inbox.put((message.request_id, error))
            else:
                self._arrivals.put((message, time.perf_counter()))

    # ── the tokenizing thread ────────────────────────────────────────────────────────────────

    def _prepare(self, engine: Engine) -> None:
        while (arrival := self._arrivals.get()) is not None:
            if isinstance(arrival, Abort):
                self._inbox.put(arrival)
                continue
            if isinstance(arrival, Probe):
                self._answer(engine, arrival)
                continue
            generate, received = arrival
            try:
                self._inbox.put(engine.prepare(generate, received))
            except EngineError as error:
                self._inbox.put((generate.request_id, error))
            except Exception:
                # A fault of ours in one request must not end the requests of everyone else.
                log.exception("a request could not be prepared")
                error = refused("fault", kind=EngineError)
                self._inbox.put((generate.request_id, error))

    # ── the thread that answers probes ───────────────────────────────────────────────────────

    def _answer_probes(self, engine: Engine) -> None:
        while (probe := self._probes.get()) is not None:
            self._answer(engine, probe)

    def _answer(self, engine: Engine, probe: Probe) -> None:
        try:
            self._inbox.put(engine.probe(probe))
        except EngineError as error:
            self._inbox.put((probe.request_id, error))
        except Exception:
            log.exception("a probe failed")
            error = refused("fault", kind=EngineError)
            self._inbox.put((probe.request_id, error))

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
    # Ctrl-C in a terminal reaches every process of it. This one ends when its socket does, so
    # that the web process can first tell everyone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    socket_fd, options = parse_worker_arguments()
    configure_logging(options.log_format)
    with socket.socket(fileno=socket_fd) as connection:
        try:
            Worker(connection).run(options)
        except (BrokenPipeError, ConnectionResetError):
            log.info("the web process is gone; stopping")


if __name__ == "__main__":
    main()
