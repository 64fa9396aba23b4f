"""Checks of the lesson on quantization: sizes, what four bits do, and what eight buy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from engine.catalog.models import get_model
from engine.catalog.units import bytes_label
from engine.errors import EngineError
from engine.inference.messages import Generate
from engine.refusals import REFUSALS
from engine.simulator.scenario import Scenario
from webapp.claims.bench import Bench, new_id
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.lessons.lesson import Basis
from webapp.pages.sizes_view import sizes_of

SEVEN_B = "llama-2-7b"
CLAIMED_GB: Mapping[str, float] = {"fp32": 28.0, "fp16": 14.0, "int8": 7.0, "int4": 3.5}
ROUNDED = 0.06
"""As far as “7B” is from the parameters of models that are called so, relatively."""
STORED = ("q4_0", "q4_1")

HELD_OUT = 128
MOST_HELD_OUT = 512
"""A point of accuracy is a few tokens of so many: as fine as one window can tell."""
POINT = 0.01
CHANCE = 2.0
"""Standard errors by which a loss may be off on a text of this length."""
CALIBRATED = ("int4-channel-awq", "int4-channel-gptq", "int4-g32-awq", "int4-g32-gptq")
PLAIN = ("int4-channel-rtn", "int4-g32-rtn")

PROMPT = "Once upon a time, in a small village by the sea,"
TOKENS = 24
HALVES, HELPS = 1.6, 1.1
LITTLE = 0.02
"""Nats a token: a loss that few readers would notice."""
PREDICTED = ("llama-3.1-8b", "h100-sxm")


async def check_sizes(bench: Bench) -> Finding:
    """C17: Llama-2-7B in the four formats, as stored, and beside the article's figures."""
    said = bench.said
    spec = get_model(SEVEN_B)
    sizes = {size.format: size for size in sizes_of(spec)}
    off = {name: sizes[name].exact / 1e9 / gb - 1 for name, gb in CLAIMED_GB.items()}
    scales = max(sizes[name].exact / sizes["int4"].exact for name in STORED)
    verdict = size_verdict(max(map(abs, off.values())), scales)
    values = {
        "n": f"{spec.num_parameters:,}",
        "sizes": " / ".join(f"{sizes[name].exact / 1e9:.2f}" for name in CLAIMED_GB),
        "q4": f"{sizes['q4_1'].exact / 1e9:.2f}",
    }
    sentence = {
        Verdict.RIGHT: said.gettext("Llama-2-7B has {n} parameters: {sizes} GB, as stated."),
        Verdict.CAVEAT: said.gettext(
            "Parameters times bits is right, the rest is rounding: Llama-2-7B has {n} parameters, "
            "so {sizes} GB."
        ),
        Verdict.WRONG: said.gettext(
            "That is not what it takes: Llama-2-7B has {n} parameters, so {sizes} GB."
        ),
    }[verdict]
    caveat = said.gettext(
        "A four-bit format stores scales too: in Q4_1 the same model takes {q4} GB, five bits a "
        "weight."
    )
    formula = said.gettext("parameters × bits / 8, from the catalogue's shape of the model")
    evidence = tuple(
        Evidence(name, sizes[name].label, Basis.COMPUTED, formula)
        for name in (*CLAIMED_GB, *STORED)
    )
    return Finding(verdict, sentence.format(**values), evidence, caveat.format(**values))


def size_verdict(off: float, scales: float) -> Verdict:
    """``off``: the largest relative distance; ``scales``: what they make of four bits, a ratio."""
    if off > ROUNDED:
        return Verdict.WRONG
    return Verdict.RIGHT if off < 0.005 and scales < 1.01 else Verdict.CAVEAT


@dataclass(frozen=True, slots=True)
class Judged:
    """A form's loss of accuracy in parts of one, and its distance."""

    name: str
    lost: float
    found: Mapping[str, Any]

    @property
    def surely_lost(self) -> float:
        """What of the loss chance does not explain: only where the first choice changed can one of
        the two be right alone, so the difference has at most that share for its variance."""
        changed = 1 - float(self.found["top1_agreement"])
        return self.lost - CHANCE * math.sqrt(changed / MOST_HELD_OUT)


