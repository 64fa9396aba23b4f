"""C09: layers, their two parts and what is added, in the running model and the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.catalog.models import all_models
from engine.simulator.machine.typical import dense_spec
from webapp.claims.bench import Bench
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.lessons.lesson import Basis

PROMPT = "The capital of France is Paris. The capital of Italy is"
SAID_LAYERS, SAID_MATRICES = 32, 2
NEAR = 0.25
"""By how much fewer there may be than the article says there often are."""


@dataclass(frozen=True, slots=True)
class Found:
    """Of the running model: its layers, the matrices of a feed-forward network, and by how much the
    stream changes across a layer that adds nothing, as a share of its length."""

    layers: int
    matrices: int
    change: float


def judge(found: Found) -> Verdict:
    """Wrong where layers do more than add; right with two matrices and nearly as many or more."""
    if found.change > 0:
        return Verdict.WRONG
    near = found.layers >= (1 - NEAR) * SAID_LAYERS
    return Verdict.RIGHT if near and found.matrices == SAID_MATRICES else Verdict.CAVEAT


def change_across(norms: Sequence[Sequence[float]], layer: int) -> float:
    """How much the stream's length changes across a layer, at most, as a share of its length."""
    before, after = norms[layer], norms[layer + 1]
    return max(abs(b - a) / a for a, b in zip(before, after, strict=True))


async def check_layers(bench: Bench) -> Finding:
    """Silences a middle layer of the running model, and counts the catalogue."""
    spec = dense_spec(bench.info.model, bench.info.model_name)
    middle = spec.num_layers // 2
    tokens = await bench.probe("tokenize", {"text": PROMPT})
    ids = [token["id"] for token in tokens["tokens"]]
    norms = await bench.probe("hidden-norms", {"token_ids": ids})
    silent = await bench.probe("hidden-norms", {"token_ids": ids, "ablations": [f"layer:{middle}"]})
    change = change_across(silent["residual"], middle)
    found = Found(spec.num_layers, spec.mlp.matrices, change)
    verdict = judge(found)
    adds = (norms["attention"][middle][-1], norms["mlp"][middle][-1])
    return Finding(verdict, _sentence(bench, verdict, found), _evidence(bench, found, middle, adds),
                   _caveat(bench, verdict, found))  # fmt: skip


def _sentence(bench: Bench, verdict: Verdict, found: Found) -> str:
    if verdict is Verdict.WRONG:
        return bench.said.gettext("A layer that adds nothing still changes the stream.")
    return bench.said.gettext(
        "The running model has {layers} layers. Each adds attention's and the feed-forward "
        "network's output to its stream: silenced, a layer leaves the stream as it was."
    ).format(layers=found.layers)


def _caveat(bench: Bench, verdict: Verdict, found: Found) -> str:
    if verdict is not Verdict.CAVEAT:
        return ""
    gated = sum(spec.mlp.gated for spec in all_models())
    counts = [spec.num_layers for spec in all_models()]
    return bench.said.gettext(
        "Its feed-forward networks have {matrices} matrices. In the catalogue {gated} of {all} "
        "models have the gated kind with three, and layers go from {fewest} to {most}."
    ).format(
        matrices=found.matrices, gated=gated, all=len(counts), fewest=min(counts), most=max(counts)
    )


def _evidence(
    bench: Bench, found: Found, middle: int, adds: tuple[float, float]
) -> tuple[Evidence, ...]:
    said = bench.said
    return (
        Evidence(
            said.gettext("layers of the running model"),
            str(found.layers),
            Basis.PUBLISHED,
            said.gettext("the model's own file"),
        ),
        Evidence(
            said.gettext("matrices of a feed-forward network"),
            str(found.matrices),
            Basis.PUBLISHED,
            said.gettext("the model's own file"),
        ),
        Evidence(
            said.gettext("layer {layer} adds at the last token: attention, feed-forward").format(
                layer=middle
            ),
            f"{adds[0]:.3g}, {adds[1]:.3g}",
            Basis.MEASURED,
        ),
        Evidence(
            said.gettext("change of the stream across it when both are silenced"),
            f"{found.change:.2g}",
            Basis.MEASURED,
        ),
    )


CHECKS: dict[str, Check] = {"C09": check_layers}
