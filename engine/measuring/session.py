"""A whole measurement: warm-up, then point after point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.measuring.client import Client
from engine.measuring.load import Load
from engine.measuring.plan import Plan
from engine.measuring.point import Point
from engine.measuring.prompts import PromptMaker
from engine.measuring.reply import Reply
from engine.measuring.warm_up import Alone, Ready, ask_alone, get_ready

_WARM_OUTPUT = 4


class Listener:
    """Hears how far a measurement is. This one keeps it to itself; another overrides."""

    def warming(self, words: str) -> None:
        """The warm-up has come to that."""

    def point(self, prompt_tokens: int, concurrency: int, requests: int) -> None:
        """A point of so many requests begins."""

    def reply(self, reply: Reply) -> None:
        """One of its requests has ended."""


@dataclass(frozen=True, slots=True)
class Session:
    """Measures a plan with a client. Requests of the warm-up are in no number."""

    client: Client
    plan: Plan
    listener: Listener

    def run(self) -> Iterator[Point]:
        """The points as they are measured. An interrupt from the keyboard ends the session: what
        was measured of its point until then is the last one.

        Raises:
            EngineUnavailable: the server answers nothing in the warm-up.
        """
        prompts = PromptMaker(self.plan.seed, same=self.plan.same_prompt)
        self.listener.warming("which fields the server takes, and its tokens a word")
        ready = get_ready(self.client, prompts)
        for tokens in self.plan.prompt_tokens:
            self.listener.warming(f"one prompt of {tokens:,} tokens")
            alone = ask_alone(ready, prompts, tokens, self.plan.output_tokens)
            for many in self.plan.concurrency:
                point, stopped = self._measure(ready, prompts, tokens, many, alone)
                yield point
                if stopped:
                    return

    def _measure(
        self, ready: Ready, prompts: PromptMaker, tokens: int, many: int, alone: Alone
    ) -> tuple[Point, bool]:
        """One point; and whether it was interrupted."""
        count = self.plan.requests_at(many)
        texts = [prompts.prompt(alone.words) for _ in range(many + count)]
        warm = Load(ready.client, texts[:many], _WARM_OUTPUT, many, 0.0, _nobody)
        load = Load(
            ready.client,
            texts[many:],
            self.plan.output_tokens,
            many,
            alone.total,
            self.listener.reply,
        )
        stopped = False
        try:
            if many > 1:
                self.listener.warming(f"{many:,} short answers at once")
                warm.run()
            self.listener.point(tokens, many, count)
            load.run()
        except KeyboardInterrupt:
            stopped = True
        return Point(tokens, many, count, tuple(load.replies)), stopped


def _nobody(reply: Reply) -> None:
    """Hears of a reply that does not count."""
