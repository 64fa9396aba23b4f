"""Checks of the claims of lesson 7: what bounds prefill and decode, and what moves TTFT and ITL.

What bounds a step is measured by making it larger: arithmetic takes as many times longer as there
are tokens, reading the weights takes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from engine.catalog.units import significant, time_label
from engine.errors import EngineError
from engine.inference.messages import Generate, Step
from webapp.claims.bench import Bench, Run, new_id
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.lessons.lesson import Basis
from webapp.pages.phases_forecast import Elsewhere, compute_bound_from, forecast

WORDS = "The ferry brings oil, flour and coffee before the harbour freezes over. "
MODEL, HARDWARE = "llama-3.1-8b", "h100-sxm"
GROWS = 1.5
"""Twice the tokens in more than so many times the time: arithmetic sets the pace. Exactly bound by
arithmetic would be 2, exactly by the reading of weights 1; this is the middle."""
TOGETHER = 4
BUSY = 0.6
REPEATS = 3


async def _run(bench: Bench, tokens: int, answer: int, samples: int = 1) -> Run:
    """A prompt of about so many tokens; its text takes some 14 of them a sentence."""
    words = WORDS * (tokens // 8 + 1)
    prompt = words[: max(1, round(tokens * await _characters(bench)))]
    return await bench.generate(
        Generate(new_id(), prompt=prompt, max_tokens=answer, n=samples, ignore_eos=True)
    )


async def _characters(bench: Bench) -> float:
    """Characters of the text that a token takes on average."""
    run = await bench.generate(Generate(new_id(), prompt=WORDS, max_tokens=1))
    return len(WORDS) / len(_accepted(run))


def _accepted(run: Run) -> Sequence[int]:
    return () if run.accepted is None else run.accepted.prompt_token_ids


def _prefill_ms(run: Run) -> float:
    return sum(step.time_ms for step in run.steps if step.phase == "prefill")


def _decode_ms(run: Run) -> float:
    return median(step.time_ms for step in run.steps if step.phase == "decode")


async def _prefill(bench: Bench, tokens: int) -> tuple[int, float]:
    """The prompt's tokens, and the shortest of some prefills of it in ms."""
    runs = [await _run(bench, tokens, 1) for _ in range(REPEATS)]
    return len(_accepted(runs[0])), min(map(_prefill_ms, runs))


def _times(ratio: float) -> str:
    return f"× {significant(ratio)}"


def _ms(value: float) -> str:
    return time_label(value / 1e3)


async def prefill_bound(bench: Bench) -> Finding:
    """C11: is prefill bound by arithmetic?"""
    said = bench.said
    pairs = [(await _prefill(bench, n), await _prefill(bench, 2 * n)) for n in (2, 256)]
    growths = [_growth(*pair) for pair in pairs]
    short, long = growths
    evidence = [
        Evidence(
            said.gettext("prefill of {a} and of {b} tokens").format(a=a[0], b=b[0]),
            f"{_ms(a[1])}, {_ms(b[1])}: {_times(b[1] / a[1])}",
            Basis.MEASURED,
            said.gettext("the shortest of {n} runs").format(n=REPEATS),
        )
        for a, b in pairs
    ]
    ridge = _ridge_tokens()
    evidence.append(
        Evidence(
            said.gettext("bound by arithmetic from"),
            said.gettext("{n} tokens of prompt").format(n=ridge),
            Basis.PREDICTED,
            said.gettext("{model} on {hardware}, roofline, one request").format(
                model=MODEL, hardware=HARDWARE
            ),
        )
    )
    if long < GROWS:
        return Finding(
            Verdict.WRONG,
            said.gettext(
                "Not here, at these lengths: twice the prompt does not take in proportion longer, "
                "so reading the weights still sets the pace."
            ),
            tuple(evidence),
        )
    if short < GROWS:
        return Finding(
            Verdict.CAVEAT,
            said.gettext(
                "A long prompt takes in proportion to its length: arithmetic sets the pace. A "
                "prompt of a few tokens does not: reading the weights sets it."
            ),
            tuple(evidence),
            said.gettext("Prefill is bound by arithmetic beyond the ridge point only."),
        )
    return Finding(
        Verdict.RIGHT,
        said.gettext("At every length that was tried, twice the prompt takes about twice as long."),
        tuple(evidence),
    )


def _growth(once: tuple[int, float], twice: tuple[int, float]) -> float:
    """How many times as long twice the tokens take; 1 or 2 at either bound."""
    return 1 + (twice[1] / once[1] - 1) / (twice[0] / once[0] - 1)


def _ridge_tokens() -> int:
    """The shortest prompt that is bound by arithmetic on the catalogue's machine."""
    found = compute_bound_from(Elsewhere(MODEL, HARDWARE, "bf16"))
    if found is None:
        raise EngineError(f"no prompt is bound by arithmetic on {HARDWARE}")
    return found


