"""Usage and timings of a whole request, from the last events of its samples."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from webapp.schemas.live_events import DoneEvent
from webapp.schemas.openai_answers import CompletionUsage, PromptTokensDetails, Timings


def usage_of(done: Sequence[DoneEvent]) -> CompletionUsage:
    """The prompt counts once, however many samples it has."""
    prompt = max((event.usage.prompt_tokens for event in done), default=0)
    completion = sum(event.usage.completion_tokens for event in done)
    cached = max((event.usage.cached_tokens for event in done), default=0)
    return CompletionUsage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=cached),
    )


def timings_of(done: Sequence[DoneEvent]) -> Timings:
    """Means over the samples, measured and predicted alike; None where one of them has none."""
    tokens = [event.usage.completion_tokens for event in done]
    measured = [(event.ttft_ms, fmean(event.itl_ms) if event.itl_ms else None) for event in done]
    ideal = [(event.predicted_ttft_ms, event.predicted_itl_ms) for event in done]
    typical = [(event.typical_ttft_ms, event.typical_itl_ms) for event in done]
    return Timings(
        ttft_ms=_mean([ttft for ttft, _ in measured]),
        predicted_ttft_ms=_mean([ttft for ttft, _ in ideal]),
        typical_ttft_ms=_mean([ttft for ttft, _ in typical]),
        itl_ms=_mean([itl for _, itl in measured]),
        predicted_itl_ms=_mean([itl for _, itl in ideal]),
        typical_itl_ms=_mean([itl for _, itl in typical]),
        tokens_per_s=_mean(list(map(_rate, tokens, measured))),
        predicted_tokens_per_s=_mean(list(map(_rate, tokens, ideal))),
        typical_tokens_per_s=_mean(list(map(_rate, tokens, typical))),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _rate(tokens: int, times_ms: tuple[float | None, float | None]) -> float | None:
    """Tokens a second from the request's receipt to its last token."""
    ttft, itl = times_ms
    if not tokens or ttft is None or (tokens > 1 and itl is None):
        return None
    whole_ms = ttft + (tokens - 1) * (itl or 0.0)
    return tokens / whole_ms * 1e3 if whole_ms > 0 else None
