"""Refusals in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webapp import json_codec
from webapp.problems import MEDIA_TYPE, FieldError, Problem, Refusal
from webapp.schemas.live_events import ErrorEvent
from webapp.schemas.openai_answers import OpenAIError, OpenAIErrorDocument

PREFIX = "/v1/"

_LATER = frozenset({"queue_full", "lanes_full", "engine_unavailable", "engine_restarted"})
_STOPPING = "server_stopping"
_OURS = frozenset({"engine_error", "step_failed", "internal_error", "file_format"})


def problem_of(event: ErrorEvent) -> Problem:
    """The engine's refusal or failure of a request, as the answer over HTTP."""
    errors = [] if event.field is None else [FieldError(event.field, event.code, event.message)]
    refusal = None if event.reason is None else Refusal(event.reason, event.values)
    if event.code in _LATER or event.code == _STOPPING:
        headers = {"retry-after": "1"}
        return Problem(503, event.code, event.message, errors, headers, refusal)
    status = 500 if event.code in _OURS else 422
    return Problem(status, event.code, event.message, errors, refusal=refusal)


def error_document(status: int, problem: Mapping[str, object]) -> OpenAIErrorDocument:
    """A problem document of ``webapp.problems`` in the other shape."""
    message = str(problem.get("detail", ""))
    code = problem.get("code")
    param = None
    errors = cast("list[Mapping[str, str]]", problem.get("errors") or [])
    if errors:
        param = errors[0]["pointer"].lstrip("/").replace("/", ".") or None
        detail = errors[0]["detail"]
        message = detail if param is None or detail == message else f"{param}: {detail}"
        code = errors[0]["code"]
    return OpenAIErrorDocument(
        error=OpenAIError(
            message=message,
            type=_kind(status),
            param=param,
            code=None if code is None else str(code),
        )
    )


def _kind(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


class OpenAIErrors:
    """Answers under ``/v1`` that are problem documents get that shape, whoever made them.

    422 becomes 400, which clients know as a request that is wrong.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_here(scope):
            await self.app(scope, receive, send)
            return
        start: Message | None = None
        body = bytearray()

        async def reshaping_send(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    await _send_reshaped(start, bytes(body), send)

        await self.app(scope, receive, reshaping_send)


def _is_here(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")).startswith(PREFIX)


def _is_problem(start: Message) -> bool:
    return MutableHeaders(scope=start).get("content-type", "").startswith(MEDIA_TYPE)


async def _send_reshaped(start: Message, body: bytes, send: Send) -> None:
    status = 400 if start["status"] == 422 else start["status"]
    problem = cast("dict[str, Any]", json_codec.loads(body))
    content = json_codec.dumps(error_document(status, problem).model_dump()).encode()
    headers = MutableHeaders(scope=start)
    headers["content-type"] = "application/json"
    headers["content-length"] = str(len(content))
    await send({**start, "status": status})
    await send({"type": "http.response.body", "body": content})
