"""A run as a document: what was asked, where it ran, and the events of the live protocol as they
came. It is saved, shared, replayed, compared and exported in this form.

It comes from a browser, so everything in it is a claim. What is checked is that it has the shape of
a run: every event is one that ``/ws/generate`` sends (without ``request_id`` and ``seq``), in an
order in which it sends them, with times and counts that a picture can be drawn from.

What was stored is read with these models again. A field that an event gets later needs a default,
or a new version here that reads the old one: runs saved before could not be shown any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self, cast

from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from webapp.schemas.base import MAX_SAFE_INT, PlainText, StrictModel
from webapp.schemas.live_events import (
    AcceptedEvent,
    DoneEvent,
    DraftedEvent,
    ErrorEvent,
    PreemptedEvent,
    QueuedEvent,
    StartedEvent,
    StepEvent,
    TokenEvent,
)
from webapp.schemas.live_requests import GenerateRequest

VERSION = 1
MAX_EVENTS = 40_000
"""Two events a token, and room for drafts, at the longest answer of the protocol."""
MAX_TIME_MS = 30 * 24 * 3600 * 1000.0
MAX_AMOUNT = 1e30
YEAR_2100_MS = 4_102_444_800_000
MAX_NAME = 200

SavedEvent = Annotated[
    AcceptedEvent
    | QueuedEvent
    | StartedEvent
    | StepEvent
    | TokenEvent
    | DraftedEvent
    | PreemptedEvent
    | DoneEvent
    | ErrorEvent,
    Field(discriminator="type"),
]
EVENT_TAGS = frozenset(
    {"accepted", "queued", "started", "step", "token", "drafted", "preempted", "done", "error"}
)
"""The values of ``type``; pydantic writes them into the places of its errors."""

Count = Annotated[int, Field(ge=1, le=MAX_SAFE_INT)]
ShortText = Annotated[PlainText, Field(max_length=MAX_NAME)]


class Machine(StrictModel):
    """The model that ran and the device that it ran on, as the engine told them."""

    model_name: ShortText
    device: ShortText
    device_name: ShortText
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    intermediate: Count
    vocabulary: Count
    max_context: Count
    random_weights: bool
    source_format: ShortText


class MeasuredRoof(StrictModel):
    """What that machine was measured to reach: byte/s, and FLOP/s in ``dtype``."""

    dtype: Literal["float32", "bfloat16"]
    bandwidth: Annotated[float, Field(ge=1e6, le=1e18)]
    peak: Annotated[float, Field(ge=1e6, le=1e21)]


class SavedRun(StrictModel):
    """Version 1. ``ran_at_ms`` is when the run ended by the browser's clock, in Unix time."""

    version: Literal[1]
    title: Annotated[PlainText, Field(max_length=120)]
    by: Annotated[PlainText, Field(max_length=60)]
    ran_at_ms: Annotated[int, Field(ge=0, lt=YEAR_2100_MS)]
    request: GenerateRequest
    machine: Machine
    roof: MeasuredRoof | None
    events: Annotated[list[SavedEvent], Field(min_length=2, max_length=MAX_EVENTS)]

    @model_validator(mode="after")
    def _is_a_run(self) -> Self:
        if self.request.n != 1:
            raise _refused("Save a run of one sample (n = 1).")
        check_order(self.events)
        check_numbers(self.events)
        return self

    @property
    def accepted(self) -> AcceptedEvent:
        """The first event."""
        first = self.events[0]
        if not isinstance(first, AcceptedEvent):
            raise TypeError("check_order lets a run begin with accepted only")
        return first


def check_order(events: Sequence[SavedEvent]) -> None:
    """Refuses what no run could send: it begins with ``accepted`` and ends with its only ``done``
    or ``error``, tokens count from 0 and steps begin one after the other.

    Raises:
        PydanticCustomError: naming the event's place.
    """
    if not isinstance(events[0], AcceptedEvent):
        raise _refused("A run begins with accepted.")
    if not isinstance(events[-1], DoneEvent | ErrorEvent):
        raise _refused("A run ends with done or error.")
    tokens = 0
    last_start = 0.0
    for place, event in enumerate(events[1:-1], 1):
        if isinstance(event, AcceptedEvent | DoneEvent | ErrorEvent):
            raise _refused(f"Event {place}: a run has one beginning and one end.")
        if isinstance(event, TokenEvent):
            if event.index != tokens:
                raise _refused(f"Event {place}: tokens count from 0 without gaps.")
            tokens += 1
        if isinstance(event, StepEvent):
            if event.start_ms < last_start:
                raise _refused(f"Event {place}: a step begins after the one before.")
            last_start = event.start_ms
    accepted = events[0]
    count = len(accepted.prompt_token_ids)
    if not count == len(accepted.prompt_pieces) == accepted.prompt_tokens:
        raise _refused("The prompt has as many ids and pieces as it has tokens.")


def check_numbers(events: Sequence[SavedEvent]) -> None:
    """Refuses negative amounts, and times and amounts beyond what any run has.

    Raises:
        PydanticCustomError: naming the event's place and the field.
    """
    for place, event in enumerate(events):
        for name, value in event:
            if not _is_plausible(name, value):
                raise _refused(f"Event {place}: {name} is out of the range of a run.")


def _is_plausible(name: str, value: object) -> bool:
    if isinstance(value, int | float):
        if name == "logprob":
            return -MAX_AMOUNT <= value <= 1
        return 0 <= value <= (MAX_TIME_MS if name.endswith("_ms") else MAX_AMOUNT)
    if isinstance(value, BaseModel):
        return all(_is_plausible(field, inner) for field, inner in value)
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return all(_is_plausible(name, inner) for inner in members.values())
    if isinstance(value, list):
        return all(_is_plausible(name, inner) for inner in cast("list[object]", value))
    return True


def _refused(problem: str) -> PydanticCustomError:
    return PydanticCustomError("bad_value", "{problem}", {"problem": problem})
