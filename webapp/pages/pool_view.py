"""The picture of a small KV cache over a run's steps: a row a block, a column a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from engine.catalog.units import time_label
from webapp.charts import ChartSize
from webapp.i18n import Texts
from webapp.pages.pool_run import NAMES, PoolQuestion, PoolStep, run_pool

WIDE = ChartSize("wide", width=680, height=0, left=34, right=6, top=8, bottom=26)
NARROW = ChartSize("narrow", width=356, height=0, left=26, right=4, top=8, bottom=26)
ROW, PERSON, GAP = 14.0, 18.0, 14.0
LETTER_ROOM = 11.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle of the picture; ``kind`` picks its look, ``text`` stands in it if it has room."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """Words at the picture's left edge, at a row."""

    text: str
    y: float


@dataclass(frozen=True, slots=True)
class PoolPicture:
    """People above, blocks below, in one size; ``cursor`` is the step that is looked at."""

    size: ChartSize
    height: float
    bars: tuple[Bar, ...]
    labels: tuple[Label, ...]
    marks: tuple[tuple[float, float], ...]
    cursor: Bar


@dataclass(frozen=True, slots=True)
class PersonNow:
    """One person in the step that is looked at: what is computed, and the block table."""

    name: str
    does: str
    table: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PoolView:
    """The whole fragment. ``preemptions`` and ``lost`` are of the whole run; ``time`` predicted."""

    question: PoolQuestion
    steps: int
    at: int
    wide: PoolPicture
    narrow: PoolPicture
    people: tuple[PersonNow, ...]
    free: int
    kept: int
    told: tuple[str, ...]
    time: str
    preemptions: int
    lost: int
    found: int
    most: int


def pool_view(question: PoolQuestion, said: Texts) -> PoolView:
    """Runs the people on the pool, and draws what happened."""
    steps = run_pool(question)
    at = min(question.at, len(steps))
    now = steps[at - 1]
    held = {block for table in now.tables.values() for block in table}
    return PoolView(
        question=question,
        steps=len(steps),
        at=at,
        wide=_picture(WIDE, question.blocks, steps, at),
        narrow=_picture(NARROW, question.blocks, steps, at),
        people=tuple(_person(name, now, said) for name in NAMES),
        free=question.blocks - len(held) - len(now.cached),
        kept=len(now.cached),
        told=tuple(_told(now, said)),
        time=time_label(sum(step.duration for step in steps)),
        preemptions=sum(len(step.preempted) for step in steps),
        lost=sum(sum(step.preempted.values()) for step in steps),
        found=sum(sum(step.found.values()) for step in steps),
        most=max(len(step.parts) for step in steps),
    )


def _person(name: str, now: PoolStep, said: Texts) -> PersonNow:
    part = now.parts.get(name)
    if part is not None:
        words = {
            "prefill": said.gettext("reads its prompt, tokens: {n}"),
            "decode": said.gettext("gets a token"),
            "recompute": said.gettext("computes again, tokens: {n}"),
        }
        does = words[part.phase].format(n=part.tokens)
    elif name in now.waiting:
        does = said.gettext("waits")
    else:
        does = said.gettext("not here")
    return PersonNow(name, does, now.tables.get(name, ()))


def _told(now: PoolStep, said: Texts) -> Iterator[str]:
    """What happened just before the step, in sentences."""
    for name, lost in now.preempted.items():
        yield said.gettext(
            "Blocks ran out: {name} gave all of its own up and goes back into the queue. Its {n} "
            "positions will be computed again."
        ).format(name=name, n=lost)
    for name, found in now.found.items():
        yield said.gettext("{name} found {n} positions of its beginning in the cache.").format(
            name=name, n=found
        )


def _picture(size: ChartSize, blocks: int, steps: Sequence[PoolStep], at: int) -> PoolPicture:
    width = (size.width - size.left - size.right) / len(steps)
    top = size.top + len(NAMES) * PERSON + GAP
    bottom = top + blocks * ROW
    bars, labels, marks = list[Bar](), list[Label](), list[tuple[float, float]]()
    for row, name in enumerate(NAMES):
        y = size.top + row * PERSON
        labels.append(Label(name, y + 12))
        for kind, first, count in _runs([_doing(step, name) for step in steps]):
            x = size.left + first * width
            bars.append(Bar(kind, x, y + 2, count * width, PERSON - 4))
        marks += [
            (size.left + i * width, y + PERSON / 2)
            for i, step in enumerate(steps)
            if name in step.preempted
        ]
    for block in range(blocks):
        y = top + block * ROW
        if block % 4 == 0:
            labels.append(Label(str(block), y + 11))
        for owner, first, count in _runs([_owner(step, block) for step in steps]):
            x, wide = size.left + first * width, count * width
            text = owner.removeprefix("own ").removeprefix("shared ")
            kind = _kind(owner)
            shown = text if kind != "cached" and wide >= LETTER_ROOM * len(text) else ""
            bars.append(Bar(kind, x, y + 1, wide, ROW - 2, shown))
    x = size.left + (at - 1) * width
    cursor = Bar("cursor", x, size.top - 3, max(width, 2.0), bottom - size.top + 6)
    height = bottom + size.bottom
    return PoolPicture(size, height, tuple(bars), tuple(labels), tuple(marks), cursor)


def _doing(step: PoolStep, name: str) -> str:
    part = step.parts.get(name)
    if part is not None:
        return part.phase
    return "wait" if name in step.waiting else ""


def _owner(step: PoolStep, block: int) -> str:
    owners = step.owners(block)
    if owners:
        return f"own {owners}" if len(owners) == 1 else f"shared {owners}"
    return "cached" if block in step.cached else ""


def _kind(owner: str) -> str:
    if owner.startswith("own "):
        return f"own own-{NAMES.index(owner[-1]) + 1}"
    return owner.split(" ", maxsplit=1)[0]


def _runs(values: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Stretches of one value: the value, where it begins, how long it lasts. Empty ones not."""
    place = 0
    for value, group in groupby(values):
        count = len(list(group))
        if value:
            yield value, place, count
        place += count
