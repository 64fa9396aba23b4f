"""Prompt look-up against a plain scan of the text."""

from __future__ import annotations

import random
import time

import pytest

from engine.inference.speculation.ngram import NgramDrafter
from engine.scheduling.request import Request
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings


def settings(draft_tokens: int = 4, longest: int = 3, shortest: int = 1) -> SpeculationSettings:
    return SpeculationSettings(
        SpeculationMethod.NGRAM, draft_tokens, max_ngram=longest, min_ngram=shortest
    )


def scan(text: list[int], asked: SpeculationSettings) -> list[int]:
    """The longest end of the text that occurs before, latest first: the slow way."""
    for length in range(asked.max_ngram, asked.min_ngram - 1, -1):
        end = text[-length:]
        for start in range(len(text) - length - 1, -1, -1):
            if text[start : start + length] == end:
                period = len(text) - length - start
                return [text[start + length + i % period] for i in range(asked.draft_tokens)]
    return []


def proposed(prompt: list[int], output: list[int], asked: SpeculationSettings) -> list[int]:
    request = Request("a", prompt, 99, speculation=asked, output_token_ids=output)
    return list(NgramDrafter().propose(request))


def test_what_followed_the_longest_known_end_is_proposed():
    text = [1, 2, 3, 4, 5, 9, 2, 3, 7, 7, 8, 1, 2, 3]
    assert proposed(text, [], settings()) == [4, 5, 9, 2]
    assert proposed(text, [], settings(longest=2)) == [7, 7, 8, 1]
    assert proposed(text[:8], text[8:], settings()) == [4, 5, 9, 2]


def test_nothing_is_proposed_where_the_end_is_new():
    assert proposed([1, 2, 3, 4], [], settings()) == []
    assert proposed([1, 2, 3, 2], [], settings(shortest=2)) == []
    assert proposed([1], [], settings()) == []


def test_a_text_that_repeats_itself_goes_on_repeating():
    assert proposed([5, 5], [], settings()) == [5, 5, 5, 5]
    assert proposed([1, 2, 3, 1, 2, 3], [], settings(7)) == [1, 2, 3, 1, 2, 3, 1]


@pytest.mark.parametrize("seed", range(40))
def test_an_index_that_grows_with_the_text_finds_what_a_scan_finds(seed: int):
    rng = random.Random(seed)
    asked = settings(rng.randint(1, 8), rng.randint(2, 5), rng.randint(1, 2))
    request = Request(
        "a", [rng.randrange(4) for _ in range(rng.randint(1, 30))], 99, speculation=asked
    )
    drafter = NgramDrafter()
    for _ in range(40):
        text = [*request.prompt_token_ids, *request.output_token_ids]
        assert list(drafter.propose(request)) == scan(text, asked)
        request.output_token_ids += [rng.randrange(4) for _ in range(rng.randint(0, 3))]


def test_each_request_has_its_own_text_until_it_ends():
    drafter = NgramDrafter()
    first = Request("a", [1, 2, 1], 9, speculation=settings())
    assert drafter.propose(first)
    assert not drafter.propose(Request("b", [1], 9, speculation=settings()))
    drafter.release("a")
    drafter.release("never seen")
    assert not drafter.propose(Request("a", [1], 9, speculation=settings()))
    assert not drafter.propose(Request("plain", [1, 1, 1], 9))
    assert len(drafter._indices) == 2


def test_a_look_up_takes_no_longer_in_a_long_text():
    def seconds(length: int) -> float:
        rng = random.Random(1)
        request = Request(
            "a", [rng.randrange(50) for _ in range(length)], 9, speculation=settings()
        )
        drafter = NgramDrafter()
        drafter.propose(request)
        took = []
        for _ in range(200):
            request.output_token_ids.append(rng.randrange(50))
            start = time.process_time()
            drafter.propose(request)
            took.append(time.process_time() - start)
        return sorted(took)[100]

    # A scan of 300 times the text would take 300 times as long.
    assert seconds(60_000) < 20 * seconds(200) + 1e-4
