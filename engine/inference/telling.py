"""What a lane's events say to the people who asked: one request's messages, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import EngineError, StepFailed
from engine.inference.messages import (
    Accepted,
    Done,
    Drafted,
    Failed,
    Message,
    Preempted,
    Queued,
    Started,
    Step,
    Token,
)
from engine.inference.preparing import PreparedRequest
from engine.inference.text_stream import TextStream
from engine.inference.timeline import Timeline
from engine.inference.tokenizer import Tokenizer
from engine.refusals import refused
from engine.scheduling.events import (
    DraftsVerified,
    Event,
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    RequestStarted,
    SequenceStep,
    StepCompleted,
    TokenProduced,
)
from engine.scheduling.plan import Phase, SequenceShape
from engine.scheduling.request import FinishReason, Request

Finish = Callable[[str, FinishReason], object]

RECOMPUTE = "recompute"
"""The phase of a step that computes again what was computed: with the KV cache off, or after a
preemption."""

SHORTEST_PAUSE = 1e-3
"""Seconds between two steps below which nobody is told what the engine did."""


def _not_attached(sample_id: str, reason: FinishReason) -> None:
    raise AssertionError(f"{sample_id} ended ({reason}) before its teller had a loop")


@dataclass(frozen=True, slots=True)
class Facts:
    """What every ``Accepted`` of a lane repeats."""

    model: str
    device: str
    dtype: str
    lane: str


@dataclass(slots=True)
class Sample:
    """One answer in the making: most requests have one, with ``n`` there are several.

    ``last_end``: when its last step ended, or it could have run first, on the loop's clock.
    """

    prepared: PreparedRequest
    number: int
    stream: TextStream
    told_position: int = 0
    cached_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    accepted_to_come: int = 0
    last_end: float = 0.0

    @property
    def request_id(self) -> str:
        """The id of the request, which all its samples share."""
        return self.prepared.generate.request_id


class Teller:
    """Turns one lane's events into messages. ``samples`` are those that live, by their own ids."""

    def __init__(
        self,
        facts: Facts,
        tokenizer: Tokenizer,
        timeline: Timeline,
        emit: Callable[[Message], None],
    ) -> None:
        self.samples: dict[str, Sample] = {}
        self._facts = facts
        self._tokenizer = tokenizer
        self._timeline = timeline
        self._emit = emit
        self._finish: Finish = _not_attached

    def attach(self, finish: Finish) -> None:
        """``finish`` ends a sample in the scheduler, because its text contains a stop string or
        because another sample of its request has failed."""
        self._finish = finish

    def detach(self) -> None:
        """Forget the loop."""
        self._finish = _not_attached

    def tell(self, event: Event) -> None:
        """Send what an event means for each request that it concerns."""
        if isinstance(event, StepCompleted):
            self._tell_step(event)
        elif isinstance(event, TokenProduced):
            self._tell_token(event)
        elif isinstance(event, RequestFinished):
            self._tell_finished(event)
        elif isinstance(event, DraftsVerified):
            self._tell_drafts(event)
        elif isinstance(event, RequestStarted):
            self._tell_started(event)
        elif isinstance(event, RequestQueued):
            self._tell_queued(event)
        elif isinstance(event, RequestPreempted):
            sample = self.samples[event.request_id]
            sample.told_position = 0
            self._emit(Preempted(sample.request_id, event.lost_tokens, sample.number))

    def tell_positions(self, waiting: list[Request]) -> None:
        """Tell each waiting sample its place in the queue, whenever it has changed."""
        for place, request in enumerate(waiting, start=1):
            sample = self.samples[request.request_id]
            if sample.told_position != place:
                sample.told_position = place
                self._emit(Queued(sample.request_id, place, sample.number))

    def _tell_queued(self, event: RequestQueued) -> None:
        sample = self.samples[event.request_id]
        if sample.number:
            return  # the first sample's message stands for the request
        prepared = sample.prepared
        self._emit(
            Accepted(
                request_id=sample.request_id,
                model=self._facts.model,
                device=self._facts.device,
                dtype=self._facts.dtype,
                lane=self._facts.lane,
                prompt_token_ids=prepared.prompt_token_ids,
                prompt_pieces=prepared.prompt_pieces,
                max_tokens=prepared.generate.max_tokens,
                seed=prepared.sampling.seed,
                tokenize_ms=prepared.tokenize_seconds * 1e3,
                opening_ms=prepared.opening_seconds * 1e3,
                notices=prepared.notices,
            )
        )

    def _tell_started(self, event: RequestStarted) -> None:
        sample = self.samples[event.request_id]
        if not sample.stream.token_ids:  # after a preemption its own answer is found, too
            sample.cached_tokens = event.cached_tokens
        self._emit(
            Started(
                request_id=sample.request_id,
                waited_ms=event.waited * 1e3,
                cached_tokens=event.cached_tokens,
                forked_tokens=event.forked_tokens,
                sample=sample.number,
            )
        )

    def _tell_step(self, event: StepCompleted) -> None:
        shapes = tuple(shape_of(sequence.shape) for sequence in event.sequences)
        stages_ms = {name: seconds * 1e3 for name, seconds in event.stages.items()}
        phases = [self._phase_of(sequence) for sequence in event.sequences]
        step_phase = phases[0] if len(set(phases)) == 1 else Phase.MIXED
        for own, sequence in enumerate(event.sequences):
            sample = self.samples.get(sequence.request_id)
            if sample is None:
                continue
            self._emit(
                Step(
                    request_id=sample.request_id,
                    step=event.step,
                    phase=phases[own],
                    step_phase=step_phase,
                    batch=event.batch,
                    tokens=event.num_tokens,
                    own=own,
                    shapes=shapes,
                    start_ms=(event.time - sample.prepared.received) * 1e3,
                    time_ms=event.duration * 1e3,
                    stages_ms=stages_ms,
                    own_kv_tokens=sequence.shape.prefix_tokens + sequence.shape.new_tokens,
                    own_kv_blocks=sequence.kv_blocks,
                    kv_blocks_used=event.kv_blocks_used,
                    kv_blocks_total=event.kv_blocks_total,
                    running=event.num_running,
                    waiting=event.num_waiting,
                    kv_blocks_cached=event.kv_blocks_cached,
                    kv_blocks_copied=event.kv_blocks_copied,
                    pauses_ms=self._pauses(sample, event.time),
                    sample=sample.number,
                )
            )
            sample.last_end = event.time + event.duration
        self._timeline.stepped(self._facts.lane, event.time, event.duration, event.phase)

    def _phase_of(self, sequence: SequenceStep) -> str:
        """Its phase in words for people: what is computed again is no prefill, though it runs as
        one. A sample that ended within its step has a phase, too."""
        sample = self.samples.get(sequence.request_id)
        again = sample is not None and bool(sample.stream.token_ids)
        return RECOMPUTE if again and sequence.phase is Phase.PREFILL else sequence.phase

    def _pauses(self, sample: Sample, until: float) -> dict[str, float]:
        """What the engine did since the sample's last step, in ms by cause; nothing if it was as
        short as it always is."""
        if until - sample.last_end < SHORTEST_PAUSE:
            return {}
        causes = self._timeline.causes(self._facts.lane, sample.last_end, until)
        return {cause.value: seconds * 1e3 for cause, seconds in causes.items()}

    def _tell_token(self, event: TokenProduced) -> None:
        sample = self.samples.get(event.request_id)
        if sample is None:
            return  # a stop string ended it within this step's accepted drafts
        sample.accepted_to_come = max(0, sample.accepted_to_come - 1)
        stream = sample.stream
        text, seconds = stream.push(event.token_id, event.time)
        piece = self._tokenizer.piece
        self._emit(
            Token(
                request_id=sample.request_id,
                index=event.index,
                id=event.token_id,
                text=text,
                piece=piece(event.token_id),
                logprob=event.logprob,
                itl_ms=stream.last_itl_ms,
                time_ms=(event.time - stream.received) * 1e3,
                detokenize_ms=seconds * 1e3,
                top=tuple((token, piece(token), logprob) for token, logprob in event.top),
                sample=sample.number,
            )
        )
        if stream.stopped:
            self._finish(event.request_id, FinishReason.STOP)

    def _tell_drafts(self, event: DraftsVerified) -> None:
        sample = self.samples.get(event.request_id)
        if sample is None:
            return
        sample.drafted_tokens += len(event.proposed)
        sample.accepted_tokens += event.num_accepted
        sample.accepted_to_come = event.num_accepted
        self._emit(
            Drafted(
                request_id=sample.request_id,
                draft_token_ids=event.proposed,
                draft_pieces=tuple(map(self._tokenizer.piece, event.proposed)),
                num_accepted=event.num_accepted,
                sample=sample.number,
            )
        )

    def _tell_finished(self, event: RequestFinished) -> None:
        # A sample that ended by a stop string and by length in one step is told once.
        sample = self.samples.pop(event.request_id, None)
        if sample is None:
            return
        mates = [name for name, m in self.samples.items() if m.request_id == sample.request_id]
        if event.reason is FinishReason.ERROR:
            self._tell_failed(sample, mates)
            return
        stream = sample.stream
        tail = stream.tail()
        reason = FinishReason.STOP if stream.stopped else event.reason
        self._emit(
            Done(
                request_id=sample.request_id,
                finish_reason=reason,
                prompt_tokens=event.prompt_tokens,
                completion_tokens=len(stream.token_ids),
                ttft_ms=stream.ttft_ms,
                itl_ms=stream.itl_ms,
                tail=tail,
                text=stream.whole_text(),
                cached_tokens=sample.cached_tokens,
                drafted_tokens=sample.drafted_tokens,
                # The text may have ended among the drafts of its last step.
                accepted_tokens=sample.accepted_tokens - sample.accepted_to_come,
                sample=sample.number,
                samples_left=len(mates),
            )
        )

    def _tell_failed(self, sample: Sample, mates: list[str]) -> None:
        """A request fails as a whole: its other samples end without a word of their own."""
        for name in mates:
            del self.samples[name]
        self._emit(failed(sample.request_id, refused("step_failed", kind=StepFailed)))
        for name in mates:
            self._finish(name, FinishReason.ABORT)


def shape_of(shape: SequenceShape) -> tuple[int, int, bool, int]:
    """A sequence's integers as they go over the wire."""
    return shape.prefix_tokens, shape.new_tokens, shape.samples, shape.drafts


def failed(request_id: str, error: EngineError) -> Failed:
    """A refusal or failure as it goes over the wire."""
    return Failed(request_id, error.code, error.message, error.field, error.reason, error.values)


def never_started(prepared: PreparedRequest) -> Done:
    """The end of a request that was aborted before it was queued."""
    return Done(
        request_id=prepared.generate.request_id,
        finish_reason=FinishReason.ABORT,
        prompt_tokens=len(prepared.prompt_token_ids),
        completion_tokens=0,
        ttft_ms=None,
        itl_ms=(),
        tail="",
        text="",
    )
