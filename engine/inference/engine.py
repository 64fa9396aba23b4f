"""The engine as one object: requests in, messages out, one step at a time.

A lane is one format of weights with one KV cache, its own scheduler and its own loop; requests of
one lane share steps. Nothing here knows of processes or sockets: the worker feeds it, the CLI
calls it directly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.errors import EngineError, InvalidRequest, QueueFull
from engine.inference.lane_set import Knobs, LaneSet, changed
from engine.inference.lane_settings import LaneSettings
from engine.inference.lanes import OpenedLane
from engine.inference.loading import LoadedModel
from engine.inference.messages import (
    Configure,
    Configured,
    EngineInfo,
    Failed,
    Generate,
    Message,
    Opening,
    Probe,
    Probed,
)
from engine.inference.preparing import PreparedRequest, prepare_request
from engine.inference.probes.desk import ProbeDesk
from engine.inference.telling import Sample, never_started
from engine.inference.text_stream import TextStream
from engine.scheduling.request import Request
from engine.scheduling.scheduler import SchedulerLimits

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    """Requests that wait for a lane which is being opened."""

    settings: LaneSettings
    requests: list[PreparedRequest] = field(default_factory=list[PreparedRequest])


class Engine:
    """Runs requests on a loaded model and tells every step through ``emit``."""

    def __init__(
        self,
        model: LoadedModel,
        limits: SchedulerLimits,
        emit: Callable[[Message], None],
        policy: str = "first-come",
    ) -> None:
        self._model = model
        self._emit = emit
        self._lanes = LaneSet(model, Knobs(limits, policy), emit)
        self._held: dict[str, _Held] = {}
        self._probes = ProbeDesk(model.checkpoint)
        self._turn = 0

    # ── lanes ────────────────────────────────────────────────────────────────────────────────

    def missing_lane(self, prepared: PreparedRequest) -> LaneSettings | None:
        """The lane that a request needs and that is not open."""
        return None if self._lanes.get(prepared.lane.name) else prepared.lane

    def hold(self, prepared: PreparedRequest) -> LaneSettings | None:
        """Keep a request until its lane is open; the lane to open, if nobody has asked yet.

        Without room for another lane the request is refused.
        """
        request_id, name = prepared.generate.request_id, prepared.lane.name
        if self._is_known(request_id):
            self._refuse_known(request_id)
            return None
        held = self._held.get(name)
        limits = self._lanes.knobs.limits
        waiting = sum(p.generate.n for p in held.requests) if held else 0
        if waiting + prepared.generate.n > limits.max_running + limits.max_waiting:
            full = "too many prompts wait for these engine settings; try again in a moment"
            self.refuse(request_id, QueueFull(full))
            return None
        if held is None and not self._lanes.make_room(len(self._held)):
            busy = "too many different engine settings are in use; try again in a moment"
            self.refuse(request_id, QueueFull(busy, field="weights"))
            return None
        self._emit(self.info)  # making room may have closed a lane
        self._emit(Opening(request_id, name))
        if held is not None:
            held.requests.append(prepared)
            return None
        self._held[name] = _Held(prepared.lane, [prepared])
        return prepared.lane

    def open_lane(self, settings: LaneSettings) -> OpenedLane:
        """Load what a lane needs; takes long, touches no state: any thread may call it.

        Raises:
            EngineError: the model cannot be had in that format, or not in the memory that is free.
        """
        return self._model.opener.open(settings, on_demand=True)

    def add_lane(self, opened: OpenedLane) -> None:
        """Take a lane in and submit the requests that waited for it."""
        self._lanes.add(opened)
        self._emit(self.info)
        held = self._held.pop(opened.settings.name, None)
        for prepared in held.requests if held else ():
            self.submit(prepared.with_lane_opened())

    def lane_failed(self, settings: LaneSettings, error: EngineError) -> None:
        """Refuse the requests that waited for a lane that could not be opened."""
        held = self._held.pop(settings.name, None)
        for prepared in held.requests if held else ():
            self.refuse(prepared.generate.request_id, error)

    @property
    def info(self) -> EngineInfo:
        """What runs here, for the other side to show."""
        model, knobs = self._model, self._lanes.knobs
        limits = knobs.limits
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
            lanes=tuple(lane.info for lane in self._lanes),
            max_context=limits.max_context,
            max_running=limits.max_running,
            max_waiting=limits.max_waiting,
            max_step_tokens=limits.max_step_tokens,
            policy=knobs.policy,
            load_seconds=model.load_seconds,
            has_chat_template=model.tokenizer.has_chat_template,
        )

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    def prepare(self, generate: Generate, received: float) -> PreparedRequest:
        """``prepare_request`` for this engine's model. Touches no state: any thread may call it."""
        return prepare_request(self._model, generate, received)

    def submit(self, prepared: PreparedRequest) -> None:
        """Queue a prepared request whose lane is open; a refusal is told as ``Failed``."""
        generate = prepared.generate
        if self._is_known(generate.request_id):
            self._refuse_known(generate.request_id)
            return
        lane = self._lanes.use(prepared.lane.name)
        first, *others = names = prepared.sample_ids
        executor = lane.opened.executor
        for number, name in enumerate(names):
            stream = TextStream(
                self._model.tokenizer, prepared.received, generate.stop, prepared.stop_token_ids
            )
            lane.teller.samples[name] = Sample(prepared, number, stream)
            executor.add_request(name, prepared.sampling_of(number))
        request = Request(
            first,
            prepared.prompt_token_ids,
            generate.max_tokens,
            stop_token_ids=prepared.stop_token_ids,
            session_id=generate.session_id,
            priority=generate.priority,
            min_tokens=generate.min_tokens,
            ignore_eos=generate.ignore_eos,
            speculation=generate.speculation,
        )
        try:
            lane.loop.add(request, others)
        except EngineError as error:
            for name in names:
                del lane.teller.samples[name]
                executor.release(name)
            self.refuse(generate.request_id, error)
            return
        lane.teller.tell_positions(lane.loop.scheduler.waiting)

    def refuse(self, request_id: str, error: EngineError) -> None:
        """Tell that a request was not taken."""
        self._emit(Failed(request_id, error.code, error.message, error.field))

    def abort(self, request_id: str) -> None:
        """End a request with all its samples; one that has ended already is left alone."""
        for held in self._held.values():
            for prepared in [p for p in held.requests if p.generate.request_id == request_id]:
                held.requests.remove(prepared)
                self._emit(never_started(prepared))
        for lane in self._lanes:
            samples = lane.teller.samples
            for name in [n for n, s in samples.items() if s.request_id == request_id]:
                lane.loop.abort(name)

    def _is_known(self, request_id: str) -> bool:
        held = (p for held in self._held.values() for p in held.requests)
        live = (s for lane in self._lanes for s in lane.teller.samples.values())
        return any(p.generate.request_id == request_id for p in held) or any(
            sample.request_id == request_id for sample in live
        )

    def _refuse_known(self, request_id: str) -> None:
        self.refuse(request_id, InvalidRequest("this id is in use"))

    def probe(self, question: Probe) -> Probed:
        """Look inside the model; takes up to seconds, touches no lane: for one thread at a time.

        Raises:
            InvalidRequest: the question cannot be answered; names the field.
        """
        document = self._probes.answer(question.kind, question.arguments)
        return Probed(question.request_id, document)

    # ── knobs ────────────────────────────────────────────────────────────────────────────────

    def configure(self, change: Configure) -> None:
        """Turn knobs of all lanes between two steps; a refusal is told as ``Failed``."""
        before = self._lanes.knobs
        try:
            knobs = changed(before, change)
            self._lanes.turn(knobs)
        except EngineError as error:
            self._lanes.turn(before)  # lanes before the one that refused had obeyed
            self.refuse(change.request_id, error)
            return
        self._emit(self.info)
        self._emit(
            Configured(
                change.request_id,
                knobs.limits.max_running,
                knobs.limits.max_step_tokens,
                knobs.policy,
                knobs.usable_blocks,
            )
        )

    # ── steps ────────────────────────────────────────────────────────────────────────────────

    @property
    def has_work(self) -> bool:
        return any(lane.loop.has_work for lane in self._lanes)

    def step(self) -> bool:
        """Run one step of the next lane that has work; False if none has.

        Raises:
            StepFailed: the executor raised; the requests of that step were told.
        """
        lanes = list(self._lanes)
        for offset in range(len(lanes)):
            index = (self._turn + offset) % len(lanes)
            if lanes[index].loop.has_work:
                self._turn = index + 1
                stepped = lanes[index].loop.step()
                lanes[index].teller.tell_positions(lanes[index].loop.scheduler.waiting)
                return stepped
        return False
