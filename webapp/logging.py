"""Logs: one line an event, as JSON for machines or in colour for a terminal; never a prompt.

uvicorn's own lines go the same way. Its access log is replaced by one that leaves the query out.
"""

from __future__ import annotations

import logging
import re
import sys
from io import StringIO
from typing import TextIO

import structlog
from starlette.types import Scope
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, ExcInfo, Processor

from webapp.settings import Settings
from webapp.timed_http import TimedHttp

_PROBES = ("/healthz", "/readyz")

# What moves a terminal's cursor, sets its colours or title, or turns the order of its text.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

access = structlog.get_logger("webapp.access")


def configure_logging(settings: Settings) -> None:
    """Sends every logger of this process through one handler on standard error."""
    json_lines = settings.log_format == "json" or (
        settings.log_format == "auto" and not sys.stderr.isatty()
    )
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    # Both renderings of a traceback leave local variables out: they hold prompts.
    renderer: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if json_lines:
        renderer += [
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ]
    else:
        renderer += [
            _escape_values,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=_escaped_traceback
            ),
        ]
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=renderer)
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level.upper())
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True


def _escape(text: str) -> str:
    """Control characters as they are written in Python, such as ``\\x1b``."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _escape_values(_logger: object, _method: str, event: EventDict) -> EventDict:
    """For a terminal, which obeys what a client wrote into a path."""
    return {
        name: _escape(value) if isinstance(value, str) else value for name, value in event.items()
    }


def _escaped_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    plain = StringIO()
    structlog.dev.plain_traceback(plain, exc_info)
    stream.write("\n".join(_escape(line) for line in plain.getvalue().split("\n")))


class AccessLog(TimedHttp):
    """One line per HTTP request: method, path without query, status, duration in ms."""

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        write = access.debug if scope["path"].endswith(_PROBES) else access.info
        write(
            "request",
            method=scope["method"],
            path=scope["path"][:200],
            status=status,
            ms=round(seconds * 1e3, 2),
        )
