"""``static/js/api.js`` in a browser: packed arrays, and what a reader is told when no answer comes.

The page's own faults are not watched here: a refused request is what these tests are about.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route

from tests.webapp.live_server import LiveApp

_CALL = """async ([name, argument]) => {
  const api = await import("/static/js/api.js");
  try {
    const made = await api[name](...argument);
    const numbers = made instanceof Float32Array;
    return numbers ? { values: Array.from(made, String), shape: made.shape } : made;
  } catch (error) {
    const { message, status, code, pointer } = error;
    return { problem: error instanceof api.Problem, message, status, code, pointer };
  }
}"""


@pytest.fixture
def page(browser: Browser, fake_server: LiveApp) -> Iterator[Page]:
    context = browser.new_context(base_url=fake_server.url, locale="zh-CN")
    page = context.new_page()
    page.goto("/?lang=zh-Hans")
    yield page
    context.close()


def call(page: Page, name: str, *argument: Any) -> dict[str, Any]:
    return page.evaluate(_CALL, [name, list(argument)])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_unpacks_every_kind_of_number(page: Page, dtype: str) -> None:
    special = [0.0, 1.5, -2.25, 6e-8, 65504.0, float("inf"), float("-inf"), float("nan"), 1 / 3]
    rng = np.random.default_rng(5)
    numbers = np.concatenate([special, rng.normal(size=91)]).astype(dtype)
    packed = {
        "shape": [4, 25],
        "dtype": dtype,
        "data": base64.b64encode(
            numbers.astype("<f2" if dtype == "float16" else "<f4").tobytes()
        ).decode("ascii"),
    }
    made = call(page, "unpack", packed)
    assert made["shape"] == [4, 25]
    told = np.array([float(value) for value in made["values"]])
    np.testing.assert_array_equal(told, numbers.astype(np.float64))


def test_posts_json_and_reads_the_answer(page: Page) -> None:
    body = {"model": "smollm2-135m", "hardware": "h100-sxm", "prompt_tokens": 64}
    assert "ttft" in str(call(page, "post", "/api/v1/simulate", body))
    assert call(page, "get", "/api/v1/engine")["state"] == "ready"


@pytest.mark.parametrize(
    ("status", "document", "told"),
    [
        (503, {"code": "queue_full", "detail": "English"}, "服务器正忙。请稍后再试。"),
        (429, {"code": "too_many_requests"}, "服务器正忙。请稍后再试。"),
        (503, {"code": "engine_unavailable"}, "引擎还没有就绪。请稍后再试。"),
        (500, {"code": "internal_error", "detail": "English"}, "服务器无法回答这个请求"),
        (422, {"code": "x", "reason": "text_too_long", "values": {"high": 7}}, "7"),
        (422, {"code": "x", "errors": [{"pointer": "/k", "detail": "Send less."}]}, "Send less."),
        (502, None, "服务器无法回答这个请求"),
    ],
)
def test_says_what_went_wrong(page: Page, status: int, document: object, told: str) -> None:
    def answer(route: Route) -> None:
        if document is None:
            route.fulfill(status=status, body="<html>", content_type="text/html")
        else:
            route.fulfill(status=status, json=document)

    page.route("**/api/v1/asked", answer)
    problem = call(page, "post", "/api/v1/asked", {})
    assert problem["problem"]
    assert told in problem["message"]
    assert problem["status"] == status
    assert problem["pointer"] == ("/k" if "/k" in str(document) else "")


def test_says_that_the_server_was_not_reached(page: Page) -> None:
    page.route("**/api/v1/asked", lambda route: route.abort())
    problem = call(page, "post", "/api/v1/asked", {})
    assert problem["problem"]
    assert problem["status"] == 0
    assert "没有连上服务器" in problem["message"]
