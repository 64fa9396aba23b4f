"""Checks of what the article says about serving many people: C20."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.catalog.units import significant, time_label
from engine.inference.messages import Generate
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from engine.simulator.deployment import Deployment
from engine.simulator.features import Features
from engine.simulator.run import Batch, run_batch
from webapp.claims.bench import Bench, Run, new_id
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.i18n import Texts
from webapp.lessons.lesson import Basis

TOKENS = 48
PEOPLE = 8
DOZENS = 36
GAIN = 2.0
"""How many times the tokens a second that people together get is plainly more than one gets."""
BEGINNING = (
    "You are the harbour's clerk. Answer in one short sentence. The harbour opens at six, closes "
    "at ten. Boats pay by their length. The ferry leaves every hour from the northern pier. "
)
LIST = "red boat, blue boat, red boat, blue boat, red boat, blue boat, red boat,"
MODEL, DEVICE = "llama-3.1-8b", "h100-sxm"


@dataclass(frozen=True, slots=True)
class Served:
    """What was measured: tokens a second of one person and of all, the drafts, the prefix."""

    alone: float
    together: float
    drafted: int
    accepted: int
    same: bool
    plain_ms: float
    drafts_ms: float
    cached_tokens: int


def _ask(prompt: str, tokens: int = TOKENS, *, prefix: bool = False) -> Generate:
    return Generate(
        new_id(), prompt=prompt, max_tokens=tokens, ignore_eos=True, prefix_cache=prefix
    )


def _rate(runs: Sequence[Run]) -> float:
    """Tokens a second of all runs that were sent at once, until the last is done."""
    last = max(run.tokens[-1].time_ms for run in runs)
    return sum(len(run.tokens) for run in runs) / last * 1e3


def decoding_ms(run: Run) -> float:
    """Milliseconds from the first token to the last."""
    return run.tokens[-1].time_ms - run.tokens[0].time_ms


async def measure(bench: Bench) -> Served:
    """One person, eight people, drafts, and two questions with one beginning."""
    alone = await bench.generate(_ask(f"1. {BEGINNING}"))
    prompts = [f"{number}. {BEGINNING}" for number in range(1, PEOPLE + 1)]
    together = await asyncio.gather(*(bench.generate(_ask(prompt)) for prompt in prompts))
    plain = await bench.generate(_ask(LIST))
    speculation = SpeculationSettings(SpeculationMethod.NGRAM)
    asked = Generate(
        new_id(), prompt=LIST, max_tokens=TOKENS, ignore_eos=True, speculation=speculation
    )
    drafts = await bench.generate(asked)
    await bench.generate(_ask(f"{BEGINNING}When does the ferry leave?", 2, prefix=True))
    second = await bench.generate(_ask(f"{BEGINNING}When does it close?", 2, prefix=True))
    return Served(
        alone=_rate([alone]),
        together=_rate(together),
        drafted=drafts.done.drafted_tokens if drafts.done else 0,
        accepted=drafts.done.accepted_tokens if drafts.done else 0,
        same=plain.token_ids == drafts.token_ids,
        plain_ms=decoding_ms(plain),
        drafts_ms=decoding_ms(drafts),
        cached_tokens=second.done.cached_tokens if second.done else 0,
    )


async def check_c20(bench: Bench) -> Finding:
    """Batching, drafts and shared blocks on the engine; dozens of people by prediction."""
    deployment = Deployment(MODEL, DEVICE, times="typical")
    times = tuple(
        run_batch(deployment, Batch(people, 512, 128), Features()).tpot or 0.0
        for people in (1, DOZENS)
    )
    return judge_c20(await measure(bench), times, bench.said)


def judge_c20(found: Served, tpot: tuple[float, ...], said: Texts) -> Finding:
    """The verdict; ``tpot`` are predicted seconds between tokens for one and for dozens."""
    gain = found.together / found.alone
    measured = Basis.MEASURED
    evidence = (
        Evidence(
            said.gettext("one person, and {n} people together").format(n=PEOPLE),
            f"{significant(found.alone)} → {significant(found.together)} tokens/s",
            measured,
        ),
        Evidence(
            said.gettext("drafts accepted, of drafts"),
            f"{found.accepted} / {found.drafted}",
            measured,
        ),
        Evidence(
            said.gettext("decoding without drafts, and with them"),
            f"{time_label(found.plain_ms / 1e3)} → {time_label(found.drafts_ms / 1e3)}",
            measured,
        ),
        Evidence(
            said.gettext("tokens of a shared beginning found in the cache"),
            str(found.cached_tokens),
            measured,
        ),
        Evidence(
            said.gettext("time between tokens, for one and for {n} people").format(n=DOZENS),
            " → ".join(map(time_label, tpot)),
            Basis.PREDICTED,
            said.gettext(
                "the simulator, typical times: Llama-3.1-8B on one H100, 512 + 128 tokens"
            ),
        ),
    )
    if not found.same:
        sentence = said.gettext("With drafts another text came out than without: that must not be.")
        return Finding(Verdict.WRONG, sentence, evidence)
    if gain < GAIN:
        sentence = said.gettext(
            "Together, {n} people got only {gain} times the tokens that one gets alone here."
        ).format(n=PEOPLE, gain=significant(gain, 2))
        return Finding(Verdict.WRONG, sentence, evidence)
    sentence = said.gettext(
        "Here {n} people together get {gain} times the tokens that one gets alone, as a step reads "
        "the weights once for all of them."
    ).format(n=PEOPLE, gain=significant(gain, 2))
    caveat = said.gettext(
        "Batching and shared memory make room for people. Drafts do something else: they shorten "
        "one person's answer, where they are guessed well and the batch is small. And "
        "it need not be a small model that drafts: here a look-up in the text did."
    )
    helps = found.accepted > 0 and found.drafts_ms < found.plain_ms and found.cached_tokens > 0
    return Finding(Verdict.RIGHT if helps else Verdict.CAVEAT, sentence, evidence, caveat)


CHECKS: Mapping[str, Check] = {"C20": check_c20}
