"""Turns a template and a request into a response: autoescape everywhere, links under the root path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

ROOT = Path(__file__).resolve().parent.parent

_environment = Environment(
    loader=FileSystemLoader(ROOT / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(request: Request, template: str, **context: Any) -> HTMLResponse:
    """Renders ``template`` for ``request``."""
    return HTMLResponse(_environment.get_template(template).render(request=request, **context))
