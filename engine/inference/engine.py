"""The engine as one object: requests in, messages out, one step at a time.

A lane is one dtype with its own weights, KV cache, scheduler and loop; requests of one dtype share
steps. Nothing here knows of processes or sockets: the worker feeds it, the CLI calls it directly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.errors import EngineError, StepFailed
from engine.inference.loading import LoadedModel
from engine.inference.messages import (
    Accepted,
    Done,
    EngineInfo,
    Failed,
    Generate,
    LaneInfo,
    Message,
    Preempted,
    Queued,
    Step,
    Token,
)
from engine.inference.preparing import PreparedRequest, prepare_request
from engine.inference.text_stream import TextStream
from engine.scheduling.blocks import BlockPool
from engine.scheduling.events import (
    Event,
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    StepCompleted,
    TokenProduced,
)
from engine.scheduling.loop import SchedulingLoop, WallClock
from engine.scheduling.request import FinishReason, Request
from engine.scheduling.scheduler import Scheduler, SchedulerLimits

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Active:
    prepared: PreparedRequest
    stream: TextStream
    told_position: int = 0


@dataclass(slots=True)
class _Lane:
    loop: SchedulingLoop
    info: LaneInfo
    active: dict[str, _Active] = field(default_factory=dict[str, _Active])


class Engine:
    """Runs requests on a loaded model and tells every step through ``emit``."""

    def __init__(
        self, model: LoadedModel, limits: SchedulerLimits, emit: Callable[[Message], None]
    ) -> None:
        self._model = model
        self._limits = limits
        self._emit = emit
        self._lanes = {dtype: self._make_lane(dtype) for dtype in model.executors}
        self._turn = 0

    def _make_lane(self, dtype: str) -> _Lane:
        executor = self._model.executors[dtype]
        scheduler = Scheduler(BlockPool(executor.num_blocks, executor.block_size), self._limits)
        loop = SchedulingLoop(
            scheduler, executor, WallClock(), lambda event: self._tell(dtype, event)
        )
        info = LaneInfo(
            dtype=dtype,
            weight_bytes=executor.weight_bytes,
            kv_bytes_per_token=executor.kv_bytes_per_token,
            kv_blocks_total=executor.num_blocks,
            kv_block_tokens=executor.block_size,
        )
        return _Lane(loop, info)

    @property
    def info(self) -> EngineInfo:
        """What runs here, for the other side to show."""
        model = self._model
        return EngineInfo(
            model_name=model.config.name,
            model=model.architecture,
            provenance=model.provenance,
            source_format=model.source_format,
            random_weights=model.random_weights,
            device=model.device,
            device_name=model.device_name,
            torch_version=model.torch_version,
            threads=model.threads,
            default_dtype=model.default_dtype,
            lanes=tuple(lane.info for lane in self._lanes.values()),
            max_context=self._limits.max_context,
            max_running=self._limits.max_running,
            max_waiting=self._limits.max_waiting,
            load_seconds=model.load_seconds,
            has_chat_template=model.tokenizer.has_chat_template,
        )

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    def prepare(self, generate: Generate, received: float) -> PreparedRequest:
        """``prepare_request`` for this engine's model. Touches no state: any thread may call it."""
        return prepare_request(self._model, generate, received)

    def submit(self, prepared: PreparedRequest) -> None:
        """Queue a prepared request; a refusal is told as ``Failed``, never raised."""
        generate = prepared.generate
        lane = self._lanes[prepared.dtype]
        active = _Active(
            prepared,
            TextStream(
                self._model.tokenizer,
                prepared.received,
                generate.stop,
                prepared.stop_token_ids,
            ),
        )
        request = Request(
            generate.request_id,
            prepared.prompt_token_ids,
            generate.max_tokens,
            stop_token_ids=prepared.stop_token_ids,
            session_id=generate.session_id,
        )
        if any(generate.request_id in other.active for other in self._lanes.values()):
            self._emit(Failed(generate.request_id, "invalid_request", "this id is in use"))
            return
        lane.active[generate.request_id] = active
        executor = self._model.executors[prepared.dtype]
        executor.add_request(generate.request_id, prepared.sampling)
        try:
            lane.loop.add(request)
        except EngineError as error:
            del lane.active[generate.request_id]
            executor.release(generate.request_id)
            self.refuse(generate.request_id, error)

    def refuse(self, request_id: str, error: EngineError) -> None:
        """Tell that a request was not taken."""
        self._emit(Failed(request_id, error.code, error.message, error.field))

    def abort(self, request_id: str) -> None:
        """End a request; one that has ended already is left alone."""
        for lane in self._lanes.values():
            if request_id in lane.active:
                lane.loop.abort(request_id)
                return

    # ── steps ────────────────────────────────────────────────────────────────────────────────

    @property
    def has_work(self) -> bool:
        return any(lane.loop.has_work for lane in self._lanes.values())

    def step(self) -> bool:
        """Run one step of the next lane that has work; False if none has.

        Raises:
            StepFailed: the executor raised; the requests of that step were told.
        """
        lanes = list(self._lanes.values())
        for offset in range(len(lanes)):
            index = (self._turn + offset) % len(lanes)
            if lanes[index].loop.has_work:
                self._turn = index + 1
                stepped = lanes[index].loop.step()
                self._tell_positions(lanes[index])
                return stepped
        return False

    # ── events to messages ───────────────────────────────────────────────────────────────────

    def _tell(self, dtype: str, event: Event) -> None:
        lane = self._lanes[dtype]
        if isinstance(event, StepCompleted):
            self._tell_step(lane, event)
        elif isinstance(event, TokenProduced):
            self._tell_token(lane, event)
        elif isinstance(event, RequestFinished):
            self._tell_finished(lane, event)
        elif isinstance(event, RequestQueued):
            self._tell_queued(lane, event)
        elif isinstance(event, RequestPreempted):
            lane.active[event.request_id].told_position = 0
            self._emit(Preempted(event.request_id, event.lost_tokens))

    def _tell_queued(self, lane: _Lane, event: RequestQueued) -> None:
        prepared = lane.active[event.request_id].prepared
        self._emit(
            Accepted(
                request_id=event.request_id,
                model=self._model.config.name,
                device=self._model.device,
                dtype=prepared.dtype,
                prompt_token_ids=prepared.prompt_token_ids,
                prompt_pieces=prepared.prompt_pieces,
                max_tokens=prepared.generate.max_tokens,
                seed=prepared.sampling.seed,
                tokenize_ms=prepared.tokenize_seconds * 1e3,
                notices=prepared.notices,
            )
        )
        self._tell_positions(lane)

    def _tell_positions(self, lane: _Lane) -> None:
        """Tell each waiting request its place in the queue, whenever it has changed."""
        for place, request in enumerate(lane.loop.scheduler.waiting, start=1):
            active = lane.active[request.request_id]
            if active.told_position != place:
                active.told_position = place
                self._emit(Queued(request.request_id, place))

    def _tell_step(self, lane: _Lane, event: StepCompleted) -> None:
        shapes = tuple(
            (s.shape.prefix_tokens, s.shape.new_tokens, s.shape.samples) for s in event.sequences
        )
        stages_ms = {name: seconds * 1e3 for name, seconds in event.stages.items()}
        for own, sequence in enumerate(event.sequences):
            active = lane.active.get(sequence.request_id)
            if active is None:
                continue
            self._emit(
                Step(
                    request_id=sequence.request_id,
                    step=event.step,
                    phase=sequence.phase,
                    step_phase=event.phase,
                    batch=event.batch,
                    tokens=event.num_tokens,
                    own=own,
                    shapes=shapes,
                    start_ms=(event.time - active.prepared.received) * 1e3,
                    time_ms=event.duration * 1e3,
                    stages_ms=stages_ms,
                    own_kv_tokens=sequence.shape.prefix_tokens + sequence.shape.new_tokens,
                    own_kv_blocks=sequence.kv_blocks,
                    kv_blocks_used=event.kv_blocks_used,
                    kv_blocks_total=event.kv_blocks_total,
                    running=event.num_running,
                    waiting=event.num_waiting,
                )
            )

    def _tell_token(self, lane: _Lane, event: TokenProduced) -> None:
        active = lane.active[event.request_id]
        stream = active.stream
        text, seconds = stream.push(event.token_id, event.time)
        self._emit(
            Token(
                request_id=event.request_id,
                index=event.index,
                id=event.token_id,
                text=text,
                piece=self._model.tokenizer.piece(event.token_id),
                logprob=event.logprob,
                itl_ms=stream.last_itl_ms,
                time_ms=(event.time - stream.received) * 1e3,
                detokenize_ms=seconds * 1e3,
            )
        )
        if stream.stopped:
            lane.loop.finish(event.request_id, FinishReason.STOP)

    def _tell_finished(self, lane: _Lane, event: RequestFinished) -> None:
        # A request that ended by a stop string and by length in one step is told once.
        active = lane.active.pop(event.request_id, None)
        if active is None:
            return
        if event.reason is FinishReason.ERROR:
            message = "the model failed while running this step; run the prompt again"
            self._emit(Failed(event.request_id, StepFailed.code, message))
            return
        stream = active.stream
        tail = stream.tail()
        reason = FinishReason.STOP if stream.stopped else event.reason
        self._emit(
            Done(
                request_id=event.request_id,
                finish_reason=reason,
                prompt_tokens=event.prompt_tokens,
                completion_tokens=event.completion_tokens,
                ttft_ms=stream.ttft_ms,
                itl_ms=stream.itl_ms,
                tail=tail,
                text=stream.whole_text(),
            )
        )
