"""Which failure gets which answer: the handlers that ``create_app`` installs.

A browser that asks for a page that is not there gets a page; everyone else gets a problem document.
No handler repeats what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.errors import (
    CapacityError,
    EngineError,
    EngineUnavailable,
    InvalidRequest,
    QueueFull,
    TemplateError,
    UnsupportedModel,
)
from webapp import json_codec
from webapp.problems import FieldError, Problem, ProblemResponse, Refusal
from webapp.rendering import render
from webapp.schemas.explain import explain_errors
from webapp.store.records import StoreUnavailable
from webapp.waiting import AskerGone

log = structlog.get_logger("webapp.errors")

HTTP_DETAILS: Mapping[int, tuple[str, str]] = {
    400: ("bad_request", "The request could not be understood."),
    404: ("not_found", "Nothing is served at this path."),
    405: ("method_not_allowed", "This path does not take this method; see the Allow header."),
    413: ("body_too_large", "The request body is too large."),
    415: ("unsupported_media_type", "Send the body as application/json."),
}


def install_error_handlers(app: FastAPI) -> None:
    """Makes every failure of a handler an answer of this module's shape."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(EngineError, _engine)
    app.add_exception_handler(StoreUnavailable, _store)


def engine_problem(error: EngineError) -> Problem:
    """The HTTP answer to an error that the engine raised on purpose."""
    errors = [_field_error(error)] if error.field else []
    refusal = Refusal(error.reason, error.values) if error.reason else None
    if isinstance(error, QueueFull | EngineUnavailable | AskerGone):
        return Problem(503, error.code, error.message, errors, {"retry-after": "1"}, refusal)
    if isinstance(error, InvalidRequest | UnsupportedModel | CapacityError | TemplateError):
        return Problem(422, error.code, error.message, errors, refusal=refusal)
    log.error("engine_error", code=error.code)
    return Problem(500, error.code, "The engine failed; the failure was logged.")


class UnexpectedErrors:
    """Answers 500 to whatever no handler expected, logs the traceback and keeps serving.

    It stands inside the middleware that sets headers, so that this answer carries them too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watching_send(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watching_send)
        except Exception:
            log.exception("unexpected_error", method=scope["method"])
            if started:
                raise
            response = ProblemResponse(
                500, "internal_error", "The server failed; the failure was logged."
            )
            await response(scope, receive, send)


async def _problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, Problem):
        raise error
    return error.response()


async def _engine(request: Request, error: Exception) -> Response:
    if not isinstance(error, EngineError):
        raise error
    return engine_problem(error).response()


async def _store(request: Request, error: Exception) -> Response:
    return ProblemResponse(
        503,
        "store_unavailable",
        "Saved runs cannot be reached at the moment; the failure was logged.",
        headers={"retry-after": "10"},
    )


async def _validation(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    errors: Sequence[FieldError] = explain_errors(error.errors())
    first = errors[0].pointer if errors else ""
    detail = "Some values of the request are wrong"
    detail += f", the first at {first}." if first else "."
    return ProblemResponse(422, "validation_failed", detail, errors)


async def _http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 404 and _wants_page(request):
        return render(request, "pages/not_found.html", {}, status=404)
    code, detail = HTTP_DETAILS.get(error.status_code, ("http_error", "The request failed."))
    headers = error.headers
    if error.status_code == 405:
        headers = {"allow": _allowed(request)}
    return ProblemResponse(error.status_code, code, detail, headers=headers)


def _allowed(request: Request) -> str:
    """The methods that some route of this path takes; a router alone tells those of the first."""
    routes = request.app.routes

    def is_taken(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in routes)

    return ", ".join(filter(is_taken, ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")))


def _wants_page(request: Request) -> bool:
    """Whether a browser asks for a page, by what it accepts, rather than a program for data."""
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(
        f"{request.scope.get('root_path', '')}/api/"
    )


def _field_error(error: EngineError) -> FieldError:
    parts = (error.field or "").split(".")
    place = json_codec.pointer(int(part) if part.isdigit() else part for part in parts)
    return FieldError(place, error.code, error.message)
