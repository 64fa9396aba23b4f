"""``python -m tests.benchmarks.pages``: how soon pages answer, in Chromium on the real engine.

Each time runs from what the reader does to the frame after the picture has changed. The results are
written to PAGES.md, each beside its goal. The service runs in this process' own folder of state.
"""

from __future__ import annotations

import platform
import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from engine.inference.supervisor import EngineClient, EngineState
from tests.browser.conftest import ARGUMENTS, CHROMIUM, READY_S
from tests.webapp.live_server import running_app, wait_for
from webapp.settings import Settings

PAGE = Path(__file__).parent / "PAGES.md"
SENTENCE = "The old clock on the wall struck nine, and nobody in the room looked up from the page. "
REPEATS = 15

AFTER_CHANGE = """
({watched, attributes}) => new Promise((done) => {
  const node = document.querySelector(watched);
  const observer = new MutationObserver(() => {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
  });
  observer.observe(node, attributes ? {attributes: true}
    : {childList: true, subtree: true, characterData: true, attributes: true});
  const began = performance.now();
  (ACT)();
})
"""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was timed, its goal in ms, and all times in ms."""

    name: str
    goal_ms: float
    times_ms: list[float]

    @property
    def row(self) -> str:
        """A line of the table."""
        median = statistics.median(self.times_ms)
        verdict = "met" if median <= self.goal_ms else "missed"
        spread = f"{min(self.times_ms):.0f} – {max(self.times_ms):.0f}"
        return f"| {self.name} | {median:.0f} | {spread} | {self.goal_ms:g} | {verdict} |"


def change(page: Page, act: str, watched: str, *, attributes: bool = False) -> float:
    """Milliseconds from ``act`` to the frame after ``watched`` has changed."""
    script = AFTER_CHANGE.replace("ACT", act)
    return page.evaluate(script, {"watched": watched, "attributes": attributes})


def first_interaction(page: Page) -> list[float]:
    """From the request for lesson 1 to the model's first distribution, asked for at once."""
    times: list[float] = []
    for _ in range(5):
        page.goto("/learn/loop", wait_until="domcontentloaded")
        page.get_by_role("button", name="Begin").click()
        page.locator("#candidates [role=option]").first.wait_for()
        times.append(page.evaluate("performance.now()"))
    return times


def sampling(page: Page) -> list[float]:
    """A slider of lesson 6, all logits of the vocabulary in the browser."""
    page.goto("/learn/sampling")
    page.get_by_role("button", name="Run the model once").click()
    page.locator("[data-picture] svg").wait_for()
    act = """() => {{
      const slider = document.getElementById("setting-temperature");
      slider.value = {value};
      slider.dispatchEvent(new Event("input", {{bubbles: true}}));
    }}"""
    return [
        change(page, act.format(value=5 + 2 * i), "[data-row=temperature]") for i in range(REPEATS)
    ]


def simulator(page: Page) -> list[float]:
    """The slider of requests together, to the answer that the server has drawn."""
    page.goto("/simulator")
    act = """() => {{
      const field = document.querySelector("input[name=batch]");
      field.value = {value};
      field.dispatchEvent(new Event("input", {{bubbles: true}}));
    }}"""
    times: list[float] = []
    for i in range(REPEATS):
        times.append(change(page, act.format(value=2 + i), "#answer"))
        page.wait_for_timeout(300)
    return times


def attention(page: Page) -> list[float]:
    """Another head of another layer of a text of about 512 tokens, to its picture."""
    page.goto("/learn/attention")
    page.locator("#prompt").fill((SENTENCE * 27)[:2230])
    page.locator("#look").click()
    page.locator("#look-status").get_by_text("Tokens: 5").wait_for(timeout=60_000)
    page.locator("#head canvas[width]").wait_for()
    page.wait_for_timeout(2000)
    act = """() => import("/static/js/lessons/attention.js").then((module) =>
      module.choose({{layer: {layer}, head: {head}}}))"""
    return [
        change(
            page,
            act.format(layer=(7 * i + 3) % 30, head=(2 * i + 1) % 9),
            "#head canvas",
            attributes=True,
        )
        for i in range(REPEATS)
    ]


MEASURED: tuple[tuple[str, float, Callable[[Page], list[float]]], ...] = (
    ("lesson 1: request of the page to the first distribution", 1000, first_interaction),
    ("lesson 6: slider to picture, stored logits", 100, sampling),
    ("simulator: number to picture", 150, simulator),
    ("lesson 4: another head at 512 tokens", 500, attention),
)


def main() -> None:
    """Measure, print and keep."""
    settings = Settings(model="auto", kv_tokens=8192, calibrate="never")
    engine = EngineClient(settings.engine_options)
    found: list[Measurement] = []
    with running_app(settings, engine) as server, sync_playwright() as playwright:
        wait_for(lambda: engine.state is EngineState.READY, READY_S)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for name, goal, measure in MEASURED:
            page = browser.new_page(base_url=server.url, locale="en-GB")
            found.append(Measurement(name, goal, measure(page)))
            print(found[-1].row)
            page.close()
        version = browser.version
        browser.close()
    rows = "\n".join(item.row for item in found)
    PAGE.write_text(
        f"# How soon pages answer\n\nMeasured on {datetime.now(UTC):%Y-%m-%d} by `python -m "
        f"tests.benchmarks.pages`: Chromium {version} without a GPU and the service with "
        f"SmolLM2-135M-Instruct together on {platform.machine()}, 2 cores, Python "
        f"{platform.python_version()}. From what the reader does to the frame after the picture "
        "has changed, in ms; medians.\n\n| what | ms | from – to | goal | |\n"
        "|---|---|---|---|---|\n"
        f"{rows}\n",
        "utf-8",
    )


if __name__ == "__main__":
    assert shutil.which(CHROMIUM)
    main()
