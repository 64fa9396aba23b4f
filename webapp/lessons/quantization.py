"""Lesson 10: fewer bits a weight: rows, whole models, sizes and times."""

from __future__ import annotations

from collections.abc import Mapping

from engine.catalog.hardware import all_hardware
from webapp.i18n import N_, Language
from webapp.lessons.lesson import CodeLink, Guess, Lesson, Task, Teaching
from webapp.lessons.variant_texts import VARIANT_TEXTS
from webapp.pages.sizes_view import model_names

FORMATS = (
    "float32",
    "bfloat16",
    "file",
    "int8-channel-rtn",
    "int8-g32-rtn",
    "int4-tensor-rtn",
    "int4-channel-rtn",
    "int4-channel-awq",
    "int4-channel-gptq",
    "int4-g128-rtn",
    "int4-g32-rtn",
    "int4-g32-awq",
    "int4-g32-gptq",
)
"""Forms on offer, by the names that requests take."""
MATRICES = tuple(
    f"layers.{layer}.{part}" for layer in (0, 14, 29) for part in ("q", "o", "gate", "down")
)
LAST_ROW = 191
"""Rows that every matrix of the model has: those of its smallest, the keys'."""


def shows(_: Language) -> Mapping[str, object]:
    """What the widgets let choose."""
    return {
        "formats": FORMATS,
        "matrices": MATRICES,
        "last_row": LAST_ROW,
        "models": model_names(),
        "devices": tuple((device.id, device.name) for device in all_hardware()),
    }


TEXTS: Mapping[str, str | tuple[str, str]] = {
    **VARIANT_TEXTS,
    "scales.writing": N_("The engine writes an answer to judge on…"),
    "scales.judging": N_("Reading it with {name}…"),
    "scales.truth": N_(
        "Measured over {n} tokens: with one scale for each whole matrix {tensor} of the first "
        "choices stay the same; with one for every 32 weights {group}."
    ),
    "row.picture": N_("The first {n} weights of row {row} of {matrix}, before and after rounding"),
    "row.facts": N_(
        "{bits} bits a weight as the engine keeps it: {own} of its own, {rest} of scales, "
        "which stand beside each row at least. {shared} weights share a scale. Rounding moves "
        "the matrix by {error} of its size. The file stores it as {storage}."
    ),
    "row.own": N_("{n} bits"),
    "row.scales": N_("+{bits} scales"),
    "speed.bf16": N_("BF16"),
    "speed.int8-g128": N_("INT8, widened to multiply"),
    "speed.int8": N_("INT8, multiplied as INT8"),
    "speed.int4-g128": N_("INT4, widened to multiply"),
    "speed.times": N_("{times}×"),
}

LESSON = Lesson(
    number=10,
    slug="quantization",
    title=N_("Quantization"),
    question=N_(
        "How few bits can a weight have before the text falls apart, and what do fewer bits buy?"
    ),
    guess=Guess(
        N_(
            "All weights are rounded to 4 bits, with a single scale for each whole matrix. How "
            "often does the model still put the same token first?"
        ),
        (
            N_("Nearly always (90% or more)"),
            N_("More often than not (50 to 90%)"),
            N_("Less than half the time: the text falls apart"),
        ),
    ),
    tasks=(
        Task(
            "scales",
            N_("Draw the same row in int4 with one scale for the matrix, then one for 32."),
            N_(
                "Smaller groups bring the levels to where the weights are, and cost bits of scales."
            ),
        ),
        Task(
            "weights",
            N_("Run three sets of weights, at least one of them in int4."),
            N_(
                "How many bits, and how many weights share a scale: both decide how far the "
                "text moves."
            ),
        ),
        Task(
            "sizes",
            N_("Choose another model and compare its name with its size."),
            N_("The bits that count are those of the stored format, scales and zeros included."),
        ),
        Task(
            "halves",
            N_("Change the prompt, the model or the device, and compare prefill with decode."),
            N_("Fewer bits speed up what waits for memory; arithmetic waits for arithmetic."),
        ),
    ),
    claims=("C17", "C18", "C23"),
    code=(
        CodeLink(
            "engine/inference/quantization/rtn.py",
            "fit_grid",
            N_("chooses the levels of a group"),
        ),
        CodeLink(
            "engine/inference/quantization/gptq.py",
            "gptq",
            N_("rounds column by column and makes up for the error"),
        ),
        CodeLink(
            "engine/inference/quantization/awq.py",
            "search_scales",
            N_("finds how far to stretch the channels that matter"),
        ),
        CodeLink(
            "engine/inference/probes/rounding.py",
            "weight_row",
            N_("the row of the picture"),
        ),
        CodeLink(
            "engine/catalog/precision.py",
            "NumberFormat",
            N_("bits of a number with its share of scales"),
        ),
    ),
    teaching=Teaching(
        25,
        (
            N_(
                "“Four bits are four bits.” What shares a scale decides; compare one scale a "
                "matrix, a row and a group."
            ),
            N_(
                "“INT8 halves the latency.” Of decode, nearly. Of prefill only where the products "
                "run in INT8."
            ),
            N_(
                "“Perplexity did not rise, so nothing changed.” It can fall by luck. KL is "
                "above zero as soon as anything changed."
            ),
        ),
        (
            N_("Why does 4-bit with groups of 32 lose so little on this very model?"),
            N_("Why does GPTQ need a text to read, and rounding to nearest none?"),
            N_("A device has twice the memory speed. What do fewer bits still buy on it?"),
        ),
    ),
    scripts=("variants", "variants_view", "weight_row", "bit_speed", "quant_lesson"),
    styles=("formats", "weights"),
    texts=TEXTS,
    shows=shows,
)
