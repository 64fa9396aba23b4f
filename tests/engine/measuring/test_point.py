"""Percentiles, throughput and failures of a point, out of replies with made-up times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.measuring.point import Point, Spread
from engine.measuring.reply import Arrival, Failure, Reply, Usage


def even(sent: float, ttft: float = 0.5, itl: float = 0.1, tokens: int = 6) -> Reply:
    arrivals = tuple(Arrival(ttft + itl * place, 1) for place in range(tokens))
    return Reply(sent, arrivals[-1].at, arrivals=arrivals, usage=Usage(30, tokens))


def point(*replies: Reply, concurrency: int = 1) -> Point:
    return Point(30, concurrency, len(replies), replies)


def test_percentiles() -> None:
    spread = Spread.of([float(value) for value in range(101)])
    assert spread == Spread(101, 50.0, 50.0, 90.0, 99.0)
    assert Spread.of([None]) is None


def test_one_client_after_the_other() -> None:
    found = point(*(even(sent) for sent in (0.0, 1.0, 2.0)))
    assert found.busy_window == (0.0, 3.0)
    assert found.tokens_per_s == pytest.approx(6.0)
    assert found.ttft is not None
    assert found.itl is not None
    assert found.gaps is not None
    assert (found.ttft.p50, found.gaps.count) == (0.5, 15)
    assert found.itl.mean == pytest.approx(0.1)


def test_throughput_counts_while_all_clients_are_busy() -> None:
    """Two clients, the second half an answer later: each makes 6 tokens/s, together 12. Over all
    of the time it would be less."""
    first = [even(float(sent)) for sent in range(4)]
    second = [even(0.5 + sent) for sent in range(4)]
    found = point(*first, *second, concurrency=2)
    assert found.busy_window == (0.5, 4.0)
    assert found.tokens_per_s == pytest.approx(12.0, rel=0.03)
    assert found.whole_tokens_per_s == pytest.approx(48 / 4.5)


def test_without_all_clients_busy_there_is_no_throughput() -> None:
    found = point(even(0.0), even(5.0), concurrency=2)
    assert found.busy_window is None
    assert found.tokens_per_s is None


def test_failures_are_counted_and_in_no_time() -> None:
    slow = replace(even(1.0, ttft=60.0), failure=Failure.TIMEOUT, detail="within 60 s")
    limited = Reply(2.0, 0.1, status=429, failure=Failure.RATE_LIMITED, detail="429 slow down")
    found = point(even(0.0), slow, limited, limited)
    assert found.failures == {"rate limited": 2, "timeout": 1}
    assert found.failure_details["rate limited"] == "429 slow down"
    assert found.ttft is not None
    assert (found.ttft.count, found.ttft.p99) == (1, 0.5)
    none = point(limited)
    assert (none.ttft, none.tokens_per_s, none.whole_tokens_per_s) == (None, None, None)


def test_gaps_of_many_tokens_are_not_taken_for_times_a_token() -> None:
    arrivals = tuple(Arrival(0.5 + 0.4 * place, 1) for place in range(3))
    found = point(Reply(0.0, 2.0, arrivals=arrivals, usage=Usage(30, 12)))
    assert found.tokens_a_read == 4
    assert found.gaps is not None
    assert found.token_gaps is None
    assert found.itl is not None
    assert found.itl.p50 == pytest.approx(0.1)


def test_tokens_that_nobody_counts() -> None:
    found = point(replace(even(0.0), usage=Usage()))
    assert not found.counted
    assert (found.prompt_tokens, found.output_tokens) == (None, 6)


def test_the_server_s_own_numbers_are_kept() -> None:
    replies = [replace(even(0.0), timings={"prompt_ms": value}) for value in (10.0, 20.0)]
    assert point(*replies, even(1.0)).server_timings == {"prompt_ms": 15.0}
