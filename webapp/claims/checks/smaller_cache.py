"""Checks of the lesson on smaller caches: what the four fixes do, and DeepSeek-V4's ratios."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.catalog.models import get_model
from engine.catalog.units import bytes_label
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE
from engine.simulator.context_cost import FlopWeighting, context_cost, flops_crossover
from webapp.claims.bench import Bench
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.i18n import Texts
from webapp.lessons.lesson import Basis

HELD_OUT = 96
"""Tokens of the held-out text: more than enough for windows of a third of it to bite."""
CACHES = ("paged", "paged-int8", "paged-int4", "paged-window-32", "paged-window-32-sinks-4")
UNHARMED = 0.01
"""Nats a token: below it, no reader would notice."""
SHARES = "llama-2-70b"
"""A model of the article's time whose heads share keys and values."""

MILLION = 2**20
PUBLISHED_KV, PUBLISHED_FLOPS = 0.10, 0.27
"""What the article repeats from the report on DeepSeek-V4 (arXiv 2606.19348)."""


async def check_fixes(bench: Bench) -> Finding:
    """C15: each fix on the real engine; sharing among heads from a model's shape."""
    said = bench.said
    found = {
        name: await bench.probe(
            "fidelity", {"weights": "float32", "kv_cache": name, "held_out": HELD_OUT}
        )
        for name in CACHES
    }
    plain, int8, int4 = (found[name]["kv_bytes_per_token"] for name in CACHES[:3])
    spec = get_model(SHARES)
    groups = spec.num_attention_heads / spec.num_kv_heads
    kl = {name: float(found[name]["mean_kl"]) for name in CACHES}
    values = {
        "int8": f"{plain / int8:.2f}",
        "int4": f"{plain / int4:.2f}",
        "kl8": f"{kl['paged-int8']:.4f}",
        "kl4": f"{kl['paged-int4']:.4f}",
        "window": f"{kl['paged-window-32']:.2f}",
        "sinks": f"{kl['paged-window-32-sinks-4']:.2f}",
        "groups": f"{groups:g}",
        "block": DEFAULT_BLOCK_SIZE,
    }
    smaller = plain > int8 > int4 and groups > 1
    harmed = max(kl.values()) > UNHARMED
    verdict = Verdict.WRONG if not smaller else Verdict.CAVEAT if harmed else Verdict.RIGHT
    sentence = {
        Verdict.WRONG: said.gettext(
            "Not every fix made the cache smaller here: int8 {int8} times, int4 {int4} times, "
            "sharing {groups} times."
        ),
        Verdict.CAVEAT: said.gettext(
            "Each fix works: a float32 token takes {int8} times fewer bytes in int8, {int4} times "
            "fewer in int4, and {groups} times fewer where {groups} heads share. But not each is "
            "free: KL {kl8} nats a token in int8, {kl4} in int4, {window} with a window of 32, "
            "{sinks} once four sinks stay."
        ),
        Verdict.RIGHT: said.gettext(
            "Each fix works, and none harms the text here: {int8} times fewer bytes in int8, "
            "{int4} times fewer in int4, {groups} times fewer where {groups} heads share."
        ),
    }[verdict]
    caveat = said.gettext(
        "Paging makes no token smaller: blocks of {block} positions make less memory lie unused. "
        "Sharing among heads has to be trained, and a window harms a model that was not trained "
        "with one. The weights that all of this ran on were 4-bit before ({source})."
    )
    return Finding(
        verdict,
        sentence.format(**values),
        tuple(_evidence(name, found[name], said) for name in CACHES),
        caveat.format(source=found["paged"]["source"], **values),
    )


def _evidence(name: str, found: Mapping[str, Any], said: Texts) -> Evidence:
    text = said.gettext("{bytes} a token, KL {kl} nats, same first choice {same}")
    value = text.format(
        bytes=bytes_label(found["kv_bytes_per_token"]),
        kl=f"{found['mean_kl']:.4f}",
        same=f"{found['top1_agreement']:.1%}",
    )
    return Evidence(name, value, Basis.MEASURED)


async def check_deepseek(bench: Bench) -> Finding:
    """C16: V4-Pro's token beside V3.2's at a million positions, from the models' shapes."""
    said = bench.said
    pro, before = get_model("deepseek-v4-pro"), get_model("deepseek-v3.2")
    weighting = FlopWeighting.FP8_EQUIVALENT
    new, old = (context_cost(spec, MILLION, "fp8", weighting) for spec in (pro, before))
    kv, flops = float(new.kv_bytes) / float(old.kv_bytes), new.flops / old.flops
    crossover = flops_crossover(pro, before, weighting)
    verdict = ratio_verdict(kv, flops)
    sentence = {
        Verdict.RIGHT: said.gettext(
            "Predicted from the shapes at 1,048,576 positions: {kv} of V3.2's cache and "
            "{flops} of its FLOPs a token, in FP8 equivalents."
        ),
        Verdict.CAVEAT: said.gettext(
            "Predicted from the shapes it comes near, but not within a point: {kv} of V3.2's "
            "cache and {flops} of its FLOPs a token, in FP8 equivalents."
        ),
        Verdict.WRONG: said.gettext(
            "Predicted from the shapes it is something else: {kv} of V3.2's cache and {flops} "
            "of its FLOPs a token, in FP8 equivalents."
        ),
    }[verdict]
    caveat = said.gettext(
        "“Compute” here is FLOPs in FP8 equivalents, with weights that are assumed: the lesson "
        "says which. Below {crossover} positions V4-Pro's token takes more FLOPs than V3.2's. "
        "And V4 was previewed in April 2026, not in late 2025 as the article has it."
    )
    shares = {"kv": f"{kv:.1%}", "flops": f"{flops:.1%}"}
    report = said.gettext("the report on DeepSeek-V4 (arXiv 2606.19348)")
    return Finding(
        verdict,
        sentence.format(**shares),
        (
            Evidence(said.gettext("KV cache of V3.2's"), shares["kv"], Basis.PREDICTED),
            Evidence(said.gettext("FLOPs of V3.2's"), shares["flops"], Basis.PREDICTED),
            Evidence(said.gettext("as published"), "10%, 27%", Basis.PUBLISHED, report),
        ),
        caveat.format(crossover=f"{crossover:,}" if crossover else "—"),
    )


def ratio_verdict(kv: float, flops: float) -> Verdict:
    """Within a percentage point of what was published, within five, or neither."""
    off = max(abs(kv - PUBLISHED_KV), abs(flops - PUBLISHED_FLOPS))
    return Verdict.RIGHT if off < 0.01 else Verdict.CAVEAT if off < 0.05 else Verdict.WRONG


CHECKS: dict[str, Check] = {"C15": check_fixes, "C16": check_deepseek}