async def check_methods(bench: Bench) -> Finding:
    """C18: four bits by rounding, AWQ and GPTQ, on a text that none of them read."""
    said = bench.said
    judged = [await _judge(bench, name) for name in PLAIN]
    missing: list[str] = []
    for name in CALIBRATED:
        try:
            judged.append(await _judge(bench, name))
        except EngineError as error:
            if error.message != REFUSALS["weights_not_made"]:
                raise
            missing.append(name)
    within = [one for one in judged if one.lost <= POINT]
    verdict = method_verdict(judged, missing)
    best = min(judged, key=lambda one: one.found["mean_kl"])
    values = {
        "n": len(within),
        "all": len(judged),
        "best": best.name,
        "lost": f"{100 * best.lost:+.1f}",
        "kl": f"{best.found['mean_kl']:.3f}",
        "source": best.found["source"],
        "tokens": MOST_HELD_OUT,
        "point": f"{100 / MOST_HELD_OUT:.1f}",
    }
    sentence = {
        Verdict.RIGHT: said.gettext(
            "All {all} four-bit forms measured now foresee the held-out text within one point of "
            "the original; nearest is {best}, with a loss of {lost} points, KL {kl} nats."
        ),
        Verdict.CAVEAT: said.gettext(
            "{n} of {all} four-bit forms measured now stay within one point of the original's "
            "accuracy on the held-out text; nearest is {best}, with a loss of {lost} points, KL "
            "{kl} nats. So it can be had, but not from four bits alone."
        ),
        Verdict.WRONG: said.gettext(
            "None of {all} four-bit forms measured now stays within one point of the "
            "original's accuracy on the held-out text, by more than chance explains; nearest "
            "is {best}, with a loss of {lost} points."
        ),
    }[verdict]
    if verdict is Verdict.CAVEAT and not within and missing:
        sentence = said.gettext(
            "Plain rounding to four bits loses more than a point here: nearest is {best}, with a "
            "loss of {lost} points. GPTQ and AWQ, which the statement is about, are not all made "
            "on this machine, so it is not settled."
        )
    elif verdict is Verdict.CAVEAT and not within:
        sentence = said.gettext(
            "None of {all} four-bit forms measured now stays within one point of the original's "
            "accuracy on the held-out text, but it is too short to tell: nearest is {best}, with a "
            "loss of {lost} points that may be chance, KL {kl} nats."
        )
    caveat = said.gettext(
        "Not quite how they work: AWQ scales the input channels before rounding, GPTQ lets "
        "later columns make up for the errors of earlier ones, and scales usually belong to "
        "groups of 32 to 128 weights. The weights here were 4-bit before ({source}), which "
        "favours small groups. And a benchmark this is not: one of {tokens} tokens is {point} "
        "points."
    ).format(**values)
    if missing:
        caveat += " " + said.gettext(
            "Not measured, because they take minutes to make and were never made here: {names}."
        ).format(names=", ".join(missing))
    text = said.gettext("loss {lost} points, KL {kl} nats, same first choice {same}, {bits} bits")
    evidence = tuple(
        Evidence(
            one.name,
            text.format(
                lost=f"{100 * one.lost:+.1f}",
                kl=f"{one.found['mean_kl']:.3f}",
                same=f"{one.found['top1_agreement']:.1%}",
                bits=f"{one.found['bits_per_weight']:.2f}",
            ),
            Basis.MEASURED,
        )
        for one in judged
    )
    return Finding(verdict, sentence.format(**values), evidence, caveat)


def method_verdict(judged: list[Judged], missing: list[str]) -> Verdict:
    """All within a point; some, or one that may be for all that the text can tell; or none.

    Without GPTQ and AWQ it can be neither right nor wrong.
    """
    if all(one.lost <= POINT for one in judged) and not missing:
        return Verdict.RIGHT
    near = any(min(one.lost, one.surely_lost) <= POINT for one in judged)
    return Verdict.CAVEAT if near or missing else Verdict.WRONG


