"""Log-probabilities in the shapes of both interfaces."""

from __future__ import annotations

import re
from collections.abc import Sequence

from webapp.schemas.live_events import TokenEvent
from webapp.schemas.openai_answers import (
    CandidateLogprob,
    ChatLogprobs,
    CompletionLogprobs,
    TokenLogprob,
)

IMPOSSIBLE = -9999.0
"""For a probability of 0, as OpenAI's reference has it: JSON holds no infinity."""

_SHOWN_BYTES = re.compile(r"<([0-9A-F]{2}|id [0-9]+)>")


def chat_logprobs(tokens: Sequence[TokenEvent]) -> ChatLogprobs:
    """One entry a token, its likeliest competitors with it."""
    return ChatLogprobs(
        content=[
            TokenLogprob(
                token=event.piece,
                logprob=_number(event.logprob),
                bytes=_bytes(event.piece),
                top_logprobs=[
                    CandidateLogprob(
                        token=top.piece, logprob=_number(top.logprob), bytes=_bytes(top.piece)
                    )
                    for top in event.top_logprobs
                ],
            )
            for event in tokens
        ]
    )


def completion_logprobs(tokens: Sequence[TokenEvent], offset: int, top: int) -> CompletionLogprobs:
    """Lists beside each other; ``offset``: characters of the answer before the first of them."""
    offsets: list[int] = []
    for event in tokens:
        offsets.append(offset)
        offset += len(event.text)
    likeliest = [
        {candidate.piece: _number(candidate.logprob) for candidate in event.top_logprobs}
        for event in tokens
    ]
    return CompletionLogprobs(
        tokens=[event.piece for event in tokens],
        token_logprobs=[_number(event.logprob) for event in tokens],
        top_logprobs=likeliest if top else None,
        text_offset=offsets,
    )


def _number(logprob: float | None) -> float:
    return IMPOSSIBLE if logprob is None else logprob


def _bytes(piece: str) -> list[int] | None:
    """The token's bytes; None where its visible text writes some of them as ``<E4>``."""
    return None if _SHOWN_BYTES.search(piece) else list(piece.encode())
