"""Routes that read JSON: only ``application/json`` in UTF-8, and only strict JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from webapp import json_codec
from webapp.admission import UNSAFE_METHODS
from webapp.problems import FieldError, Problem


class StrictJsonRoute(APIRoute):
    """Checks the document before the framework parses it, which would take NaN and duplicates."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            if request.method in UNSAFE_METHODS:
                await _check_body(request)
            return await handler(request)

        return strict


async def _check_body(request: Request) -> None:
    check_media_type(request)
    read_json(await request.body())


def check_media_type(request: Request) -> None:
    """Raises ``Problem`` 415 for a body of another media type."""
    if not _is_json(request.headers.get("content-type", "")):
        raise Problem(415, "unsupported_media_type", "Send the body as application/json in UTF-8.")


def read_json(body: bytes) -> json_codec.Json:
    """The document in ``body``; raises ``Problem`` 400 for one that is not strict JSON."""
    try:
        return json_codec.loads(body)
    except json_codec.JsonRefused as refused:
        errors = [FieldError(refused.pointer, refused.code, refused.detail)]
        raise Problem(400, refused.code, refused.detail, errors) from None


def _is_json(content_type: str) -> bool:
    media_type, _, parameters = content_type.partition(";")
    if media_type.strip().lower() != "application/json":
        return False
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip(' "').lower() not in ("utf-8", "utf8"):
            return False
    return True
