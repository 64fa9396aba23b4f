"""The engine as one object: requests in, messages out, one step at a time.

A lane is one format of weights with one KV cache, its own scheduler and its own loop; requests of
one lane share steps. Nothing here knows of processes or sockets: the worker feeds it, the CLI
calls it directly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from engine.errors import EngineError, LanesFull, QueueFull
from engine.inference.calibration import memory_bytes
from engine.inference.held_requests import HeldRequests
from engine.inference.lane_orders import LaneOrder, OpeningStage, Report, no_report
from engine.inference.lane_set import Knobs, Lane, LaneSet, changed
from engine.inference.lane_settings import LaneSettings
from engine.inference.lanes import OpenedLane
from engine.inference.loading import LoadedModel
from engine.inference.messages import (
    Configure,
    Configured,
    EngineInfo,
    Generate,
    Message,
    Probe,
    Probed,
)
from engine.inference.preparing import PreparedRequest, prepare_request
from engine.inference.probes.desk import ProbeDesk
from engine.inference.telling import Sample, failed
from engine.inference.text_stream import TextStream
from engine.inference.timeline import Timeline
from engine.refusals import refused
from engine.scheduling.request import Request
from engine.scheduling.scheduler import SchedulerLimits

log = logging.getLogger(__name__)


PROBE_LAYER_BYTES = 512 * 2**20
"""What layers' weights in float32 may hold for probes: all of the default model. Without them each
probe dequantises every layer again, which takes longer than running it."""


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
        self._timeline = Timeline()
        self._lanes = LaneSet(model, Knobs(limits, policy), self._timeline, emit)
        self._held = HeldRequests(emit)
        self._probes = ProbeDesk(
            model.checkpoint,
            layer_bytes=min(PROBE_LAYER_BYTES, memory_bytes(torch.device("cpu")) // 16),
            weights_as=model.opener.weights,
        )
        self._turn = 0

    # ── lanes ────────────────────────────────────────────────────────────────────────────────

    def missing_lane(self, prepared: PreparedRequest) -> LaneSettings | None:
        """The lane that a request needs and that is not open."""
        return None if self._lanes.get(prepared.lane.name) else prepared.lane

    def hold(self, prepared: PreparedRequest) -> LaneOrder | None:
        """Keep a request until its lane is open; the lane to open, if nobody has asked yet.

        Without room for another lane the request is refused.
        """
        request_id, name = prepared.generate.request_id, prepared.lane.name
        if self._is_known(request_id):
            self._refuse_known(request_id)
            return None
        waiting = self._held.waiting_for(name)
        limits = self._lanes.knobs.limits
        if (waiting or 0) + prepared.generate.n > limits.max_running + limits.max_waiting:
            self.refuse(request_id, refused("lane_queue_full", kind=QueueFull))
            return None
        if waiting is not None:
            self._held.add(prepared)
            return None
        closed = self._lanes.make_room(len(self._held))
        if closed is None:
            self.refuse(request_id, refused("lanes_full", kind=LanesFull, field="weights"))
            return None
        if closed:
            self._emit(self.info)
        takes_long = self._model.opener.takes_long(prepared.lane)
        order = self._held.order(prepared, takes_long=takes_long)
        self._note_openings()
        return order

    def open_lane(self, order: LaneOrder, report: Report = no_report) -> OpenedLane:
        """Load what a lane needs; takes long, touches no state: any thread may call it.

        Raises:
            EngineError: the model cannot be had in that format, or not in the memory that is free.
            LaneAbandoned: nobody waits for it any more.
        """
        order.require_wanted()
        watched = order.watched(report)
        return self._model.opener.open(order.settings, on_demand=True, report=watched)

    def opening_progressed(
        self, order: LaneOrder, stage: OpeningStage, share: float, part: str
    ) -> None:
        """Tell the requests that wait for a lane how far it is."""
        self._held.progressed(order, stage, share, part)

    def add_lane(self, opened: OpenedLane) -> None:
        """Take a lane in and submit the requests that waited for it; without any it is dropped."""
        waiting = self._held.settle(opened.settings.name)
        if waiting:
            self._lanes.add(opened)
            self._emit(self.info)
        else:
            log.info("lane %s is not kept: nobody waits for it", opened.settings.name)
        self._note_openings()
        for prepared in waiting:
            self.submit(prepared.with_lane_opened())

    def lane_failed(self, order: LaneOrder, error: EngineError) -> None:
        """Refuse the requests that waited for a lane that could not be opened."""
        if self._held.is_current(order):
            for prepared in self._held.settle(order.settings.name):
                self.refuse(prepared.generate.request_id, error)
            self._note_openings()

    def _note_openings(self) -> None:
        """Whether lanes are being opened has perhaps changed."""
        self._timeline.opening(len(self._held) > 0)

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
            lane.teller.samples[name] = Sample(
                prepared, number, stream, last_end=prepared.received + prepared.tokenize_seconds
            )
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
        self._emit(failed(request_id, error))

    def abort(self, request_id: str) -> None:
        """End a request with all its samples; one that has ended already is left alone."""
        self._held.abort(request_id)
        self._note_openings()
        for lane in self._lanes:
            samples = lane.teller.samples
            for name in [n for n, s in samples.items() if s.request_id == request_id]:
                lane.loop.abort(name)

    def _is_known(self, request_id: str) -> bool:
        live = (s for lane in self._lanes for s in lane.teller.samples.values())
        return request_id in self._held or any(s.request_id == request_id for s in live)

    def _refuse_known(self, request_id: str) -> None:
        self.refuse(request_id, refused("id_in_use", field="request_id"))

    def probe(self, question: Probe) -> Probed:
        """Look inside the model; takes up to seconds, touches no lane: for one thread at a time.
        Questions of ``TEXT_KINDS`` take milliseconds and may come from another thread meanwhile.

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
                self._tell_native(lanes[index])
                stepped = lanes[index].loop.step()
                lanes[index].teller.tell_positions(lanes[index].loop.scheduler.waiting)
                return stepped
        return False

    def _tell_native(self, lane: Lane) -> None:
        """Tell once that steps of the lane run natively from now on: predictions depend on it."""
        rows = lane.opened.executor.native_rows
        if rows != lane.native_rows:
            lane.native_rows = rows
            self._emit(self.info)