async def decode_bound(bench: Bench) -> Finding:
    """C12: is decode bound by memory?"""
    said = bench.said
    alone, together = await _run(bench, 32, 24), await _run(bench, 32, 24, TOGETHER)
    far = await _run(bench, 2048, 24)
    one, many, late = _decode_ms(alone), _decode_ms(together), _decode_ms(far)
    ratio = many / one
    usual = said.gettext("median of its steps")
    evidence = (
        Evidence(said.gettext("decode step of one token"), _ms(one), Basis.MEASURED, usual),
        Evidence(
            said.gettext("of {n} tokens, of as many answers").format(n=TOGETHER),
            f"{_ms(many)}: {_times(ratio)}",
            Basis.MEASURED,
            usual,
        ),
        Evidence(
            said.gettext("of one token behind a context of {n}").format(
                n=f"{len(_accepted(far)):,}"
            ),
            f"{_ms(late)}: {_times(late / one)}",
            Basis.MEASURED,
            usual,
        ),
    )
    values = {"n": TOGETHER, "ratio": significant(ratio, 2)}
    if ratio >= 1 + (TOGETHER - 1) * 0.75:
        sentence = said.gettext(
            "Not here: {n} tokens in a step take {ratio} times as long as one, so arithmetic sets "
            "the pace."
        )
        return Finding(Verdict.WRONG, sentence.format(**values), evidence)
    if ratio >= 1 + (TOGETHER - 1) * 0.5:
        sentence = said.gettext(
            "In part: {n} tokens in a step take {ratio} times as long as one. Reading the weights "
            "and arithmetic both count."
        )
        caveat = said.gettext("This machine's arithmetic is slow beside its memory.")
        return Finding(Verdict.CAVEAT, sentence.format(**values), evidence, caveat)
    sentence = said.gettext(
        "{n} answers in one step take {ratio} times as long as one, not {n} times: it is mostly "
        "reading the weights, and not arithmetic, that sets the pace."
    )
    return Finding(Verdict.RIGHT, sentence.format(**values), evidence)


async def lengths_cost(bench: Bench) -> Finding:
    """C21: do long prompts cost TTFT, and long outputs ITL?"""
    said = bench.said
    base = await _run(bench, 64, 16)
    long_prompt, long_answer = await _run(bench, 512, 16), await _run(bench, 64, 128)
    start = _prefill_ms(long_prompt) / _prefill_ms(base)
    gap = _decode_ms(long_answer) / _decode_ms(base)
    whole = _total_ms(long_answer) / _total_ms(base)
    evidence = (
        Evidence(
            said.gettext("prompt of {a} → {b} tokens: computing the first token").format(
                a=len(_accepted(base)), b=len(_accepted(long_prompt))
            ),
            _times(start),
            Basis.MEASURED,
        ),
        Evidence(
            said.gettext("answer of {a} → {b} tokens: ITL").format(a=16, b=128),
            _times(gap),
            Basis.MEASURED,
            said.gettext("median of its steps"),
        ),
        Evidence(
            said.gettext("the same: the whole answer"),
            _times(whole),
            Basis.MEASURED,
        ),
    )
    if start < GROWS:
        return Finding(
            Verdict.WRONG,
            said.gettext("Here a longer prompt hardly took longer to its first token."),
            evidence,
        )
    if gap < GROWS:
        return Finding(
            Verdict.CAVEAT,
            said.gettext(
                "A long prompt does cost TTFT. A long answer costs time in all; the gap between "
                "its tokens stays nearly as it was."
            ),
            evidence,
            said.gettext(
                "ITL grows with the context that each step reads. The output only adds to that "
                "context, token by token."
            ),
        )
    return Finding(
        Verdict.RIGHT,
        said.gettext("Both happened here: each length moved its own time."),
        evidence,
    )


def _total_ms(run: Run) -> float:
    return run.ttft_ms + sum(run.done.itl_ms if run.done else ())


async def utilization(bench: Bench) -> Finding:
    """C24: pegged in prefill, 30% in decode?"""
    said = bench.said
    run = await _run(bench, 512, 48)
    prefill = _busy([step for step in run.steps if step.phase == "prefill"])
    decode = _busy([step for step in run.steps if step.phase == "decode"])
    times = forecast(Elsewhere(MODEL, HARDWARE, "bf16"), 2048, 2)
    source = said.gettext("{model} on {hardware}, typical, one request").format(
        model=MODEL, hardware=HARDWARE
    )
    evidence = (
        Evidence(said.gettext("in a step during prefill"), f"{prefill:.0%}", Basis.MEASURED),
        Evidence(said.gettext("in a step during decode"), f"{decode:.0%}", Basis.MEASURED),
        *(
            Evidence(name, f"MFU {work.mfu:.1%}, MBU {work.mbu:.0%}", Basis.PREDICTED, source)
            for name, work in (
                (said.gettext("prefill of 2,048 tokens"), times.prefill),
                (said.gettext("decode after them"), times.decode),
            )
        ),
    )
    if prefill < BUSY:
        return Finding(
            Verdict.WRONG,
            said.gettext("Here the machine was not even busy during prefill."),
            evidence,
        )
    if decode >= BUSY:
        return Finding(
            Verdict.CAVEAT,
            said.gettext(
                "Utilization misleads, but otherwise: it is the share of time in which anything "
                "runs, and that is high in both phases. What falls in decode is the arithmetic, to "
                "a few percent or less for one request, while the memory is busy."
            ),
            evidence,
            said.gettext(
                "NVIDIA's NVML counts as utilization the percent of time in which a kernel runs. "
                "Tell MFU and MBU apart instead."
            ),
        )
    return Finding(
        Verdict.RIGHT,
        said.gettext("Here the machine was busy in prefill, and idle much of the time in decode."),
        evidence,
    )


def _busy(steps: Sequence[Step]) -> float:
    """Share of the time from the first step's start to the last one's end that was in a step."""
    wall = steps[-1].start_ms + steps[-1].time_ms - steps[0].start_ms
    return min(1.0, sum(step.time_ms for step in steps) / wall)


CHECKS: dict[str, Check] = {
    "C11": prefill_bound,
    "C12": decode_bound,
    "C21": lengths_cost,
    "C24": utilization,
}
