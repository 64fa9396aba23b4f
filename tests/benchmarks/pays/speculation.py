"""Speculative decoding against plain decoding: the same tokens, how many drafts are right, and
whether they save time, on text that repeats itself and on free text.

Every prompt is run by all methods in turn, plain decoding among them, so that what slows the
machine down for a while slows all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from engine.inference.loading import LoadedModel
from engine.inference.messages import Done, Token
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from tests.benchmarks.pays.driver import Driver, Taken, greedy
from tests.benchmarks.pays.prompts import FREE, PROMPTS, REPETITIVE
from tests.benchmarks.pays.report import Section, Table, Verdict

PLAIN = "plain"
DRAFT_TOKENS = 4
KINDS = (REPETITIVE, FREE)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SpeculationPlan:
    """``prompts`` as (kind, text). All run in float32, where tokens are compared; every
    ``timed_every``-th of each kind also runs in ``timed``, which times are told for too."""

    prompts: tuple[tuple[str, str], ...] = PROMPTS
    max_tokens: int = 48
    timed: str = "bfloat16"
    timed_every: int = 2


FULL = SpeculationPlan()
QUICK = SpeculationPlan((*PROMPTS[:2], *PROMPTS[-2:]), 8, timed_every=1)


@dataclass(frozen=True, slots=True)
class Run:
    """One answer. ``seconds`` and ``steps`` are those after the first token."""

    prompt: int
    kind: str
    method: str
    dtype: str
    token_ids: tuple[int, ...]
    seconds: float
    steps: int
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A method beside plain decoding on the same prompts, run in turn with it."""

    method: str
    dtype: str
    kind: str
    plain: Sequence[Run]
    drafting: Sequence[Run]

    @property
    def same(self) -> int:
        """Prompts that were answered with the same tokens."""
        pairs = zip(self.plain, self.drafting, strict=True)
        return sum(plain.token_ids == other.token_ids for plain, other in pairs)

    @property
    def acceptance(self) -> float | None:
        """The share of drafts that were right; None if nothing was drafted."""
        drafted = sum(run.drafted for run in self.drafting)
        return sum(run.accepted for run in self.drafting) / drafted if drafted else None

    @property
    def tokens_per_step(self) -> float:
        tokens = sum(len(run.token_ids) - 1 for run in self.drafting)
        return tokens / sum(run.steps for run in self.drafting)

    @property
    def speed_up(self) -> float:
        """Of all decode time together."""
        plain = sum(run.seconds for run in self.plain)
        return plain / sum(run.seconds for run in self.drafting)

    @property
    def speed_ups(self) -> list[float]:
        """Of each prompt, slowest first."""
        pairs = zip(self.plain, self.drafting, strict=True)
        return sorted(plain.seconds / other.seconds for plain, other in pairs)

    @property
    def quarter_points(self) -> tuple[float, float]:
        """The speed-ups that a quarter and three quarters of the prompts stay below."""
        low, _, high = statistics.quantiles(self.speed_ups, n=4, method="inclusive")
        return low, high

    def to_document(self) -> dict[str, object]:
        return {
            "method": self.method,
            "dtype": self.dtype,
            "kind": self.kind,
            "prompts": len(self.plain),
            "same": self.same,
            "acceptance": self.acceptance,
            "tokens_per_step": self.tokens_per_step,
            "speed_up": self.speed_up,
            "speed_ups": self.speed_ups,
        }


def methods_of(num_layers: int) -> dict[str, SpeculationSettings | None]:
    """Plain decoding and the methods, by the names that the tables use."""
    ngram = SpeculationSettings(SpeculationMethod.NGRAM, DRAFT_TOKENS)
    methods: dict[str, SpeculationSettings | None] = {PLAIN: None, "ngram": ngram}
    for part in (1 / 2, 5 / 6):
        layer = max(1, min(num_layers - 1, round(num_layers * part)))
        settings = SpeculationSettings(SpeculationMethod.EARLY_EXIT, DRAFT_TOKENS, layer)
        methods[f"early exit after {layer} of {num_layers} layers"] = settings
    return methods


def measure(model: LoadedModel, plan: SpeculationPlan, say: Say) -> Section:
    """Run the part. The model must have lanes for float32 and ``plan.timed`` open."""
    methods = methods_of(model.config.num_layers)
    driver = Driver(model)
    runs: list[Run] = []
    for dtype, every in (("float32", 1), (plan.timed, plan.timed_every)):
        chosen = _every(plan.prompts, every)
        for name, settings in methods.items():  # a first use of each, untimed
            _run(driver, (-1, *plan.prompts[0]), 4, dtype, (name, settings))
        for turn, prompt in enumerate(chosen):
            say(f"speculation: {dtype}, prompt {turn + 1} of {len(chosen)}")
            order = list(methods.items())
            first = turn % len(order)
            for method in (*order[first:], *order[:first]):
                runs.append(_run(driver, prompt, plan.max_tokens, dtype, method))
    return section(plan, [name for name in methods if name != PLAIN], runs)


def _every(prompts: Sequence[tuple[str, str]], every: int) -> list[tuple[int, str, str]]:
    """Every so-many-th prompt of each kind, with its number."""
    numbered = [(number, *prompt) for number, prompt in enumerate(prompts)]
    return [p for kind in KINDS for p in [q for q in numbered if q[1] == kind][::every]]


