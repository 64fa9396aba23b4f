"""The engine as the worker drives it, in this process, with each step timed from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from engine.inference.engine import Engine
from engine.inference.loading import LoadedModel
from engine.inference.messages import Failed, Generate, Message
from engine.inference.quantization.calibration_text import HELD_OUT, text_of
from engine.scheduling.limits import SchedulerLimits

T = TypeVar("T")

MAX_STEP_TOKENS = 1024
MODES = {"float32": "fp32", "bfloat16": "bf16"}
"""Lanes that are measured, with the catalogue's names of their number formats."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One step: its wall time, scheduling and messages included, and what it said."""

    seconds: float
    heard: tuple[Message, ...]

    def of(self, kind: type[T]) -> list[T]:
        """Messages of one kind, in their order."""
        return [message for message in self.heard if isinstance(message, kind)]


class Driver:
    """An engine of its own on a loaded model; lanes are opened at once when they are asked for."""

    def __init__(
        self,
        model: LoadedModel,
        *,
        max_running: int = 1,
        policy: str = "first-come",
        max_step_tokens: int = MAX_STEP_TOKENS,
    ) -> None:
        self._heard: list[Message] = []
        limits = SchedulerLimits(
            max_running=max_running,
            max_step_tokens=max_step_tokens,
            max_context=model.config.max_context,
        )
        self._engine = Engine(model, limits, self._heard.append, policy)

    def submit(self, generate: Generate, prompt_ids: Sequence[int] = ()) -> None:
        """Queue a request. With ``prompt_ids`` these are its prompt, whatever text it has: a
        prompt of an exact length cannot be asked for as text.

        Raises:
            RuntimeError: the engine refused it.
        """
        prepared = self._engine.prepare(generate, time.perf_counter())
        if prompt_ids:
            prepared = replace(prepared, prompt_token_ids=tuple(prompt_ids))
        if self._engine.missing_lane(prepared) is None:
            self._engine.submit(prepared)
        elif (to_open := self._engine.hold(prepared)) is not None:
            self._engine.add_lane(self._engine.open_lane(to_open))
        self._check()

    def step(self) -> Taken:
        """One step of the engine.

        Raises:
            RuntimeError: a request failed, or there was nothing to do.
        """
        self._heard.clear()
        started = time.perf_counter()
        stepped = self._engine.step()
        seconds = time.perf_counter() - started
        if not stepped:
            raise RuntimeError("the engine had nothing to do")
        self._check()
        return Taken(seconds, tuple(self._heard))

    def run(self, generate: Generate, prompt_ids: Sequence[int] = ()) -> Iterator[Taken]:
        """One request from beginning to end, step by step."""
        self.submit(generate, prompt_ids)
        yield from self.drain()

    def drain(self) -> Iterator[Taken]:
        """Steps until every request has ended."""
        while self._engine.has_work:
            yield self.step()

    def abort(self, request_id: str) -> None:
        """End a request."""
        self._engine.abort(request_id)

    def _check(self) -> None:
        for message in self._heard:
            if isinstance(message, Failed):
                raise RuntimeError(f"{message.request_id}: {message.message}")


def greedy(request_id: str, max_tokens: int, **fields: Any) -> Generate:
    """A request for exactly so many of the likeliest tokens. Its text counts only where no ids
    are given."""
    return Generate(
        request_id, **{"prompt": "-", "max_tokens": max_tokens, "ignore_eos": True, **fields}
    )


def passages(model: LoadedModel, num_tokens: int, count: int) -> list[list[int]]:
    """So many passages of real text, of that many tokens each; they come again if it is used up."""
    ids = model.tokenizer.encode(text_of(HELD_OUT))
    there_are = len(ids) // num_tokens
    starts = (number % there_are * num_tokens for number in range(count))
    return [ids[start : start + num_tokens] for start in starts]


def prose(model: LoadedModel, num_tokens: int) -> list[int]:
    """The first passage of that length."""
    return passages(model, num_tokens, 1)[0]
