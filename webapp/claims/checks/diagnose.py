"""Checks of the claims of lesson 12: the stations of a prompt, and the first question."""

from __future__ import annotations

from dataclasses import dataclass

import anyio.to_thread

from engine.catalog.units import time_label
from engine.inference.messages import Generate
from engine.simulator.diagnosis.hypotheses import hypotheses
from engine.simulator.diagnosis.observation import Observation
from engine.simulator.search.cell import Cell
from webapp.claims.bench import Bench, Run, new_id
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.lessons.lesson import Basis

PROMPT = "The best thing about a night train is"
CELL = Cell("llama-3.1-8b", "h100-sxm", times="typical", prompt_tokens=1000, output_tokens=200)
SLOWER = 1.25
"""From so many times the typical time on, a time is called slower here."""


async def stations(bench: Bench) -> Finding:
    """C19: five stations, each of which takes a time of its own."""
    said = bench.said
    run = await bench.generate(Generate(new_id(), prompt=PROMPT, max_tokens=12, ignore_eos=True))
    times = _station_ms(run)
    names = {
        "tokenize": said.gettext("tokenize"),
        "embed": said.gettext("embed (a lookup)"),
        "prefill": said.gettext("prefill, to the first token"),
        "decode": said.gettext("decode steps together"),
        "detokenize": said.gettext("detokenize, all tokens"),
    }
    evidence = tuple(
        Evidence(names[name], "—" if ms is None else time_label(ms / 1e3), Basis.MEASURED)
        for name, ms in times.items()
    )
    if any(ms is None for ms in times.values()):
        return Finding(
            Verdict.WRONG,
            said.gettext("One of the five stations took no time of its own in this engine."),
            evidence,
        )
    if not bench.info.model["learned_positions"]:
        return Finding(
            Verdict.CAVEAT,
            said.gettext("All five were passed and timed just now, in this order."),
            evidence,
            said.gettext(
                "Positions are not folded in at the embedding: this model has RoPE, which turns "
                "queries and keys in every layer. And detokenizing happens for each token as it "
                "comes, not once at the end."
            ),
        )
    return Finding(
        Verdict.RIGHT,
        said.gettext("All five were passed and timed just now, in this order."),
        evidence,
    )


def _station_ms(run: Run) -> dict[str, float | None]:
    """Milliseconds of each station; None where there was none."""
    prefill = [step for step in run.steps if step.phase == "prefill"]
    decode = [step for step in run.steps if step.phase == "decode"]
    embeds = [step.stages_ms["embed"] for step in prefill if "embed" in step.stages_ms]
    embed = sum(embeds) if embeds else None
    return {
        "tokenize": None if run.accepted is None else run.accepted.tokenize_ms,
        "embed": embed,
        "prefill": sum(s.time_ms for s in prefill) - (embed or 0.0) if prefill else None,
        "decode": sum(s.time_ms for s in decode) if decode else None,
        "detokenize": sum(t.detokenize_ms for t in run.tokens) if run.tokens else None,
    }


@dataclass(frozen=True, slots=True)
class Split:
    """Causes by which of the two times they slow more, if either; ``both``: those of them that
    slow the other as well."""

    start: tuple[str, ...]
    stream: tuple[str, ...]
    both: tuple[str, ...]
    neither: tuple[str, ...]


async def first_question(bench: Bench) -> Finding:
    """C25: does the question tell causes of slowness apart?"""
    said = bench.said
    split = await anyio.to_thread.run_sync(split_causes)
    source = said.gettext(
        "each cause turned on in turn at a strength in its middle, {model}"
    ).format(model="llama-3.1-8b, h100-sxm, 1,000 → 200")

    def row(name: str, causes: tuple[str, ...]) -> Evidence:
        return Evidence(name, str(len(causes)), Basis.PREDICTED, source)

    evidence = (
        row(said.gettext("causes that slow the start more"), split.start),
        row(said.gettext("causes that slow the stream more"), split.stream),
        row(said.gettext("of these, causes that slow both"), split.both),
        row(said.gettext("causes that slow neither by much"), split.neither),
    )
    if not (split.start and split.stream):
        return Finding(
            Verdict.WRONG,
            said.gettext("No two causes are told apart by it here."),
            evidence,
        )
    if split.both:
        return Finding(
            Verdict.CAVEAT,
            said.gettext(
                "It is the right first question: most causes slow one of the two times more "
                "than the other, so the answer rules out about half of them."
            ),
            evidence,
            said.gettext(
                "Many causes slow both times, one of them more, and a long answer is slow in "
                "neither: the second question is how far each time is from what is typical."
            ),
        )
    return Finding(
        Verdict.RIGHT,
        said.gettext("Every cause slows one of the two times and leaves the other."),
        evidence,
    )


def split_causes() -> Split:
    """What each known cause slows, turned on alone on a usual deployment."""
    found: dict[str, list[str]] = {"start": [], "stream": [], "both": [], "neither": []}
    asked = Observation(CELL, ttft=1.0, itl=1.0)  # its times are not looked at
    expected, *others = hypotheses(CELL)
    usual = expected.predict(asked, 1.0)
    for cause in others:
        times = cause.predict(asked, cause.strengths[len(cause.strengths) // 2])
        start, stream = times.ttft / usual.ttft, times.itl / usual.itl
        if min(start, stream) < 1 / SLOWER:
            continue  # it makes the answer faster
        if max(start, stream) < SLOWER:
            found["neither"].append(cause.name)
            continue
        found["start" if start > stream else "stream"].append(cause.name)
        if min(start, stream) >= SLOWER:
            found["both"].append(cause.name)
    return Split(**{name: tuple(causes) for name, causes in found.items()})


CHECKS: dict[str, Check] = {"C19": stations, "C25": first_question}
