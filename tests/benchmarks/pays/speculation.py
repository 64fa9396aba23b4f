"""Speculative decoding against plain decoding: the same tokens, how many drafts are right, and
whether they save time, on text that repeats itself and on free text.

Tokens are compared in float32 on all prompts: plain decoding runs them one at a time, drafting in
batches, because what it says may depend on neither. Times are of single requests on some of the
prompts, which all methods run in turn, plain decoding among them, so that what slows the machine
down for a while slows all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from engine.inference.loading import LoadedModel
from engine.inference.messages import Done, Generate, Token
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from tests.benchmarks.pays.driver import Driver, Taken, greedy
from tests.benchmarks.pays.outcomes import KINDS, PLAIN, Answer, Outcome, Timed
from tests.benchmarks.pays.prompts import PROMPTS, REPETITIVE
from tests.benchmarks.pays.report import Section, Table, Verdict

DRAFT_TOKENS = 4
Say = Callable[[str], None]
Methods = dict[str, SpeculationSettings | None]


@dataclass(frozen=True, slots=True)
class SpeculationPlan:
    """``prompts`` as (kind, text). Drafting runs ``together`` of them at once in float32; every
    ``timed_every``-th of each kind is timed in ``timed_in``."""

    prompts: tuple[tuple[str, str], ...] = PROMPTS
    max_tokens: int = 48
    together: int = 25
    timed_in: str = "bfloat16"
    timed_every: int = 3


FULL = SpeculationPlan()
QUICK = SpeculationPlan((*PROMPTS[:2], *PROMPTS[-2:]), 8, together=3, timed_every=1)


def methods_of(num_layers: int) -> Methods:
    """Plain decoding and the methods, by the names that the tables use."""
    ngram = SpeculationSettings(SpeculationMethod.NGRAM, DRAFT_TOKENS)
    methods: Methods = {PLAIN: None, "ngram": ngram}
    for part in (1 / 2, 5 / 6):
        layer = max(1, min(num_layers - 1, round(num_layers * part)))
        settings = SpeculationSettings(SpeculationMethod.EARLY_EXIT, DRAFT_TOKENS, layer)
        methods[f"early exit after {layer} of {num_layers} layers"] = settings
    return methods


def measure(model: LoadedModel, plan: SpeculationPlan, say: Say) -> Section:
    """Run the part. The model must have lanes for float32 and ``plan.timed_in`` open."""
    methods = methods_of(model.config.num_layers)
    driver = Driver(model, max_running=plan.together)
    answers: dict[str, list[Answer]] = {}
    for name, settings in methods.items():
        say(f"speculation: float32, {name}")
        at_once = 1 if settings is None else plan.together
        answers[name] = _answers(driver, plan, settings, at_once)
    return section(plan, outcomes_of(plan, answers), _timed(driver, plan, methods, say))


def outcomes_of(plan: SpeculationPlan, answers: dict[str, list[Answer]]) -> list[Outcome]:
    """Each method beside plain decoding, by kind of text; answers in the order of the prompts."""
    kinds = [kind for kind, _ in plan.prompts]

    def of_kind(method: str, kind: str) -> list[Answer]:
        return [a for a, its_kind in zip(answers[method], kinds, strict=True) if its_kind == kind]

    return [
        Outcome(method, kind, of_kind(PLAIN, kind), of_kind(method, kind))
        for method in answers
        if method != PLAIN
        for kind in KINDS
    ]


def _generate(
    plan: SpeculationPlan, number: int, dtype: str, settings: SpeculationSettings | None
) -> Generate:
    prompt = plan.prompts[number][1]
    return greedy(str(number), plan.max_tokens, prompt=prompt, weights=dtype, speculation=settings)


def _answers(
    driver: Driver, plan: SpeculationPlan, settings: SpeculationSettings | None, at_once: int
) -> list[Answer]:
    """Answers to all prompts in float32, so many at once."""
    answers: list[Answer] = []
    numbers = range(len(plan.prompts))
    for first in range(0, len(plan.prompts), at_once):
        batch = numbers[first : first + at_once]
        for number in batch:
            driver.submit(_generate(plan, number, "float32", settings))
        taken = list(driver.drain())
        answers += [_answer(taken, str(number)) for number in batch]
    return answers


def _answer(taken: Iterable[Taken], request_id: str) -> Answer:
    token_ids: list[int] = []
    steps = -1
    drafted = accepted = 0
    for step in taken:
        new = [token.id for token in step.of(Token) if token.request_id == request_id]
        token_ids += new
        steps += bool(new)
        for done in step.of(Done):
            if done.request_id == request_id:
                drafted, accepted = done.drafted_tokens, done.accepted_tokens
    return Answer(tuple(token_ids), steps, drafted, accepted)


def _timed(driver: Driver, plan: SpeculationPlan, methods: Methods, say: Say) -> list[Timed]:
    numbers = _timed_prompts(plan)
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    answers: dict[str, list[Answer]] = {name: [] for name in methods}
    order = list(methods.items())
    for _, settings in order:  # the first use of each is not timed
        first = replace(_generate(plan, 0, plan.timed_in, settings), max_tokens=4)
        for _ in driver.run(first):
            pass
    for turn, number in enumerate(numbers):
        say(f"speculation: {plan.timed_in}, prompt {turn + 1} of {len(numbers)}")
        begin = turn % len(order)
        for name, settings in (*order[begin:], *order[:begin]):
            taken = list(driver.run(_generate(plan, number, plan.timed_in, settings)))
            answers[name].append(_answer(taken, str(number)))
            seconds[name].append(_decode_seconds(taken))
    chosen = replace(plan, prompts=tuple(plan.prompts[number] for number in numbers))
    kinds = [kind for kind, _ in chosen.prompts]

    def of_kind(method: str, kind: str) -> tuple[float, ...]:
        pairs = zip(seconds[method], kinds, strict=True)
        return tuple(time for time, its_kind in pairs if its_kind == kind)

    return [
        Timed(outcome, of_kind(PLAIN, outcome.kind), of_kind(outcome.method, outcome.kind))
        for outcome in outcomes_of(chosen, answers)
    ]


def _timed_prompts(plan: SpeculationPlan) -> list[int]:
    """Numbers of the prompts that are timed, spread over each kind."""
    of_kind = (
        [number for number, (its_kind, _) in enumerate(plan.prompts) if its_kind == kind]
        for kind in KINDS
    )
    return [number for numbers in of_kind for number in numbers[:: plan.timed_every]]


def _decode_seconds(taken: Sequence[Taken]) -> float:
    """Of the steps after the one that gave the first token."""
    first = next(index for index, step in enumerate(taken) if step.of(Token))
    return sum(step.seconds for step in taken[first + 1 :])


def section(plan: SpeculationPlan, exact: Sequence[Outcome], timed: Sequence[Timed]) -> Section:
    """The part's section from what was compared in float32 and what was timed."""
    methods = dict.fromkeys(outcome.method for outcome in exact)
    return Section(
        part="speculation",
        title="Speculation: the same text, sometimes sooner",
        how=f"{len(plan.prompts)} prompts, greedy, {plan.max_tokens} tokens each, {DRAFT_TOKENS} "
        "drafts a step at most. In float32 all prompts are answered by plain decoding alone and "
        f"by drafting in batches of up to {plan.together}. In {plan.timed_in} single requests are "
        f"timed, {len(timed[0].seconds)} of each kind, the methods taking turns on each prompt. "
        "Speed-up: decode time after the first token, plain over drafting, of all prompts "
        "together; in brackets what a quarter and three quarters of the prompts stay below.",
        tables=[
            Table("Tokens, in float32:", _COLUMNS, [_row(outcome) for outcome in exact]),
            Table(
                f"Times, in {plan.timed_in}:",
                (*_COLUMNS, "speed-up"),
                [_timed_row(each) for each in timed],
            ),
        ],
        remarks=[_slower(timed), *_parted(plan, timed)],
        verdicts=[
            *(_identical(method, exact) for method in methods),
            *(_pays(each) for each in timed if each.outcome.kind == REPETITIVE),
        ],
        data={
            "max_tokens": plan.max_tokens,
            "float32": [outcome.to_document() for outcome in exact],
            "timed_in": plan.timed_in,
            "timed": [each.to_document() for each in timed],
        },
    )


