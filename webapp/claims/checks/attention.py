"""C08: attention's formula, computed again from the running model's own queries, keys, values."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webapp.claims.bench import Bench
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.lessons.lesson import Basis

PROMPT = "The capital of France is Paris. The capital of Italy is"
_LAYER, _HEAD = 0, 0
TOLERANCE = 0.01
"""Keys and values travel as float16, which keeps three digits."""


@dataclass(frozen=True, slots=True)
class Redone:
    """One query's attention computed again. ``weights`` and ``mixed``: the largest difference
    from the model's own, absolute and as a share of the vector's largest number."""

    weights: float
    mixed: float


def unpack_rows(packed: dict[str, Any]) -> list[tuple[float, ...]]:
    """A packed ``[t, d]`` array as rows."""
    letter = "e" if packed["dtype"] == "float16" else "f"
    row = struct.Struct(f"<{packed['shape'][1]}{letter}")
    return list(row.iter_unpack(base64.b64decode(packed["data"])))


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    """The sum of products."""
    return sum(x * y for x, y in zip(a, b, strict=True))


def redo(detail: dict[str, Any], scale: float) -> Redone:
    """softmax(q · K x ``scale``, masked) V from an answer of the probe "attention-detail"."""
    q: Sequence[float] = detail["q_rotated"]
    keys, values = unpack_rows(detail["keys_rotated"]), unpack_rows(detail["values"])
    scores = [
        scale * dot(q, key) if seen else -math.inf
        for key, seen in zip(keys, detail["visible"], strict=True)
    ]
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    weights = [power / sum(powers) for power in powers]
    mixed = [dot(weights, column) for column in zip(*values, strict=True)]
    largest = max(abs(number) for number in detail["mixed"]) or 1.0
    return Redone(
        max(abs(a - b) for a, b in zip(weights, detail["weights"], strict=True)),
        max(abs(a - b) for a, b in zip(mixed, detail["mixed"], strict=True)) / largest,
    )


def judge(ours: Redone, theirs: Redone, *, one_head: bool) -> Verdict:
    """``ours`` by the root of the head's size, ``theirs`` by that of the hidden size.

    Right where the article's own scale gives the model's numbers, and there is one head only;
    wrong where neither does, so that the formula itself would not hold.
    """
    if max(theirs.weights, theirs.mixed) <= TOLERANCE:
        return Verdict.RIGHT if one_head else Verdict.CAVEAT
    return Verdict.CAVEAT if max(ours.weights, ours.mixed) <= TOLERANCE else Verdict.WRONG


async def check_formula(bench: Bench) -> Finding:
    """Recomputes a query of the running model with both scales, and runs it with the other one."""
    model = bench.info.model
    hidden, heads, size = model["hidden_size"], model["num_attention_heads"], model["head_dim"]
    tokens = await bench.probe("tokenize", {"text": PROMPT})
    ids = [token["id"] for token in tokens["tokens"]]
    last = len(ids) - 1
    detail = await bench.probe(
        "attention-detail", {"token_ids": ids, "layer": _LAYER, "head": _HEAD, "query": last}
    )
    other = await bench.probe(
        "comparison", {"token_ids": ids, "ablations": ["hidden-scale"], "k": 1, "max_tokens": 1}
    )
    ours, theirs = redo(detail, size**-0.5), redo(detail, hidden**-0.5)
    verdict = judge(ours, theirs, one_head=heads == 1)
    return Finding(
        verdict,
        _sentence(bench, verdict),
        _evidence(bench, ours, theirs, detail, other),
        _caveat(bench, verdict),
    )


def _sentence(bench: Bench, verdict: Verdict) -> str:
    said = bench.said
    if verdict is Verdict.WRONG:
        return said.gettext("Neither scale gives the weights that the running model computed.")
    if verdict is Verdict.RIGHT:
        return said.gettext("The formula as it stands gives the running model's own numbers.")
    return said.gettext(
        "softmax(q·k · scale) · v gives the running model's own numbers, with the root of one "
        "head's size, not of the hidden size."
    )


def _caveat(bench: Bench, verdict: Verdict) -> str:
    if verdict is not Verdict.CAVEAT:
        return ""
    model = bench.info.model
    return bench.said.gettext(
        "Each of {heads} heads divides by √{head} = {right}, not by √{hidden} = {wrong}. The "
        "sketch also leaves out the causal mask and the matrix that joins the heads."
    ).format(
        heads=model["num_attention_heads"],
        head=model["head_dim"],
        right=f"{math.sqrt(model['head_dim']):.4g}",
        hidden=model["hidden_size"],
        wrong=f"{math.sqrt(model['hidden_size']):.4g}",
    )


def _evidence(
    bench: Bench, ours: Redone, theirs: Redone, detail: dict[str, Any], other: dict[str, Any]
) -> tuple[Evidence, ...]:
    said = bench.said
    before, after = (other[side]["top"][0] for side in ("as_it_is", "ablated"))
    next_tokens = said.gettext("{before} ({p}), with the article's scale {after} ({q})").format(
        before=repr(before["piece"]),
        p=f"{math.exp(before['logprob']):.0%}",
        after=repr(after["piece"]),
        q=f"{math.exp(after['logprob']):.0%}",
    )
    kl = sum(other["kl"]) / len(other["kl"])
    return (
        Evidence(
            said.gettext("the model's own scale, read off its scores"),
            f"{detail['scale']:.4g} = 1/{1 / detail['scale']:.4g}",
            Basis.MEASURED,
        ),
        Evidence(
            said.gettext("weights with √head_dim: largest difference"),
            f"{ours.weights:.2g}",
            Basis.MEASURED,
        ),
        Evidence(
            said.gettext("weights with √hidden: largest difference"),
            f"{theirs.weights:.2g}",
            Basis.MEASURED,
        ),
        Evidence(said.gettext("next token after “… Italy is”"), next_tokens, Basis.MEASURED),
        Evidence(
            said.gettext("distance of the distributions (KL), mean over positions"),
            f"{kl:.2f} nat",
            Basis.MEASURED,
        ),
    )


CHECKS: dict[str, Check] = {"C08": check_formula}
