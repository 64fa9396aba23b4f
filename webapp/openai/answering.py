"""Answers one request: whole or as server-sent events, for as long as its client is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from webapp import json_codec
from webapp.live.hub import LiveHub, NoRoom
from webapp.openai.errors import error_document, problem_of
from webapp.openai.forms import Form, Head
from webapp.openai.sums import timings_of, usage_of
from webapp.problems import JsonResponse, Problem
from webapp.schemas.live_events import (
    AcceptedEvent,
    DoneEvent,
    ErrorEvent,
    ServerEvent,
    TokenEvent,
)
from webapp.schemas.live_requests import GenerateRequest

EVENT_STREAM = "text/event-stream"
_ABORTED = "The request was ended before its answer was complete."


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and how it is to be answered."""

    message: GenerateRequest
    form: Form
    head: Head
    streamed: bool
    include_usage: bool
    every_token: bool
    """Whether tokens without text of their own get a chunk, for their log-probabilities."""


class EngineAnswer(Response):
    """Runs the request while it answers. The request aborts when its client leaves, and when one
    takes no data for ``stuck_s`` seconds."""

    def __init__(self, hub: LiveHub, asked: Asked, stuck_s: float) -> None:
        super().__init__()
        self._hub = hub
        self._asked = asked
        self._stuck_s = stuck_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ``Problem`` for what is refused before the answer has begun."""
        answering = asyncio.create_task(self._answer(scope, receive, send), name="answer")
        leaving = asyncio.create_task(_left(receive), name="client's leaving")
        tasks = (answering, leaving)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not answering.cancelled():
            answering.result()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        try:
            with self._hub.exchange(client[0] if client else None, self._asked.message) as exchange:
                async with aclosing(exchange.events()) as events:
                    await _until_accepted(events)
                    if self._asked.streamed:
                        await self._stream(events, send)
                    else:
                        await (await self._whole(events))(scope, receive, send)
        except NoRoom as refused:
            code = "too_many_requests" if refused.status == 429 else "server_busy"
            headers = {"retry-after": "1"}
            raise Problem(refused.status, code, refused.detail, headers=headers) from None

    async def _whole(self, events: AsyncIterator[ServerEvent]) -> Response:
        tokens: dict[int, list[TokenEvent]] = {}
        done: list[DoneEvent] = []
        async for event in events:
            if isinstance(event, TokenEvent):
                tokens.setdefault(event.sample, []).append(event)
            elif isinstance(event, DoneEvent):
                done.append(_complete(event))
            elif isinstance(event, ErrorEvent):
                raise problem_of(event)
        done.sort(key=lambda event: event.sample)
        own = [tokens.get(event.sample, []) for event in done]
        answer = self._asked.form.whole(self._asked.head, done, own)
        return JsonResponse(answer.model_dump(), headers={"cache-control": "no-store"})

    async def _stream(self, events: AsyncIterator[ServerEvent], send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", f"{EVENT_STREAM}; charset=utf-8".encode()),
                    (b"cache-control", b"no-store"),
                    (b"x-accel-buffering", b"no"),  # nginx passes it on as it comes
                ],
            }
        )
        try:
            async for document in self._chunks(events):
                await self._send(f"data: {json_codec.dumps(document)}\n\n", send)
            await self._send("data: [DONE]\n\n", send)
        except Problem as problem:
            document = {"detail": problem.detail, "code": problem.code}
            error = error_document(problem.status, document).model_dump()
            await self._send(f"data: {json_codec.dumps(error)}\n\n", send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(
        self, events: AsyncIterator[ServerEvent]
    ) -> AsyncGenerator[dict[str, object]]:
        """The chunks of a stream. The last one has the timings."""
        form, head, usage = self._asked.form, self._asked.head, self._asked.include_usage
        without: dict[str, object] = {"usage": None} if usage else {}
        sent: dict[int, int] = {}
        done: list[DoneEvent] = []
        async for event in events:
            if isinstance(event, TokenEvent) and (event.text or self._asked.every_token):
                before = sent.get(event.sample)
                sent[event.sample] = (before or 0) + len(event.text)
                chunk = form.chunk(head, event.sample, event.text, event, before)
                yield {**chunk, **without}
            elif isinstance(event, DoneEvent):
                done.append(_complete(event))
                end = {**form.end(head, event, sent.get(event.sample)), **without}
                last = event.samples_left == 0 and not usage
                yield {**end, "timings": timings_of(done).model_dump()} if last else end
            elif isinstance(event, ErrorEvent):
                raise problem_of(event)
        if usage:
            sums = {
                "usage": usage_of(done).model_dump(),
                "timings": timings_of(done).model_dump(),
            }
            yield {**form.frame(head), **sums}

    async def _send(self, text: str, send: Send) -> None:
        async with asyncio.timeout(self._stuck_s):
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _until_accepted(events: AsyncIterator[ServerEvent]) -> None:
    """Returns when the engine has taken the request; raises ``Problem`` if it refuses."""
    async for event in events:
        if isinstance(event, ErrorEvent):
            raise problem_of(event)
        if isinstance(event, AcceptedEvent):
            return


def _complete(event: DoneEvent) -> DoneEvent:
    """The event of an answer that reached its end; an aborted one has no word in this interface."""
    if event.finish_reason not in ("stop", "length"):
        raise Problem(503, "aborted", _ABORTED)
    return event


async def _left(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
