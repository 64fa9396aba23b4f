"""Checks of the claims about embeddings and positions: C05, C06, C07."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import anyio.to_thread
import numpy as np

from engine.catalog.units import bytes_label, significant
from engine.catalog.words import word_vectors
from webapp.claims.bench import Bench
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.lessons.lesson import Basis

TWICE = "The cat sat on the mat because the cat was tired."
NEAR = 50
SHIFT = 1_000
GLOVE = "GloVe 6B, 50 d"

_Pairs = Sequence[Mapping[str, Any]]


async def _ids(bench: Bench, text: str) -> list[int]:
    document = await bench.probe("tokenize", {"text": text})
    return [token["id"] for token in document["tokens"]]


def _measured(name: str, value: str, source: str = "") -> Evidence:
    return Evidence(name, value, Basis.MEASURED, source)


def _of_file(name: str, value: str, bench: Bench) -> Evidence:
    return Evidence(name, value, Basis.PUBLISHED, bench.said.gettext("the model's own file"))


async def row_is_looked_up(bench: Bench) -> Finding:
    """C05: the row that is copied is exactly what enters the first layer."""
    _ = bench.said.gettext
    ids = await _ids(bench, TWICE)
    rows = await bench.probe("embeddings", {"token_ids": sorted(set(ids))})
    norms = {row["id"]: row["norm"] for row in rows["rows"]}
    entering = (await bench.probe("hidden-norms", {"token_ids": ids}))["residual"][0]
    ratios = [entered / norms[token] for token, entered in zip(ids, entering, strict=True)]
    same = all(math.isclose(ratio, 1, rel_tol=1e-4) for ratio in ratios)
    scaled = max(ratios) - min(ratios) < 1e-3 * max(ratios)
    vocabulary, width = rows["table_shape"]
    evidence = (
        _of_file(_("shape of the table"), f"[{vocabulary:,}, {width:,}]", bench),
        _of_file(_("one row in the file"), bytes_label(rows["row_bytes"]), bench),
        _of_file(_("the whole table"), bytes_label(rows["table_bytes"]), bench),
        Evidence(_("arithmetic of a look-up"), f"{rows['flops']} FLOP", Basis.COMPUTED),
        _measured(
            _("length of what enters the first layer ÷ length of the row"),
            f"{min(ratios):.4f} … {max(ratios):.4f}",
        ),
    )
    if same:
        sentence = _("What enters the first layer is the row itself, for every token tried.")
        return Finding(Verdict.RIGHT, sentence, evidence)
    if scaled:
        sentence = _("The row is looked up, and then this model scales it by a constant.")
        return Finding(Verdict.CAVEAT, sentence, evidence)
    sentence = _("What enters the first layer is not the row of the table.")
    return Finding(Verdict.WRONG, sentence, evidence)


async def _model_places(bench: Bench, word: str, wanted: Sequence[str]) -> dict[str, int | None]:
    """The place of words among the neighbours of ``word`` in the model's table, from 1."""
    tokens = await _ids(bench, f" {word}")
    if len(tokens) != 1:
        return dict.fromkeys(wanted)
    near = await bench.probe("neighbours", {"token_id": tokens[0], "k": NEAR})
    names = [item["piece"].strip().lower() for item in near["neighbours"]]
    return {other: names.index(other) + 1 if other in names else None for other in wanted}


def _glove_places(word: str, wanted: Sequence[str]) -> dict[str, int | None]:
    names = [item.word for item in word_vectors().near([word], k=NEAR)]
    return {other: names.index(other) + 1 if other in names else None for other in wanted}


async def similar_words_are_near(bench: Bench) -> Finding:
    """C06: the article's own examples, looked up in both tables."""
    _ = bench.said.gettext
    examples = (("king", ("queen",)), ("python", ("snake", "javascript")))
    tables = {
        _("the model's own table"): [await _model_places(bench, *item) for item in examples],
        GLOVE: [await anyio.to_thread.run_sync(_glove_places, *item) for item in examples],
    }
    evidence: list[Evidence] = []
    held = 0
    for table, found in tables.items():
        for (word, others), places in zip(examples, found, strict=True):
            for other in others:
                place = places[other]
                held += place is not None
                name = _("{other} among the neighbours of {word}, {table}")
                far = _("not among the first {n}").format(n=NEAR)
                value = far if place is None else f"#{place}"
                said = name.format(other=other, word=word, table=table)
                evidence.append(Evidence(said, value, Basis.COMPUTED))
    vectors = word_vectors()
    for one, other in (("python", "snake"), ("python", "javascript"), ("snake", "javascript")):
        cosine = significant(vectors.cosine(one, other))
        name = _("cosine of {one} and {other}, {table}")
        said = name.format(one=one, other=other, table=GLOVE)
        evidence.append(Evidence(said, cosine, Basis.COMPUTED))
    if held == len(evidence) - 3:
        sentence = _("All of the article's neighbours are found in both tables.")
        return Finding(Verdict.RIGHT, sentence, tuple(evidence))
    if held == 0:
        sentence = _("None of the article's neighbours is found in either table.")
        return Finding(Verdict.WRONG, sentence, tuple(evidence))
    return Finding(
        Verdict.CAVEAT,
        _("Some of the article's neighbours are near, others are not."),
        tuple(evidence),
        _(
            "Which words are near depends on what the table was trained for: word vectors on "
            "company, a language model's table on predicting and writing tokens. There, forms and "
            "spellings of the same word come first."
        ),
    )