def _run(
    driver: Driver,
    prompt: tuple[int, str, str],
    max_tokens: int,
    dtype: str,
    method: tuple[str, SpeculationSettings | None],
) -> Run:
    number, kind, text = prompt
    name, settings = method
    generate = greedy("run", max_tokens, prompt=text, weights=dtype, speculation=settings)
    taken = list(driver.run(generate))
    (done,) = taken[-1].of(Done)
    after_first = taken[_first_token(taken) + 1 :]
    return Run(
        prompt=number,
        kind=kind,
        method=name,
        dtype=dtype,
        token_ids=tuple(token.id for step in taken for token in step.of(Token)),
        seconds=sum(step.seconds for step in after_first),
        steps=len(after_first),
        drafted=done.drafted_tokens,
        accepted=done.accepted_tokens,
    )


def _first_token(taken: Sequence[Taken]) -> int:
    return next(index for index, step in enumerate(taken) if step.of(Token))


def outcomes(methods: Iterable[str], runs: Sequence[Run]) -> list[Outcome]:
    """By dtype, method and kind; runs of a prompt that the plain method also ran."""
    found: list[Outcome] = []
    for dtype in dict.fromkeys(run.dtype for run in runs):
        for method in methods:
            for kind in KINDS:
                mine = [run for run in runs if run.dtype == dtype and run.kind == kind]
                pair = (_by_prompt(mine, name) for name in (PLAIN, method))
                found.append(Outcome(method, dtype, kind, *pair))
    return found


def _by_prompt(runs: Sequence[Run], method: str) -> list[Run]:
    return sorted((r for r in runs if r.method == method), key=lambda run: run.prompt)


def section(plan: SpeculationPlan, methods: Sequence[str], runs: Sequence[Run]) -> Section:
    """The part's section from all runs of all methods."""
    found = outcomes(methods, runs)
    exact = [outcome for outcome in found if outcome.dtype == "float32"]
    timed = [outcome for outcome in found if outcome.dtype == plan.timed]
    return Section(
        part="speculation",
        title="Speculation: the same text, sometimes sooner",
        how=f"{len(plan.prompts)} prompts, greedy, {plan.max_tokens} tokens each, one request at a "
        f"time, {DRAFT_TOKENS} drafts a step at most; the methods take turns on each prompt. "
        f"All prompts in float32, of which tokens are compared; {len(timed[0].plain)} of each kind "
        f"in {plan.timed} as well. Speed-up: decode time after the first token, plain over "
        "drafting, of all prompts together; in brackets the quarter points of single prompts.",
        tables=[Table("", _COLUMNS, [_row(outcome) for outcome in found])],
        remarks=[_slower(found), *_parted(timed)],
        verdicts=[
            *(_identical(method, exact) for method in methods),
            *(_pays(outcome) for outcome in timed if outcome.kind == REPETITIVE),
        ],
        data={
            "max_tokens": plan.max_tokens,
            "outcomes": [outcome.to_document() for outcome in found],
            "runs": [asdict(run) for run in runs],
        },
    )


_COLUMNS = (
    "method",
    "computed in",
    "text",
    "prompts",
    "same tokens",
    "drafts accepted",
    "tokens per step",
    "speed-up",
)


def _row(outcome: Outcome) -> tuple[str, ...]:
    acceptance = outcome.acceptance
    low, high = outcome.quarter_points
    return (
        outcome.method,
        outcome.dtype,
        outcome.kind,
        str(len(outcome.plain)),
        f"{outcome.same} of {len(outcome.plain)}",
        "—" if acceptance is None else f"{acceptance:.0%}",
        f"{outcome.tokens_per_step:.2f}",
        f"{outcome.speed_up:.2f}x ({low:.2f} – {high:.2f})",
    )


def _identical(method: str, exact: Sequence[Outcome]) -> Verdict:
    mine = [outcome for outcome in exact if outcome.method == method]
    same, prompts = sum(o.same for o in mine), sum(len(o.plain) for o in mine)
    claim = f"{method}: the same greedy tokens as plain decoding, in float32"
    return Verdict(claim, same == prompts, f"{same} of {prompts} prompts")


def _pays(outcome: Outcome) -> Verdict:
    return Verdict(
        f"{outcome.method}: faster than plain on {outcome.kind} text, in {outcome.dtype}",
        outcome.speed_up > 1,
        f"{outcome.speed_up:.2f}x with {outcome.tokens_per_step:.2f} tokens per step",
    )


def _slower(found: Sequence[Outcome]) -> str:
    slower = [
        f"{o.method} on {o.kind} text in {o.dtype} ({o.speed_up:.2f}x)"
        for o in found
        if o.quarter_points[1] < 1
    ]
    if not slower:
        return "No method slowed down three quarters of the prompts of a kind."
    return (
        f"It slows down at least three of four prompts: {'; '.join(slower)}. There the steps that "
        "drafts save cost less than making and verifying the drafts."
    )


def _parted(timed: Sequence[Outcome]) -> list[str]:
    parted = sum(len(o.plain) - o.same for o in timed)
    if not parted:
        return []
    dtype, pairs = timed[0].dtype, sum(len(o.plain) for o in timed)
    return [
        f"In {dtype}, {parted} of {pairs} answers differ from plain decoding: verifying several "
        "tokens at once adds in another order, and near ties then fall the other way."
    ]
