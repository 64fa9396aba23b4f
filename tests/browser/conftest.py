"""Chromium in front of real servers: over a fake engine, the tiny random model, the real model."""

from __future__ import annotations

import base64
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, sync_playwright

from engine.inference.probes.documents import PackedArray
from engine.inference.probes.format_documents import WeightRow
from engine.inference.supervisor import EngineClient, EngineState
from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp, running_app, wait_for
from webapp.settings import Settings

# The system's own: Playwright's browsers would be another download.
_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), _NAMES[0])
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
DESKTOP = {"width": 1240, "height": 900}
PHONE = {"width": 390, "height": 844}
READY_S = 120.0


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    """Ends with this package: while it lives, its event loop holds the main thread, and tests that
    run a loop of their own could not."""
    with sync_playwright() as instance:
        yield instance


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
    yield chromium
    chromium.close()


@contextmanager
def _model_server(model: str) -> Iterator[LiveApp]:
    settings = Settings(model=model, kv_tokens=8192, calibrate="never")
    engine = EngineClient(settings.engine_options)
    with running_app(settings, engine) as server:
        wait_for(lambda: engine.state is EngineState.READY, READY_S)
        yield server


@pytest.fixture(scope="package")
def real_server() -> Iterator[LiveApp]:
    """The default model in its worker process."""
    with _model_server("auto") as server:
        yield server


@pytest.fixture(scope="package")
def tiny_server() -> Iterator[LiveApp]:
    """The tiny random model in its worker process."""
    with _model_server("tiny") as server:
        yield server


def _row() -> dict[str, object]:
    """A row of four weights between two levels, for the page that draws one as soon as it is."""
    data = base64.b64encode(struct.pack("<4f", -1.0, -0.5, 0.5, 1.0)).decode()
    row = PackedArray((4,), "float32", data)
    return WeightRow(
        matrix="layers.0.q",
        row=7,
        weights="int4-channel-rtn",
        shape=(8, 4),
        storage="F32",
        bits=4,
        group_size=4,
        shared_by=4,
        bits_per_weight=12.0,
        before=row,
        after=row,
        scales=(0.1,),
        offsets=(-1.0,),
        error=0.0,
        row_error=0.0,
    ).to_dict()


@pytest.fixture
def fake_engine() -> FakeEngine:
    return FakeEngine(pause_s=0.005, answers={"weight-row": _row()})


@pytest.fixture
def fake_server(fake_engine: FakeEngine) -> Iterator[LiveApp]:
    """No model at all: the answer is the prompt, a character a token."""
    with running_app(Settings(), fake_engine) as server:
        yield server


@dataclass
class Watch:
    """What a page must not do: log errors, raise, have the policy refuse something, ask back."""

    faults: list[str] = field(default_factory=list)

    def follow(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"raised: {error}"))
        page.on("dialog", self._dialog)
        page.on("response", self._response)
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) =>"
            " console.error('policy: ' + event.violatedDirective + ' ' + event.blockedURI));"
        )

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text}")

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _response(self, response: Any) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status}: {response.url}")


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """``open_page(server, path="/", **context)``; at the end no page may have had a fault."""
    watch = Watch()
    contexts = []

    def open_one(server: LiveApp, path: str = "/", **options: Any) -> Page:
        options.setdefault("viewport", DESKTOP)
        options.setdefault("locale", "en-GB")
        context = browser.new_context(base_url=server.url, **options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        watch.follow(page)
        page.goto(path)
        return page

    yield open_one
    faults = [*watch.faults]  # a request that closing the page cuts off is no fault of the page
    for context in contexts:
        context.close()
    assert faults == []


def until(page: Page, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Waits while the browser goes on; fails after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        page.wait_for_timeout(20)


def start(page: Page, prompt: str | None = None, tokens: int | None = None) -> None:
    """Fills in the form and runs it, without waiting for the end."""
    if prompt is not None:
        page.fill("#prompt", prompt)
    if tokens is not None:
        page.fill("#max_tokens", str(tokens))
    page.click("#go")


def finish(page: Page, timeout_s: float = 60.0) -> str:
    """Waits for the end of the run; the state it ended in."""
    page.locator("#run[data-state=done], #run[data-state=failed]").wait_for(
        timeout=timeout_s * 1000
    )
    return page.locator("#run").get_attribute("data-state") or ""


def run(page: Page, prompt: str | None = None, tokens: int | None = None) -> str:
    start(page, prompt, tokens)
    return finish(page)