def _packed(document: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    kind = {"float16": "<f2", "float32": "<f4"}[document["dtype"]]
    values = np.frombuffer(base64.b64decode(document["data"]), dtype=kind)
    return values.reshape(document["shape"]).astype(np.float64)


def _score(
    q: Sequence[float], k: Sequence[float], pairs: Sequence[Mapping[str, Any]], m: int, n: int
) -> float:
    """The dot product of a query at position m and a key at n, each pair turned (RoFormer)."""
    total = 0.0
    for pair in pairs:
        i, j = (int(dimension) for dimension in pair["dimensions"])
        a, b, c, d = q[i], q[j], k[i], k[j]
        angle = (m - n) * float(pair["step"])
        total += (a * c + b * d) * math.cos(angle) - (b * c - a * d) * math.sin(angle)
    return total


async def positions_are_turns(bench: Bench) -> Finding:
    """C07: the same token at two places; the score at another place; the model without turns."""
    _ = bench.said.gettext
    ids = await _ids(bench, TWICE)
    cat = next(i for i in range(len(ids)) if ids[i] in ids[:i] and ids.index(ids[i]) < i - 4)
    first = ids.index(ids[cat])
    question = {"token_ids": ids, "layer": 0, "head": 0}
    one = await bench.probe("attention-detail", {**question, "query": first})
    two = await bench.probe("attention-detail", {**question, "query": cat})
    before = float(np.abs(np.subtract(one["q"], two["q"])).mean())
    after = float(np.abs(np.subtract(one["q_rotated"], two["q_rotated"])).mean())
    pairs = (await bench.probe("rotation", {"token_ids": ids, "layer": 0, "position": cat}))[
        "pairs"
    ]
    key = _packed(two["keys"])[1].tolist()
    own = _score(two["q"], key, pairs, cat, 1)
    moved = _score(two["q"], key, pairs, cat + SHIFT, 1 + SHIFT)
    without = await bench.probe(
        "comparison", {"token_ids": ids, "ablations": ["no-rotation"], "k": 1, "max_tokens": 0}
    )
    kl = sum(without["kl"]) / len(without["kl"])
    evidence = (
        _measured(_("difference of two queries of one word before the turn"), significant(before)),
        _measured(_("the same after the turn"), significant(after)),
        _measured(_("score that the model computed"), significant(two["dots"][1])),
        Evidence(_("score from the turned pairs"), significant(own), Basis.COMPUTED),
        Evidence(
            _("both moved by {n} positions").format(n=SHIFT), significant(moved), Basis.COMPUTED
        ),
        _measured(_("KL divergence without turns, nats a position"), significant(kl)),
        _measured(
            _("positions with the same likeliest token without turns"),
            f"{without['same_top']:.0%}",
        ),
    )
    agrees = math.isclose(own, two["dots"][1], rel_tol=0.02, abs_tol=0.05)
    if not (agrees and after > before and kl > 0.05):
        sentence = _("In this model, turns by position do not explain the scores.")
        return Finding(Verdict.WRONG, sentence, evidence)
    sentence = _(
        "Queries and keys are turned, of their positions only the distance counts, and without "
        "turns the model predicts something else."
    )
    if before < after / 100:
        return Finding(
            Verdict.CAVEAT,
            sentence,
            evidence,
            _(
                "The article puts the turn into the embedding layer. Here it happens inside "
                "attention, in every layer, to queries and keys; the embedding of a word is the "
                "same everywhere. And the causal mask tells a little about order even without it."
            ),
        )
    return Finding(Verdict.RIGHT, sentence, evidence)


CHECKS: dict[str, Check] = {
    "C05": row_is_looked_up,
    "C06": similar_words_are_near,
    "C07": positions_are_turns,
}
