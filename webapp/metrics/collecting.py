"""The metrics of the service, from the engine's messages and from HTTP; never a text.

TTFT and ITL are the engine's own, as every answer tells them. Requests waiting and running are
those that this process knows of; KV blocks are those of a lane's last step.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from engine.inference.messages import (
    Accepted,
    Done,
    Failed,
    Message,
    Preempted,
    Started,
    Step,
    Token,
)

_TTFT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_ITL_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_BATCH = (1, 2, 4, 8, 16, 32, 64)
_MAX_LANES = 32
_OTHER = "other"
_REMEMBERED_STEPS = 4_096


@dataclass(slots=True)
class Life:
    """One request between two looks at it. ``running``: its samples that are in the batch."""

    samples: int
    lane: str = _OTHER
    running: set[int] = field(default_factory=set[int])
    ended: int = 0

    @property
    def waiting(self) -> int:
        """Samples that have not started yet, or lost their blocks."""
        return self.samples - self.ended - len(self.running)


class Metrics:
    """One registry; nothing of it is global, so that two apps in one process are kept apart."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._lives: dict[str, Life] = {}
        self._lanes: set[str] = set()
        self._steps_seen: OrderedDict[tuple[str, int, float], None] = OrderedDict()
        lane = ["lane"]
        self._ttft = Histogram(
            "firsttoken_ttft_seconds", "From a request's receipt to its first token.",
            lane, buckets=_TTFT_S, registry=registry,
        )  # fmt: skip
        self._itl = Histogram(
            "firsttoken_itl_seconds", "Between two tokens of an answer.",
            lane, buckets=_ITL_S, registry=registry,
        )  # fmt: skip
        self._step = Histogram(
            "firsttoken_step_seconds", "Of one step of the engine, by its phase.",
            ["lane", "phase"], buckets=_ITL_S, registry=registry,
        )  # fmt: skip
        self._batch = Histogram(
            "firsttoken_step_batch", "Sequences in one step.",
            lane, buckets=_BATCH, registry=registry,
        )  # fmt: skip
        self._blocks = Gauge(
            "firsttoken_kv_blocks", "Blocks of a lane's KV cache at its last step, by use.",
            ["lane", "use"], registry=registry,
        )  # fmt: skip
        self._preemptions = Counter(
            "firsttoken_preemptions", "Requests that lost their blocks.", lane, registry=registry
        )
        self._prompt_tokens = Counter(
            "firsttoken_prompt_tokens", "Of requests that were accepted.", lane, registry=registry
        )
        self._cached_tokens = Counter(
            "firsttoken_cached_prompt_tokens", "Found in the prefix cache.",
            lane, registry=registry,
        )  # fmt: skip
        self._completion_tokens = Counter(
            "firsttoken_completion_tokens", "Tokens of answers.", lane, registry=registry
        )
        self._ended = Counter(
            "firsttoken_requests_ended", "Answers that ended, by why.",
            ["reason"], registry=registry,
        )  # fmt: skip
        self._gauge("firsttoken_requests_running", "Answers in the batch.", self._running)
        self._gauge("firsttoken_requests_waiting", "Answers that wait.", self._waiting)
        self._http = Histogram(
            "firsttoken_http_request_seconds", "From a request over HTTP to the end of its answer.",
            ["method", "route", "status"], registry=registry,
        )  # fmt: skip

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)

    def began(self, request_id: str, samples: int) -> None:
        """A request is handed to the engine."""
        self._lives[request_id] = Life(samples)

    def left(self, request_id: str) -> None:
        """The request has ended, or its client has left."""
        life = self._lives.pop(request_id)
        if life.samples > life.ended:
            self._ended.labels("left").inc(life.samples - life.ended)
        if all(other.lane != life.lane for other in self._lives.values()):
            # No step tells that the last request's blocks are free again.
            self._blocks.labels(life.lane, "used").set(0)

    def http(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request over HTTP was answered."""
        self._http.labels(method, route, str(status)).observe(seconds)

    def observe(self, request_id: str, message: Message) -> None:
        """What the engine says of a request that began and has not left."""
        life = self._lives[request_id]
        match message:
            case Accepted():
                life.lane = self._known(message.lane)
                self._prompt_tokens.labels(life.lane).inc(len(message.prompt_token_ids))
            case Started():
                life.running.add(message.sample)
                if message.sample == 0:
                    self._cached_tokens.labels(life.lane).inc(message.cached_tokens)
            case Preempted():
                life.running.discard(message.sample)
                self._preemptions.labels(life.lane).inc()
            case Step():
                self._observe_step(life, message)
            case Token():
                self._observe_token(life, message)
            case Done():
                life.running.discard(message.sample)
                life.ended += 1
                self._ended.labels(message.finish_reason).inc()
            case Failed():
                self._ended.labels("error").inc(life.samples - life.ended)
                life.ended = life.samples
            case _:
                pass  # Opening, Queued and Drafted change no number

    def _observe_step(self, life: Life, step: Step) -> None:
        """Every request of a batch is told the same step, and some of them late."""
        life.running.add(step.sample)
        key = (life.lane, step.step, step.time_ms)
        if key in self._steps_seen:
            return
        self._steps_seen[key] = None
        if len(self._steps_seen) > _REMEMBERED_STEPS:
            self._steps_seen.popitem(last=False)
        self._step.labels(life.lane, step.step_phase).observe(step.time_ms / 1e3)
        self._batch.labels(life.lane).observe(step.batch)
        for use, blocks in (
            ("used", step.kv_blocks_used),
            ("cached", step.kv_blocks_cached),
            ("total", step.kv_blocks_total),
        ):
            self._blocks.labels(life.lane, use).set(blocks)

    def _observe_token(self, life: Life, token: Token) -> None:
        self._completion_tokens.labels(life.lane).inc()
        if token.itl_ms is None:
            self._ttft.labels(life.lane).observe(token.time_ms / 1e3)
        else:
            self._itl.labels(life.lane).observe(token.itl_ms / 1e3)

    def _known(self, lane: str) -> str:
        """The lane's name as a label: so many of them, because a request may name any lane."""
        if lane in self._lanes or len(self._lanes) < _MAX_LANES:
            self._lanes.add(lane)
            return lane
        return _OTHER

    def _gauge(self, name: str, told: str, value: Callable[[], float]) -> None:
        Gauge(name, told, registry=self.registry).set_function(value)

    def _running(self) -> float:
        return sum(len(life.running) for life in self._lives.values())

    def _waiting(self) -> float:
        return sum(life.waiting for life in self._lives.values())