async def _judge(bench: Bench, name: str) -> Judged:
    found = await bench.probe("fidelity", {"weights": name, "held_out": MOST_HELD_OUT})
    return Judged(name, found["reference_accuracy"] - found["accuracy"], found)


async def check_halves(bench: Bench) -> Finding:
    """C23: 16-bit weights beside int8 on the engine, and prefill beside decode by prediction."""
    said = bench.said
    plain, int8 = [await _itl(bench, name) for name in ("bfloat16", "int8-channel-rtn")]
    found = await bench.probe("fidelity", {"weights": "int8-channel-rtn", "held_out": HELD_OUT})
    reports = [await bench.simulations.run(_scenario(name)) for name in ("fp16", "int8-g128")]
    decode = (reports[0].itl or 0.0) / (reports[1].itl or 1.0)
    prefill = reports[0].ttft / reports[1].ttft
    faster, kl = plain / int8, float(found["mean_kl"])
    verdict = speed_verdict(faster, kl)
    values = {
        "faster": f"{faster:.2f}",
        "kl": f"{kl:.4f}",
        "model": PREDICTED[0],
        "device": PREDICTED[1],
        "decode": f"{decode:.2f}",
        "prefill": f"{prefill:.2f}",
    }
    sentence = {
        Verdict.RIGHT: said.gettext(
            "Measured now: decode is {faster} times as fast in int8 as in 16 bits, at a KL of {kl} "
            "nats a token."
        ),
        Verdict.CAVEAT: said.gettext(
            "Measured now: decode is {faster} times as fast in int8 as in 16 bits, at a KL of {kl} "
            "nats a token: a gain, but not half the time at no loss on this machine."
        ),
        Verdict.WRONG: said.gettext(
            "Measured now: decode is only {faster} times as fast in int8 as in 16 bits on this "
            "machine."
        ),
    }[verdict]
    caveat = said.gettext(
        "It holds for decode, which waits for memory. Prefill gains only where products run in "
        "INT8: with weights that are widened first, {model} on {device} is predicted {decode} "
        "times as fast in decode and {prefill} times in prefill."
    )
    usual = said.gettext("median of its gaps")
    source = said.gettext("{model} on {hardware}, roofline, one request").format(
        model=PREDICTED[0], hardware=PREDICTED[1]
    )
    return Finding(
        verdict,
        sentence.format(**values),
        (
            Evidence(said.gettext("ITL in bfloat16"), f"{plain:.2f} ms", Basis.MEASURED, usual),
            Evidence(said.gettext("ITL in int8"), f"{int8:.2f} ms", Basis.MEASURED, usual),
            Evidence("KL", f"{values['kl']} nats", Basis.MEASURED),
            Evidence(
                said.gettext("weights in int8"), bytes_label(found["weight_bytes"]), Basis.MEASURED
            ),
            Evidence(said.gettext("decode elsewhere"), f"{decode:.2f}×", Basis.PREDICTED, source),
            Evidence(said.gettext("prefill elsewhere"), f"{prefill:.2f}×", Basis.PREDICTED, source),
        ),
        caveat.format(**values),
    )


def speed_verdict(faster: float, kl: float) -> Verdict:
    """Half the time at little loss, some gain, or none."""
    if faster < HELPS:
        return Verdict.WRONG
    return Verdict.RIGHT if faster >= HALVES and kl <= LITTLE else Verdict.CAVEAT


async def _itl(bench: Bench, weights: str) -> float:
    """The usual gap in ms: the median, which one pause does not move."""
    asked = Generate(new_id(), prompt=PROMPT, max_tokens=TOKENS, weights=weights, ignore_eos=True)
    run = await bench.generate(asked)
    gaps = run.done.itl_ms if run.done else ()
    return median(gaps) if gaps else run.itl_ms


def _scenario(weights: str) -> Scenario:
    model, hardware = PREDICTED
    return Scenario(
        model=model, hardware=hardware, weights=weights, prompt_tokens=1024, output_tokens=16
    )


CHECKS: dict[str, Check] = {"C17": check_sizes, "C18": check_methods, "C23": check_halves}
