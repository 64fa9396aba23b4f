"""Turns a template and a request into a response.

Everything is escaped (whatever a template is called), every link stands under the root path, and
the language is the reader's. A missing variable is an error, never an empty string.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, cast

from babel.numbers import format_decimal
from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from engine.catalog.units import bytes_label, significant
from webapp.i18n import Language, choose_language, texts

ROOT = Path(__file__).resolve().parent.parent
STATIC = ROOT / "static"
LANGUAGE_COOKIE = "lang"
_YEAR_SECONDS = 365 * 24 * 3600
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))


def language_of(request: Request) -> Language:
    """The language for ``request``: ``?lang=``, then the cookie, then ``Accept-Language``."""
    return choose_language(
        request.query_params.get("lang"),
        request.cookies.get(LANGUAGE_COOKIE),
        request.headers.get("accept-language"),
    )


def link(request: Request, path: str) -> str:
    """``path`` (absolute within the app) under the path that the app is served from."""
    root = str(request.scope.get("root_path", "")).rstrip("/")
    return root + path


@cache
def _fingerprint(path: str) -> str:
    return hashlib.sha256((STATIC / path).read_bytes()).hexdigest()[:10]


def asset(request: Request, path: str) -> str:
    """The URL of a static file, marked with its content, so that no cache serves an old one."""
    return link(request, f"/static/{path}?v={_fingerprint(path)}")


class _Gettext(Protocol):
    """What Jinja's i18n extension adds to an environment."""

    def install_gettext_callables(
        self,
        gettext: Callable[[str], str],
        ngettext: Callable[[str, str, float], str],
        newstyle: bool,
    ) -> None: ...


@cache
def _environment(language: Language) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(ROOT / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    catalog = texts(language)
    with_gettext = cast("_Gettext", environment)
    with_gettext.install_gettext_callables(catalog.gettext, catalog.ngettext, newstyle=True)
    return environment


@dataclass(frozen=True, slots=True)
class _Helpers:
    """Functions that every template may call."""

    request: Request
    language: Language

    def link(self, path: str) -> str:
        return link(self.request, path)

    def asset(self, path: str) -> str:
        return asset(self.request, path)

    def number(self, value: float) -> str:
        return format_decimal(value, locale=self.language.locale)

    def tick(self, value: float) -> str:
        """A power of ten at an axis: 0.1, 1,000, 10 G."""
        if value < 1e6:
            return f"{value:,g}"
        scale, prefix = next(item for item in _PREFIXES if value >= item[0])
        return f"{value / scale:g} {prefix}"

    def whole_units(self, label: str) -> str:
        """A label that breaks between its two values at most, "27.0 GB / 25.1 GiB", and never
        between a number and its unit."""
        return label.replace(" ", "\N{NO-BREAK SPACE}").replace("/\N{NO-BREAK SPACE}", "/ ")

    def as_dict(self) -> dict[str, object]:
        return {
            "link": self.link,
            "asset": self.asset,
            "number": self.number,
            "tick": self.tick,
            "significant": significant,
            "bytes_label": bytes_label,
            "whole_units": self.whole_units,
            "language": self.language,
            "say": texts(self.language).gettext,
            "languages": tuple(Language),
        }


def render(
    request: Request, template: str, context: Mapping[str, object], status: int = 200
) -> HTMLResponse:
    """Renders ``template`` for ``request`` in the reader's language.

    Templates also get the functions of ``_Helpers``. A language asked for in the URL is remembered
    in a cookie, so that the next page speaks it as well.
    """
    language = language_of(request)
    page = _environment(language).get_template(template)
    body = page.render(context, **_Helpers(request, language).as_dict())
    response = HTMLResponse(body, status_code=status)
    response.headers["Content-Language"] = language.value
    response.headers["Vary"] = "Accept-Language, Cookie"
    response.headers["Cache-Control"] = "no-cache"
    if request.query_params.get("lang"):
        response.set_cookie(
            LANGUAGE_COOKIE,
            language.value,
            max_age=_YEAR_SECONDS,
            path=link(request, "/"),
            samesite="lax",
            httponly=True,
        )
    return response