_COLUMNS = ("method", "text", "same tokens", "drafts accepted", "tokens per step")


def _row(outcome: Outcome) -> tuple[str, ...]:
    acceptance = outcome.acceptance
    return (
        outcome.method,
        outcome.kind,
        f"{outcome.same} of {len(outcome.plain)}",
        "—" if acceptance is None else f"{acceptance:.0%}",
        f"{outcome.tokens_per_step:.2f}",
    )


def _timed_row(timed: Timed) -> tuple[str, ...]:
    low, high = timed.quarter_points
    return (*_row(timed.outcome), f"{timed.speed_up:.2f}x ({low:.2f} – {high:.2f})")


def _identical(method: str, exact: Sequence[Outcome]) -> Verdict:
    mine = [outcome for outcome in exact if outcome.method == method]
    same, prompts = sum(o.same for o in mine), sum(len(o.plain) for o in mine)
    claim = f"{method}: the same greedy tokens as plain decoding, in float32"
    return Verdict(claim, same == prompts, f"{same} of {prompts} prompts")


def _pays(timed: Timed) -> Verdict:
    return Verdict(
        f"{timed.outcome.method}: faster than plain on {timed.outcome.kind} text",
        timed.speed_up > 1,
        f"{timed.speed_up:.2f}x with {timed.outcome.tokens_per_step:.2f} tokens per step",
    )


def _slower(timed: Sequence[Timed]) -> str:
    slower = [
        f"{each.outcome.method} on {each.outcome.kind} text ({each.speed_up:.2f}x)"
        for each in timed
        if each.quarter_points[1] < 1
    ]
    if not slower:
        return "No method slowed down three quarters of the prompts of a kind."
    return (
        f"It slows down at least three of four prompts: {'; '.join(slower)}. There the steps that "
        "drafts save cost less than making and verifying the drafts."
    )


def _parted(plan: SpeculationPlan, timed: Sequence[Timed]) -> list[str]:
    pairs = sum(len(each.seconds) for each in timed)
    parted = pairs - sum(each.outcome.same for each in timed)
    if not parted:
        return []
    return [
        f"In {plan.timed_in}, {parted} of {pairs} answers differ from plain decoding: verifying "
        "several tokens at once adds in another order, and near ties then fall the other way."
    ]
