"""A line of those who wait: few at once, bounded, and nothing for those who left."""

from __future__ import annotations

import asyncio

import pytest

from engine.errors import QueueFull
from webapp.waiting import AskerGone, Line


def _full() -> QueueFull:
    return QueueFull("full")


def test_few_at_once_in_their_order_and_the_others_are_refused() -> None:
    async def run() -> tuple[list[str], list[int]]:
        line = Line(2, 3, _full)
        said: list[str] = []
        inside = 0
        seen: list[int] = []

        async def one(name: str) -> None:
            nonlocal inside
            try:
                async with line.place():
                    said.append(name)
                    inside += 1
                    seen.append(inside)
                    await asyncio.sleep(0.01)
                    inside -= 1
            except QueueFull:
                said.append(f"{name} refused")

        async with asyncio.TaskGroup() as people:
            for name in "abcd":
                people.create_task(one(name))
        async with line.place():  # all have left again
            pass
        return said, seen

    said, seen = asyncio.run(run())
    assert [name for name in said if len(name) == 1] == ["a", "b", "c"]
    assert said.count("d refused") == 1
    assert max(seen) == 2


def test_whoever_left_meanwhile_is_passed_over_and_gives_the_place_back() -> None:
    async def left() -> bool:
        return True

    async def run() -> None:
        line = Line(1, 1, _full)
        with pytest.raises(AskerGone):
            async with line.place(left):
                raise AssertionError("nobody is there")
        async with line.place():
            pass

    asyncio.run(run())


def test_a_failure_gives_the_place_back() -> None:
    async def run() -> None:
        line = Line(1, 1, _full)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                async with line.place():
                    raise ZeroDivisionError

    asyncio.run(run())
