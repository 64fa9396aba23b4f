"""From the worker's messages to the events of the protocol."""

from __future__ import annotations

import math
from dataclasses import asdict

from engine.inference.messages import (
    Accepted,
    Done,
    Drafted,
    Failed,
    LaneInfo,
    Opening,
    Preempted,
    Queued,
    Started,
    Step,
    Token,
)
from webapp.prediction import RequestPrediction, StepPrediction
from webapp.schemas.engine import LaneDocument
from webapp.schemas.live_events import (
    AcceptedEvent,
    DoneEvent,
    DraftedEvent,
    ErrorEvent,
    OpeningEvent,
    PreemptedEvent,
    QueuedEvent,
    StartedEvent,
    StepEvent,
    TokenEvent,
    TopLogprob,
    Usage,
)


def finite(value: float | None) -> float | None:
    """None for what JSON cannot hold, such as the log-probability of an impossible token."""
    return value if value is not None and math.isfinite(value) else None


def accepted_event(message: Accepted, lane: LaneInfo | None, notices: list[str]) -> AcceptedEvent:
    """The prompt as tokens; ``notices`` say what was changed before tokenizing, and the message's
    own what tokenizing left out."""
    return AcceptedEvent(
        model=message.model,
        device=message.device,
        dtype=message.dtype,
        lane=None if lane is None else LaneDocument.model_validate(asdict(lane)),
        prompt_tokens=len(message.prompt_token_ids),
        prompt_token_ids=list(message.prompt_token_ids),
        prompt_pieces=list(message.prompt_pieces),
        max_tokens=message.max_tokens,
        seed=message.seed,
        tokenize_ms=message.tokenize_ms,
        opening_ms=message.opening_ms,
        notices=[*notices, *message.notices],
    )


def queued_event(message: Queued) -> QueuedEvent:
    """The request's place in the queue, 1 for the next to run."""
    return QueuedEvent(position=message.position, sample=message.sample)


def opening_event(message: Opening) -> OpeningEvent:
    """The request waits until its lane is open, and how far that is."""
    return OpeningEvent(
        lane=message.lane,
        ahead=message.ahead,
        stage=message.stage,
        share=message.share,
        part=message.part,
    )


def started_event(message: Started) -> StartedEvent:
    """The request joins the next step, with what it need not compute."""
    return StartedEvent(
        waited_ms=message.waited_ms,
        cached_tokens=message.cached_tokens,
        forked_tokens=message.forked_tokens,
        sample=message.sample,
    )


def drafted_event(message: Drafted) -> DraftedEvent:
    """The drafts that a step verified; the first ``accepted`` of them are tokens now."""
    return DraftedEvent(
        draft_token_ids=list(message.draft_token_ids),
        draft_pieces=list(message.draft_pieces),
        accepted=message.num_accepted,
        sample=message.sample,
    )


def step_event(
    message: Step,
    prediction: StepPrediction | None,
    lane: LaneInfo | None,
    steps_dropped: int,
) -> StepEvent:
    """``flops`` and ``bytes`` are those of the whole step, that is of every request in it."""
    predicted_s = None if prediction is None else prediction.time_s
    typical = None if prediction is None else prediction.typical
    return StepEvent(
        step=message.step,
        phase=message.phase,
        step_phase=message.step_phase,
        batch=message.batch,
        tokens=message.tokens,
        start_ms=message.start_ms,
        time_ms=message.time_ms,
        time=message.time_ms / 1e3,
        stages_ms={stage: finite(ms) for stage, ms in message.stages_ms.items()},
        predicted_ms=None if predicted_s is None else predicted_s * 1e3,
        predicted_time=predicted_s,
        typical_ms=None if typical is None else typical.time_s * 1e3,
        typical_p10_ms=None if typical is None else typical.p10_s * 1e3,
        typical_p90_ms=None if typical is None else typical.p90_s * 1e3,
        flops=None if prediction is None else prediction.flops,
        bytes=None if prediction is None else prediction.bytes,
        intensity=None if prediction is None else prediction.intensity,
        bound=None if prediction is None else prediction.bound,
        own_kv_tokens=message.own_kv_tokens,
        own_kv_blocks=message.own_kv_blocks,
        kv_blocks=message.own_kv_blocks,
        kv_bytes=None if lane is None else lane.kv_bytes_per_token * message.own_kv_tokens,
        kv_blocks_used=message.kv_blocks_used,
        kv_blocks_total=message.kv_blocks_total,
        kv_blocks_cached=message.kv_blocks_cached,
        kv_blocks_copied=message.kv_blocks_copied,
        kv_block_tokens=None if lane is None else lane.kv_block_tokens,
        running=message.running,
        waiting=message.waiting,
        pauses_ms=message.pauses_ms,
        steps_dropped=steps_dropped,
        sample=message.sample,
    )


def token_event(message: Token) -> TokenEvent:
    """One output token; a log-probability of minus infinity becomes None."""
    return TokenEvent(
        index=message.index,
        id=message.id,
        text=message.text,
        piece=message.piece,
        logprob=finite(message.logprob),
        itl_ms=finite(message.itl_ms),
        time_ms=message.time_ms,
        detokenize_ms=message.detokenize_ms,
        top_logprobs=[
            TopLogprob(id=token, piece=piece, logprob=finite(logprob))
            for token, piece, logprob in message.top
        ],
        sample=message.sample,
    )


def preempted_event(message: Preempted) -> PreemptedEvent:
    """The request lost its blocks and will be computed again."""
    return PreemptedEvent(lost_tokens=message.lost_tokens, sample=message.sample)


def done_event(message: Done, predicted: RequestPrediction, steps_dropped: int) -> DoneEvent:
    """The end, with usage and with the sums of the predicted steps in ms."""
    return DoneEvent(
        finish_reason=message.finish_reason,
        usage=Usage(
            prompt_tokens=message.prompt_tokens,
            completion_tokens=message.completion_tokens,
            total_tokens=message.prompt_tokens + message.completion_tokens,
            cached_tokens=message.cached_tokens,
            drafted_tokens=message.drafted_tokens,
            accepted_tokens=message.accepted_tokens,
        ),
        ttft_ms=finite(message.ttft_ms),
        predicted_ttft_ms=predicted.ttft_ms,
        typical_ttft_ms=predicted.typical_ttft_ms,
        itl_ms=[ms for ms in message.itl_ms if math.isfinite(ms)],
        predicted_itl_ms=predicted.itl_ms,
        typical_itl_ms=predicted.typical_itl_ms,
        tail=message.tail,
        text=message.text,
        steps_dropped=steps_dropped,
        sample=message.sample,
        samples_left=message.samples_left,
    )


def error_event(message: Failed) -> ErrorEvent:
    """The engine's refusal or failure; its field becomes a JSON pointer."""
    field = None if message.field is None else f"/{message.field.replace('.', '/')}"
    return ErrorEvent(
        code=message.code,
        message=message.message,
        field=field,
        reason=message.reason,
        values=message.values,
    )
