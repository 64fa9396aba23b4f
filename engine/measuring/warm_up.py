"""Before measuring: which fields the server takes, how long prompts get, and warm caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.errors import EngineUnavailable
from engine.measuring.client import Client
from engine.measuring.prompts import LengthRule, PromptMaker
from engine.measuring.reply import Failure, Reply
from engine.measuring.target import FORMS

_SHORT_WORDS, _LONG_WORDS = 16, 80
_SHORT_OUTPUT = 4
_NOT_TAKEN = (400, 422)
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Ready:
    """A client whose request the server takes, and the rule of its prompts' lengths."""

    client: Client
    lengths: LengthRule


@dataclass(frozen=True, slots=True)
class Alone:
    """One answer to a prompt of a wanted length, nothing else under way: words and seconds."""

    words: int
    total: float


def get_ready(client: Client, prompts: PromptMaker) -> Ready:
    """Ask a few short questions, until the server answers one.

    Raises:
        EngineUnavailable: it answers none, with its reason.
    """
    first: Reply | None = None
    for form in FORMS:
        client = replace(client, target=replace(client.target, form=form))
        reply = _patiently(client, prompts.prompt(_SHORT_WORDS), _SHORT_OUTPUT)
        if reply.ok:
            return Ready(client, _lengths(client, prompts, reply))
        # The words about the plainest form are the ones that tell.
        first = first or reply
        if reply.failure is not Failure.HTTP_ERROR or reply.status not in _NOT_TAKEN:
            break
    raise _unavailable(first)


def ask_alone(ready: Ready, prompts: PromptMaker, tokens: int, output_tokens: int) -> Alone:
    """One whole answer to a prompt of that many tokens, to find its words and its time.

    Raises:
        EngineUnavailable: there was none, with the reason.
    """
    words = ready.lengths.words(tokens)
    reply = _patiently(ready.client, prompts.prompt(words), output_tokens)
    if not reply.ok:
        raise _unavailable(reply)
    counted = reply.usage.prompt
    if counted and ready.lengths.counted:
        words = max(1, words + round((tokens - counted) / ready.lengths.rate))
    return Alone(words, reply.total)


def _lengths(client: Client, prompts: PromptMaker, short: Reply) -> LengthRule:
    long = _patiently(client, prompts.prompt(_LONG_WORDS), _SHORT_OUTPUT)
    counts: Sequence[int | None] = (short.usage.prompt, long.usage.prompt)
    if counts[0] is None or counts[1] is None:
        return LengthRule()
    return LengthRule.through((_SHORT_WORDS, counts[0]), (_LONG_WORDS, counts[1]))


def _patiently(client: Client, prompt: str, output_tokens: int) -> Reply:
    """One answer; a rate limit is waited for a few times. Nothing is measured here."""
    for _ in range(_TRIES - 1):
        reply = client.ask(prompt, output_tokens)
        if reply.failure is not Failure.RATE_LIMITED:
            return reply
        client.wait(reply)
    return client.ask(prompt, output_tokens)


def _unavailable(reply: Reply | None) -> EngineUnavailable:
    if reply is None or reply.failure is None:
        return EngineUnavailable("no request was tried")
    return EngineUnavailable(f"the server gave no answer: {reply.failure}: {reply.detail}")
