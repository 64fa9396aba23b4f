"""Checks of what the first lesson takes apart: one token, appended, and again."""

from __future__ import annotations

import math

from engine.errors import EngineError
from engine.inference.messages import Generate
from webapp.claims.bench import Bench, Run, new_id
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.lessons.lesson import Basis

PROMPT = "The capital of France is"
TOKENS = 6


async def check_loop(bench: Bench) -> Finding:
    """C01: the service's own answer, and the same loop turned by hand beside it.

    By hand, each token comes from one look at the text so far and nothing else: if every one is the
    token that the service gave, the loop is all there is.
    """
    asked = Generate(new_id(), prompt=PROMPT, max_tokens=TOKENS, ignore_eos=True)
    run = await bench.generate(asked)
    by_hand = await _by_hand(bench, run)
    same = sum(
        token.id == likeliest for token, (likeliest, _) in zip(run.tokens, by_hand, strict=True)
    )
    said = bench.said
    steps = len(run.steps)
    values = {"steps": steps, "tokens": len(run.tokens), "same": same}
    if steps >= len(run.tokens) and same == len(run.tokens):
        verdict = Verdict.RIGHT
        sentence = said.gettext(
            "The model ran {steps} times for {tokens} tokens, and looking at the text so far, one "
            "token at a time, gave the same {same} tokens."
        )
    elif steps >= len(run.tokens) and same * 2 > len(run.tokens):
        verdict = Verdict.CAVEAT
        sentence = said.gettext(
            "The model ran {steps} times for {tokens} tokens. Turned by hand in float32, {same} of "
            "them came out the same: the service rounds its numbers more, and two tokens were "
            "nearly as likely."
        )
    else:
        verdict = Verdict.WRONG
        sentence = said.gettext(
            "The model ran {steps} times for {tokens} tokens; turned by hand, {same} of them came "
            "out the same."
        )
    return Finding(
        verdict,
        sentence.format(**values),
        _evidence(bench, run, by_hand),
        said.gettext(
            "What the model computes is not one token but a probability for every token of its "
            "vocabulary; choosing one of them is the program's part. With speculative decoding one "
            "run can settle several tokens."
        ),
    )


async def _by_hand(bench: Bench, run: Run) -> list[tuple[int, float]]:
    """The likeliest token and its probability, at each place of the answer."""
    if run.accepted is None:
        raise EngineError("the engine did not take the prompt in")
    found: list[tuple[int, float]] = []
    for count in range(len(run.tokens)):
        ids = [*run.accepted.prompt_token_ids, *run.token_ids[:count]]
        answer = await bench.probe(
            "next-token", {"token_ids": ids, "position": len(ids) - 1, "k": 1}
        )
        top = answer["top"][0]
        found.append((int(top["id"]), math.exp(float(top["logprob"]))))
    return found


def _evidence(bench: Bench, run: Run, by_hand: list[tuple[int, float]]) -> tuple[Evidence, ...]:
    said = bench.said
    answer = "|".join(token.piece.replace("\n", "↵") for token in run.tokens)
    probabilities = " ".join(f"{probability:.2f}" for _, probability in by_hand)
    return (
        Evidence(said.gettext("answer, token by token"), f"{PROMPT}|{answer}", Basis.MEASURED),
        Evidence(said.gettext("runs of the model"), str(len(run.steps)), Basis.MEASURED),
        Evidence(
            said.gettext("probability of the likeliest token, each time"),
            probabilities,
            Basis.MEASURED,
        ),
    )


CHECKS: dict[str, Check] = {"C01": check_loop}
