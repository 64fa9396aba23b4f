"""Addresses, requests, plans and prompts."""

from __future__ import annotations

import json

import pytest

from engine.errors import InvalidRequest
from engine.measuring.plan import Plan
from engine.measuring.prompts import LengthRule, PromptMaker
from engine.measuring.target import Address, Form, Target


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("http://host:8000", "http://host:8000/v1"),
        ("http://host:8000/", "http://host:8000/v1"),
        ("https://api.example.com/v1/", "https://api.example.com:443/v1"),
        ("https://example.com/openai/v1/chat/completions", "https://example.com:443/openai/v1"),
        ("http://h/v1/completions", "http://h:80/v1"),
        ("http://[::1]:80/lab/v1", "http://[::1]:80/lab/v1"),
    ],
)
def test_addresses(url: str, seen: str) -> None:
    assert Address.of(url).url == seen


@pytest.mark.parametrize(
    "url",
    ["", "host:8000", "ftp://host", "http://", "http://user:pw@host", "http://host?a=b",
     "http://host:99999", "http://host/a b", "http://host/ä", "http://[::1", "http://h/a\r\nb: c"],
)  # fmt: skip
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Address.of(url)
    assert caught.value.field == "url"


def test_what_is_asked() -> None:
    target = Target(Address.of("http://h"), "m", key="secret", exact_output=True)
    asked = json.loads(target.body("hello", 7))
    assert asked["messages"] == [{"role": "user", "content": "hello"}]
    assert asked["stream"] is True
    assert asked["stream_options"] == {"include_usage": True}
    assert (asked["max_tokens"], asked["min_tokens"], asked["ignore_eos"]) == (7, 7, True)
    assert target.headers["Authorization"] == "Bearer secret"
    assert "secret" not in repr(target)
    plain = Target(Address.of("http://h"), "m", "completions",
                   form=Form("max_completion_tokens", usage=False))  # fmt: skip
    assert plain.path == "/v1/completions"
    assert json.loads(plain.body("hello", 7)) == {
        "model": "m", "stream": True, "temperature": 0, "max_completion_tokens": 7,
        "prompt": "hello",
    }  # fmt: skip


@pytest.mark.parametrize("key", ["a\nb", "ä", "a\0"])
def test_a_key_that_no_header_takes_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Target(Address.of("http://h"), "m", key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("prompt_tokens", {"prompt_tokens": ()}),
        ("prompt_tokens", {"prompt_tokens": (0,)}),
        ("concurrency", {"concurrency": (1, 513)}),
        ("concurrency", {"concurrency": (4, 4)}),
        ("output_tokens", {"output_tokens": 0}),
        ("requests", {"requests": 0}),
    ],
)
def test_plans_out_of_range(field: str, values: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Plan(**values)  # pyright: ignore[reportArgumentType]
    assert caught.value.field == field


def test_a_plan_s_requests() -> None:
    plan = Plan((128, 512), (1, 16))
    assert list(plan.points) == [(128, 1), (128, 16), (512, 1), (512, 16)]
    assert plan.total == 2 * (10 + 48)
    assert Plan(requests=3, concurrency=(1,)).total == 9


def test_lengths_follow_the_server_s_counts() -> None:
    rule = LengthRule.through((16, 16 * 2 + 9), (80, 80 * 2 + 9))
    assert rule == LengthRule(9.0, 2.0, counted=True)
    assert rule.words(209) == 100
    assert rule.words(1) == 1
    assert LengthRule.through((16, 50), (80, 50)) == LengthRule()


def test_no_prompt_begins_like_another_unless_asked() -> None:
    maker = PromptMaker(7)
    prompts = [maker.prompt(64) for _ in range(200)]
    starts = {" ".join(prompt.split()[:8]) for prompt in prompts}
    assert len(starts) == 200
    assert PromptMaker(7).prompt(64) == prompts[0]
    assert PromptMaker(8).prompt(64) != prompts[0]
    same = PromptMaker(7, same=True)
    assert same.prompt(64) == same.prompt(64) != same.prompt(32)
