"""Nothing of a stop string ever leaves, and nothing else is lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import InvalidRequest
from engine.inference.stop_strings import MAX_STOP_CHARS, MAX_STOP_STRINGS, StopStringMatcher


def run(stops: Sequence[str], chunks: Sequence[str]) -> tuple[list[str], bool]:
    """What leaves for each piece and at the end, and whether a stop string matched."""
    matcher = StopStringMatcher(stops)
    out: list[str] = []
    for chunk in chunks:
        text, matched = matcher.push(chunk)
        out.append(text)
        if matched:
            return out, True
    out.append(matcher.flush())
    return out, matcher.matched


def naive(stops: Sequence[str], text: str) -> tuple[str, bool]:
    """Look at the whole text: cut where the first stop string begins."""
    cuts = [at for stop in stops if (at := text.find(stop)) >= 0]
    return (text[: min(cuts)], True) if cuts else (text, False)


@pytest.mark.kind("O02")
def test_a_stop_string_over_four_tokens():
    assert run(["DEFGHIJ"], ["abc", "DEF", "G", "HI", "J", "never"]) == (
        ["abc", "", "", "", ""],
        True,
    )


def test_a_beginning_that_comes_to_nothing_is_let_go():
    assert run(["DEFGHIJ"], ["DEF", "G", "x", "y"]) == (["", "", "DEFGx", "y", ""], False)


def test_only_the_longest_possible_beginning_is_held():
    matcher = StopStringMatcher(["aab"])
    assert matcher.push("aaaa") == ("aa", False)
    assert matcher.push("c") == ("aac", False)
    assert matcher.push("xa") == ("x", False)
    assert matcher.flush() == "a"


def test_text_before_and_after_in_one_piece():
    assert run(["\n\n"], ["one\n\ntwo"]) == (["one"], True)


def test_after_a_match_everything_is_dropped():
    matcher = StopStringMatcher(["."])
    assert matcher.push("a.b") == ("a", True)
    assert matcher.push("c.d") == ("", True)
    assert matcher.flush() == ""
    assert matcher.matched


def test_the_earliest_of_several_wins():
    assert run(["END", "\n", "stop"], ["a sto", "p\nEND"]) == (["a ", ""], True)


def test_a_short_stop_inside_the_beginning_of_a_long_one():
    assert run(["abcd", "c"], ["abc", "d"]) == (["", ""], True)
    assert run(["abcd", "c"], ["abc", "x"]) == (["", "ab"], True)
    # The text ends while both are possible: the short one has matched.
    matcher = StopStringMatcher(["abcd", "c"])
    assert matcher.push("abc") == ("", False)
    assert matcher.flush() == "ab"
    assert matcher.matched


def test_characters_beyond_the_basic_plane_and_combining_marks():
    assert run(["🙂🚀"], ["a🙂", "🙂", "🚀b"]) == (["a", "🙂", ""], True)
    assert run(["e\u0301"], ["cafe", "\u0301s"]) == (["caf", ""], True)
    # No normalising: the composed é is another string.
    assert run(["e\u0301"], ["caf\u00e9"]) == (["caf\u00e9", ""], False)


def test_without_stop_strings_everything_leaves_at_once():
    assert run([], ["a", "", "b"]) == (["a", "", "b", ""], False)


@pytest.mark.parametrize(
    "stops",
    [[""], ["a", ""], ["x" * (MAX_STOP_CHARS + 1)], ["x"] * (MAX_STOP_STRINGS + 1)],
    ids=["empty", "one empty", "too long", "too many"],
)
def test_refusals_name_the_field(stops):
    with pytest.raises(InvalidRequest) as caught:
        StopStringMatcher(stops)
    assert caught.value.field == "stop"


def test_the_limits_themselves_are_allowed():
    stops = [f"{number:x}" * MAX_STOP_CHARS for number in range(MAX_STOP_STRINGS)]
    assert run(stops, ["3" * MAX_STOP_CHARS]) == ([""], True)


few_letters = st.text(alphabet="abé🙂", max_size=30)
stop_lists = st.lists(st.text(alphabet="abé🙂", min_size=1, max_size=5), max_size=4)


@settings(max_examples=1_000, deadline=None)
@given(stops=stop_lists, text=few_letters, cuts=st.lists(st.integers(0, 30), max_size=12))
def test_equals_the_naive_cut_of_the_whole_text(stops, text, cuts):
    """Stop strings that overlap and contain one another, text cut into any pieces."""
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    chunks = [text[a:b] for a, b in pairwise(places)]
    out, matched = run(stops, chunks)
    assert ("".join(out), matched) == naive(stops, text)


@settings(max_examples=500, deadline=None)
@given(stops=stop_lists, text=few_letters)
def test_nothing_that_could_be_let_go_is_held(stops, text):
    """After each character, what is held is a beginning of a stop string, and the longest one."""
    matcher = StopStringMatcher(stops)
    given_out = ""
    for number, character in enumerate(text, 1):
        safe, matched = matcher.push(character)
        given_out += safe
        if matched:
            return
        seen = text[:number]
        if naive(stops, seen)[1]:
            continue  # waits for a longer stop string that begins earlier
        held = seen[len(given_out) :]
        beginnings = [
            size
            for size in range(1, number + 1)
            if any(stop.startswith(seen[-size:]) and len(stop) > size for stop in stops)
        ]
        assert len(held) == max(beginnings, default=0)
