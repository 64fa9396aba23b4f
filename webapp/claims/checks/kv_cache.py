"""Checks of what the article says about the KV cache: C13, C14, C22."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from engine.catalog.models import get_model
from engine.catalog.units import bytes_label, significant, time_label
from engine.inference.messages import Generate
from webapp.claims.bench import Bench, Run, new_id
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.i18n import Texts
from webapp.lessons.lesson import Basis
from webapp.pages.kv_view import largest_batches

PROMPT = "The harbour was quiet at night, and the keeper of the lighthouse began to write:"
TOKENS = 96
SPEED_UP = 5.0
SAID_BYTES, SAID_CONTEXT, SAID_TOTAL = 1e6, 4096, 4e9
MODEL_13B = "llama-2-13b"
DEVICE = "h100-sxm"
CONTEXTS = (1024, 2048, 4096, 8192)
MODELS = (MODEL_13B, "gemma-3-27b")
"""One whose every layer keeps every position, and one where most layers keep a window."""

CLOSE, ROUGH = 0.05, 0.25
"""Shares by which a rounded number may be off, and by which a rough one may."""


def cumulative(run: Run) -> list[float]:
    """Milliseconds of computing up to each token of an answer: steps, without pauses between."""
    return list(accumulate(step.time_ms for step in run.steps))


def passes_at(fast: Sequence[float], slow: Sequence[float], factor: float) -> int | None:
    """From which number of tokens on ``slow`` always took ``factor`` times as long; None: never."""
    count: int | None = None
    for number, (one, other) in enumerate(zip(fast, slow, strict=False), start=1):
        if other < factor * one:
            count = None
        elif count is None:
            count = number
    return count


async def _answered(bench: Bench, kv_cache: str) -> Run:
    # In float32 where that is open: with fewer bits rounding tips a choice now and then.
    exact = any(lane.dtype == "float32" for lane in bench.info.lanes)
    request = Generate(
        new_id(),
        prompt=PROMPT,
        max_tokens=TOKENS,
        ignore_eos=True,
        weights="float32" if exact else "auto",
        kv_cache=kv_cache,
    )
    return await bench.generate(request)


async def check_c13(bench: Bench) -> Finding:
    """The same answer with the cache and without, step by step."""
    cached, bare = await _answered(bench, "paged"), await _answered(bench, "off")
    return judge_c13(cached, bare, bench.said)


def judge_c13(cached: Run, bare: Run, said: Texts) -> Finding:
    """What two runs of one prompt say about the cache."""
    fast, slow = cumulative(cached), cumulative(bare)
    count = min(len(fast), len(slow))
    half = count // 2
    ratio, before = slow[count - 1] / fast[count - 1], slow[half - 1] / fast[half - 1]
    at = passes_at(fast, slow, SPEED_UP)
    factors = said.gettext("{half} after {n} tokens, {whole} after {all}").format(
        half=significant(before, 2), n=half, whole=significant(ratio, 2), all=count
    )
    evidence = (
        Evidence(said.gettext("with the cache"), time_label(fast[count - 1] / 1e3), Basis.MEASURED),
        Evidence(said.gettext("without it"), time_label(slow[count - 1] / 1e3), Basis.MEASURED),
        Evidence(said.gettext("times as long"), factors, Basis.MEASURED),
        *_same_and_positions(cached, bare, count, said),
    )
    if at is None and ratio <= before:
        sentence = said.gettext(
            "Here the factor was {ratio} after {n} tokens and did not grow: no sign of 5."
        ).format(ratio=significant(ratio, 2), n=count)
        return Finding(Verdict.WRONG, sentence, evidence)
    caveat = said.gettext(
        "Five times is no constant: the factor grows with every token and depends on the machine. "
        "And with the cache the work is not linear either, as each new token still reads every "
        "earlier key and value."
    )
    if at is None:
        sentence = said.gettext(
            "Within {n} tokens the factor did not stay above 5 here, but it grows: a longer answer "
            "passes it."
        ).format(n=count)
    else:
        sentence = said.gettext(
            "Here the answer without the cache takes 5 times as long from {n} tokens on, long "
            "before 1,000; what it computes grows with the square of the length."
        ).format(n=at)
    return Finding(Verdict.CAVEAT, sentence, evidence, caveat)


def _same_and_positions(
    cached: Run, bare: Run, count: int, said: Texts
) -> tuple[Evidence, Evidence]:
    """Whether both wrote the same, and how many positions went through the model for it."""
    pairs = zip(cached.token_ids, bare.token_ids, strict=False)
    same = sum(one == other for one, other in pairs)
    dtype = bare.accepted.dtype if bare.accepted else ""
    prompt = prompt_tokens(bare)
    positions = sum(range(prompt, prompt + count))
    return (
        Evidence(
            said.gettext("same token in the same place, in {dtype}").format(dtype=dtype),
            f"{same} / {count}",
            Basis.MEASURED,
        ),
        Evidence(
            said.gettext("positions computed, with and without"),
            f"{prompt + count - 1:,} / {positions:,}",
            Basis.COMPUTED,
            said.gettext("P + n − 1, and the sum of P + i for i below n; P is the prompt"),
        ),
    )


def prompt_tokens(run: Run) -> int:
    """Tokens of the prompt that a run was given."""
    return len(run.accepted.prompt_token_ids) if run.accepted else 0


async def check_c14(bench: Bench) -> Finding:
    """A 13B model's bytes, from its structure."""
    model, said = get_model(MODEL_13B), bench.said
    return judge_c14(
        float(model.kv_bytes_per_token(16)), float(model.kv_cache_bytes(SAID_CONTEXT, 16)), said
    )


