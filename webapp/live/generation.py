"""One running request of a connection: from the engine's messages to events in the outbox."""

from __future__ import annotations

from contextlib import aclosing
from typing import assert_never, cast

import structlog

from engine.inference.messages import (
    Accepted,
    Done,
    Drafted,
    Failed,
    Generate,
    LaneInfo,
    Message,
    Opening,
    Preempted,
    Queued,
    Started,
    Step,
    Token,
)
from webapp.live import translate
from webapp.live.engine_port import EnginePort
from webapp.live.outbox import Sink, ends_request
from webapp.prediction import RequestPrediction, StepPredictor
from webapp.schemas.live_events import ErrorEvent, ServerEvent

log = structlog.get_logger("webapp.live")

EngineMessage = (
    Opening | Accepted | Queued | Started | Step | Token | Drafted | Preempted | Done | Failed
)


class Generation:
    """Runs one request; whatever ends it, the client is told with ``done`` or ``error``."""

    def __init__(
        self,
        engine: EnginePort,
        predictor: StepPredictor,
        outbox: Sink,
        request_id: str,
        request: Generate,
        notices: list[str],
    ) -> None:
        self._engine = engine
        self._predictor = predictor
        self._outbox = outbox
        self._request_id = request_id
        self._request = request
        self._notices = notices
        self._lane: LaneInfo | None = None
        self._predictions = [RequestPrediction() for _ in range(request.n)]
        self._steps_dropped = 0
        self._asked = False
        self._abort_due = False
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the last event of the request is on its way to the client."""
        return self._ended

    async def run(self) -> None:
        """Streams to the end. Cancelling this closes the engine's iterator: the request aborts."""
        try:
            # aclosing: leaving early, for whatever reason, aborts the request in the engine.
            async with aclosing(self._engine.generate(self._request)) as messages:
                self._asked = True
                async for message in messages:
                    if self._abort_due:
                        self._abort_due = False
                        await self._engine.abort(self._request.request_id)
                    await self._tell(message)
        except Exception:
            log.exception("generation_failed", request=self._request.request_id)
            if not self._ended:
                await self._fail("internal_error", "The server failed; the failure was logged.")
            return
        if not self._ended:
            log.error("generation_without_end", request=self._request.request_id)
            await self._fail("internal_error", "The engine ended the request without an answer.")

    async def abort(self) -> None:
        """Ends the request early; its stream then ends with ``Done``.

        An engine forgets an abort of a request that it has not heard of. One that comes before the
        request was handed over is kept until the engine has answered for the first time.
        """
        if self._asked:
            await self._engine.abort(self._request.request_id)
        else:
            self._abort_due = True

    async def _tell(self, message: Message) -> None:
        event = cast("EngineMessage", message)
        match event:
            case Accepted():
                self._lane = lane = self._find_lane(event.lane)
                await self._put(translate.accepted_event(event, lane, self._notices))
            case Opening():
                await self._put(translate.opening_event(event))
            case Started():
                await self._put(translate.started_event(event))
            case Drafted():
                self._predictions[event.sample].accept(event.num_accepted)
                await self._put(translate.drafted_event(event))
            case Queued():
                await self._put(translate.queued_event(event))
            case Step():
                self._offer_step(event)
            case Token():
                await self._put(translate.token_event(event))
            case Preempted():
                await self._put(translate.preempted_event(event))
            case Done():
                predicted = self._predictions[event.sample]
                await self._put(translate.done_event(event, predicted, self._steps_dropped))
            case Failed():
                await self._put(translate.error_event(event))
            case _:
                assert_never(event)

    def _offer_step(self, step: Step) -> None:
        """Steps describe: for a reader that does not keep up they are dropped, and counted.

        The engine's client may have dropped some before this one. What they would have taken is
        not known then, and neither are the sums.
        """
        if step.dropped:
            self._steps_dropped += step.dropped
            for sums in self._predictions:
                sums.miss()
        lane = self._lane
        prediction = None
        if lane is not None:
            prediction = self._predictor.predict(self._engine.info, lane, step.shapes)
        self._predictions[step.sample].add(step.shapes[step.own][2], prediction)
        event = translate.step_event(step, prediction, lane, self._steps_dropped)
        if not self._outbox.offer(event, self._request_id):
            self._steps_dropped += 1

    def _find_lane(self, name: str) -> LaneInfo | None:
        """The lane of that name; None if it is closed again already, as the engine's state is the
        newest while messages wait for their reader."""
        info = self._engine.info
        lanes = () if info is None else info.lanes
        return next((lane for lane in lanes if lane.name == name), None)

    async def _fail(self, code: str, message: str) -> None:
        await self._put(ErrorEvent(code=code, message=message))

    async def _put(self, event: ServerEvent) -> None:
        await self._outbox.put(event, self._request_id)
        self._ended = self._ended or ends_request(event)
