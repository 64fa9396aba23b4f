"""Every page with all of its scripts and styles weighs little, compressed."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from webapp.lessons.catalogue import LESSONS
from webapp.rendering import STATIC

LIMIT = 100_000
PAGES = (
    "/",
    "/learn",
    "/claims",
    "/glossary",
    "/runs/example",
    "/compare?a=example&b=example",
    "/simulator",
    "/serving",
    "/simulator/deepseek-v4",
    "/simulator/validation",
    *(f"/learn/{lesson.slug}" for lesson in LESSONS),
)


def _with_imports(script: Path, found: set[Path]) -> None:
    """The module and all that it imports."""
    if script in found:
        return
    found.add(script)
    for name in re.findall(r'(?:from|import\()\s*"(\.[^"]+)"', script.read_text("utf-8")):
        _with_imports((script.parent / name).resolve(), found)


@pytest.mark.parametrize("path", PAGES)
def test_page(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    files: set[Path] = set()
    for name in re.findall(r'(?:href|src)="/static/([^"?]+\.(?:js|css))', page.text):
        _with_imports(STATIC / name, files)
    assert files
    sizes = {file.name: len(gzip.compress(file.read_bytes())) for file in files}
    sizes["page"] = len(gzip.compress(page.content))
    assert sum(sizes.values()) <= LIMIT, sizes
