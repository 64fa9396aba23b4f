"""A run in the Trace Event Format (Google's document "Trace Event Format", 2016), for Perfetto and
chrome://tracing: slices on tracks, counters beside them. Times there are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from webapp.schemas.live_events import (
    StartedEvent,
    StepEvent,
    TokenEvent,
)
from webapp.schemas.saved_run import SavedRun

TraceEvent = dict[str, object]

_PID = 1
_REQUEST, _STEPS, _PREDICTED, _TOKENS = 1, 2, 3, 4
_TRACKS = {
    _REQUEST: "request",
    _STEPS: "steps, measured",
    _PREDICTED: "steps, predicted",
    _TOKENS: "tokens",
}
_COSTS = ("flops", "bytes", "intensity", "bound", "predicted_ms", "typical_ms")


def trace(run: SavedRun) -> dict[str, object]:
    """The run as a trace; what it was asked and where it ran stand in ``otherData``."""
    accepted, machine = run.accepted, run.machine
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "source": "First Token: a run as its browser reported it",
            "model": machine.model_name,
            "device": machine.device_name,
            "lane": accepted.dtype if accepted.lane is None else accepted.lane.name,
            "seed": accepted.seed,
            "ran_at_ms": run.ran_at_ms,
        },
        "traceEvents": [*_names(machine.model_name), *_request(run), *_events(run)],
    }


def _names(model: str) -> Iterator[TraceEvent]:
    yield {"ph": "M", "pid": _PID, "name": "process_name", "args": {"name": model}}
    for track, name in _TRACKS.items():
        yield {"ph": "M", "pid": _PID, "tid": track, "name": "thread_name", "args": {"name": name}}


def _request(run: SavedRun) -> Iterator[TraceEvent]:
    """Cutting the text, waiting, and the answer from the first token to the last."""
    accepted = run.accepted
    tokens = [event for event in run.events if isinstance(event, TokenEvent)]
    steps = [event for event in run.events if isinstance(event, StepEvent)]
    count = {"prompt_tokens": accepted.prompt_tokens}
    yield _slice(_REQUEST, "tokenize", 0.0, accepted.tokenize_ms, count)
    if steps and steps[0].start_ms > accepted.tokenize_ms:
        yield _slice(
            _REQUEST, "waiting", accepted.tokenize_ms, steps[0].start_ms - accepted.tokenize_ms, {}
        )
    if not tokens or not steps:
        return
    first, last = tokens[0].time_ms, tokens[-1].time_ms
    yield _slice(_REQUEST, "prefill", steps[0].start_ms, max(0.0, first - steps[0].start_ms), count)
    yield _slice(_REQUEST, "decode", first, last - first, {"tokens": len(tokens)})


def _events(run: SavedRun) -> Iterator[TraceEvent]:
    predicted_end: float | None = None
    for event in run.events:
        if isinstance(event, StepEvent):
            yield _step(event)
            yield from _counters(event)
            expected = event.predicted_ms if event.typical_ms is None else event.typical_ms
            if expected is not None:
                # End to end from the first step's start, as the page draws them.
                start = event.start_ms if predicted_end is None else predicted_end
                yield _slice(_PREDICTED, event.phase, start, expected, {})
                predicted_end = start + expected
        elif isinstance(event, TokenEvent):
            args = {"id": event.id, "piece": event.piece, "logprob": event.logprob}
            yield _instant(f"token {event.index}", event.time_ms, args)
        elif isinstance(event, StartedEvent):
            args = {"cached_tokens": event.cached_tokens, "waited_ms": event.waited_ms}
            yield _instant("started", run.accepted.tokenize_ms + event.waited_ms, args)


def _step(step: StepEvent) -> TraceEvent:
    args: dict[str, object] = {
        "step": step.step,
        "step_phase": step.step_phase,
        "batch": step.batch,
        "tokens": step.tokens,
        "own_kv_tokens": step.own_kv_tokens,
        **{name: getattr(step, name) for name in _COSTS},
        **{f"{name}_ms": ms for name, ms in step.stages_ms.items()},
    }
    return _slice(_STEPS, step.phase, step.start_ms, step.time_ms, args)


def _counters(step: StepEvent) -> Iterator[TraceEvent]:
    """The KV cache and the batch, as they are when the step ends."""
    end = step.start_ms + step.time_ms
    kv = {
        "this request": step.own_kv_blocks,
        "others": max(0, step.kv_blocks_used - step.own_kv_blocks),
    }
    yield _counter("KV cache, blocks", end, kv)
    yield _counter("requests", end, {"running": step.running, "waiting": step.waiting})


def _slice(
    track: int, name: str, start_ms: float, time_ms: float, args: Mapping[str, object]
) -> TraceEvent:
    return {
        "ph": "X",
        "pid": _PID,
        "tid": track,
        "cat": "run",
        "name": name,
        "ts": start_ms * 1e3,
        "dur": time_ms * 1e3,
        "args": args,
    }


def _instant(name: str, at_ms: float, args: Mapping[str, object]) -> TraceEvent:
    return {
        "ph": "i",
        "s": "t",
        "pid": _PID,
        "tid": _TOKENS,
        "cat": "run",
        "name": name,
        "ts": at_ms * 1e3,
        "args": args,
    }


def _counter(name: str, at_ms: float, args: Mapping[str, object]) -> TraceEvent:
    return {"ph": "C", "pid": _PID, "name": name, "ts": at_ms * 1e3, "args": args}
