"""Problem documents (RFC 9457): how every refusal over HTTP looks.

    {"type": "about:blank", "title": "Unprocessable Content", "status": 422,
     "code": "validation_failed", "detail": "…what to do…",
     "errors": [{"pointer": "/batch", "code": "greater_than_equal", "detail": "…"}]}

A document names the field and the fix and never repeats a value that was sent. It is at most
``MAX_BYTES`` long, whatever was sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus

from starlette.responses import JSONResponse, Response

from webapp import json_codec

MEDIA_TYPE = "application/problem+json"
MAX_BYTES = 4096
MAX_FIELD_ERRORS = 8


@dataclass(frozen=True, slots=True)
class FieldError:
    """One value at fault. ``pointer`` is a JSON pointer into the body, or names a parameter."""

    pointer: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The message in a form that can be translated: see ``engine.refusals``."""

    reason: str
    values: Mapping[str, int | str]


class JsonResponse(JSONResponse):
    """A JSON answer through the one writer."""

    def render(self, content: object) -> bytes:
        return json_codec.dumps(content).encode()


class ProblemResponse(Response):
    """A problem document as an answer."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        document: dict[str, object] = {
            "type": "about:blank",
            "title": _title(status),
            "status": status,
            "code": code,
            "detail": detail[:500],
        }
        shown = [
            FieldError(error.pointer[:200], error.code[:60], error.detail[:200])
            for error in errors[:MAX_FIELD_ERRORS]
        ]
        if shown:
            document["errors"] = [asdict(error) for error in shown]
        if refusal is not None:
            document |= {"reason": refusal.reason, "values": dict(refusal.values)}
        if len(errors) > len(shown):
            document["more_errors"] = len(errors) - len(shown)
        content = json_codec.dumps(document).encode()
        if len(content) > MAX_BYTES:
            document["errors"] = [asdict(shown[0])]
            content = json_codec.dumps(document).encode()
        super().__init__(
            content, status_code=status, headers={"cache-control": "no-store", **(headers or {})}
        )


class Problem(Exception):
    """Raised by a handler to answer with a problem document."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.refusal = refusal

    def response(self) -> ProblemResponse:
        """The answer that says so."""
        return ProblemResponse(
            self.status, self.code, self.detail, self.errors, self.headers, self.refusal
        )


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