def judge_c14(per_token: float, whole: float, said: Texts) -> Finding:
    """How far the article's round numbers are from these."""
    off = max(abs(SAID_BYTES / per_token - 1), abs(SAID_TOTAL / whole - 1))
    source = said.gettext("Llama-2-13B in 16 bits: 2 × 40 layers × 40 heads × 128 numbers × 2 B")
    evidence = (
        Evidence(said.gettext("a token"), f"{per_token:,.0f} B", Basis.COMPUTED, source),
        Evidence(
            said.gettext("4,096 tokens"),
            bytes_label(whole),
            Basis.COMPUTED,
            said.gettext("4,096 times that"),
        ),
    )
    if off <= CLOSE:
        return Finding(Verdict.RIGHT, said.gettext("So it is, rounded."), evidence)
    if off <= ROUGH:
        return Finding(
            Verdict.CAVEAT,
            said.gettext("The order of magnitude is right; the article rounds up by {off}.").format(
                off=f"{off:.0%}"
            ),
            evidence,
            said.gettext(
                "It holds for this model, whose 40 heads all keep keys and values of their own. "
                "Models of today share them between heads: Llama-3.1-8B keeps {bytes} a token."
            ).format(bytes=f"{get_model('llama-3.1-8b').kv_bytes_per_token(16):,} B"),
        )
    return Finding(Verdict.WRONG, said.gettext("The numbers are further off."), evidence)


async def check_c22(bench: Bench) -> Finding:
    """The largest batch that fits beside the weights, as the context doubles."""
    found = {name: largest_batches(name, DEVICE, "bf16", CONTEXTS) for name in MODELS}
    return judge_c22(found, bench.said)


def judge_c22(found: Mapping[str, Sequence[int]], said: Texts) -> Finding:
    """Whether a doubled context halves the batch, of each model."""
    source = said.gettext(
        "the simulator: weights and cache at 16 bits, one H100 with 80 GB, of which 90% may be "
        "filled"
    )
    evidence = tuple(
        Evidence(
            f"{name}, {CONTEXTS[0]:,} – {CONTEXTS[-1]:,}",
            " → ".join(f"{batch:,}" for batch in batches),
            Basis.PREDICTED,
            source,
        )
        for name, batches in found.items()
    )
    plain, *others = found.values()
    if not _halves(plain):
        return Finding(
            Verdict.WRONG, said.gettext("The batch falls by less than that here."), evidence
        )
    sentence = said.gettext(
        "With each doubling of the context, at most half as many requests of a model with a plain "
        "cache fit beside its weights."
    )
    if all(map(_halves, others)):
        return Finding(Verdict.RIGHT, sentence, evidence)
    caveat = said.gettext(
        "How hard it hits depends on the model: where most layers keep only a window of the last "
        "positions, the batch falls by less."
    )
    return Finding(Verdict.CAVEAT, sentence, evidence, caveat)


def _halves(batches: Sequence[int]) -> bool:
    """Whether each is at most half of the one before, but for rounding to whole requests."""
    return all(after <= math.ceil(before / 2) for before, after in pairwise(batches))


CHECKS: Mapping[str, Check] = {"C13": check_c13, "C14": check_c14, "C22": check_c22}
