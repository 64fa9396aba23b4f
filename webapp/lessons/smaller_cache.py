"""Lesson 9: fewer bits a number, fewer numbers, and pages; each on the real engine."""

from __future__ import annotations

from collections.abc import Mapping

from engine.inference.options import EngineOptions
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE
from webapp.i18n import N_, Language
from webapp.lessons.lesson import Basis, CodeLink, Figure, Guess, Lesson, Task, Teaching
from webapp.lessons.variant_texts import VARIANT_TEXTS
from webapp.pages.heads_view import models_on_offer


def figures() -> Mapping[str, Figure]:
    """Numbers of the prose."""
    pages = N_("PagedAttention (arXiv 2309.06180), section 1: tokens' share of the cache's memory.")
    blocks = N_("The engine's own settings: positions of a block and of a slab.")
    return {
        "block": Figure(f"{DEFAULT_BLOCK_SIZE}", Basis.COMPUTED, blocks),
        "slab": Figure(f"{min(_CONTEXT, EngineOptions().kv_tokens):,}", Basis.COMPUTED, blocks),
        "waste_low": Figure("20.4%", Basis.PUBLISHED, pages),
        "waste_high": Figure("38.2%", Basis.PUBLISHED, pages),
    }


def shows(_: Language) -> Mapping[str, object]:
    """Models whose heads can be compared."""
    return {"models": models_on_offer()}


_CONTEXT = 8_192
"""The longest text that SmolLM2 takes."""

TEXTS: Mapping[str, str | tuple[str, str]] = {
    **VARIANT_TEXTS,
    "sinks.writing": N_("The engine writes an answer to judge on…"),
    "sinks.judging": N_("Reading it with a window, without and with the first positions…"),
    "sinks.short": N_("Prompt and answer are too short: {n} tokens are needed."),
    "sinks.truth": N_(
        "Measured over {n} tokens: with the window alone the KL is {without} nats a token; with "
        "the first {sinks} positions kept it is {with}."
    ),
    "window.said": N_(
        "The last token sees {n} of {total}. Of all pairs, {share} are left. A request says it as "
        "{name}."
    ),
    "window.picture": N_("Who sees whom among {n} tokens: a window of {window}, sinks: {sinks}"),
    "window.seen": N_("in the window"),
    "window.sink": N_("a sink"),
    "window.gone": N_("not seen any more"),
    "paging.positions": (N_("{n} position"), N_("{n} positions")),
}

LESSON = Lesson(
    number=9,
    slug="smaller-cache",
    title=N_("Shrinking the cache"),
    question=N_(
        "The cache makes decoding fast, and then it fills the memory. What can be left out of it, "
        "and what does that do to the text?"
    ),
    guess=Guess(
        N_(
            "A window lets every token see only the last 16 positions. Now the first 4 positions "
            "of the text stay visible as well. What does that do to the damage?"
        ),
        (
            N_("Hardly anything: four positions are few"),
            N_("It takes more than half of it away"),
            N_("It makes it worse"),
        ),
    ),
    tasks=(
        Task(
            "quantized",
            N_("Run three caches, at least one of them in int8 or int4."),
            N_(
                "Fewer bits a number, and a small scale beside each head's numbers. In eight bits "
                "the distributions hardly move; in four they do."
            ),
        ),
        Task(
            "window",
            N_("Set a window and sinks, and run it as C."),
            N_(
                "A model that was trained to see everything loses its footing when its first "
                "tokens disappear. Models that are trained with a window in some layers do not."
            ),
        ),
        Task(
            "heads",
            N_("Choose another model, and see what its heads share."),
            N_(
                "Sharing is trained in: it can't be switched on when serving, but what it "
                "saves is saved in every run."
            ),
        ),
        Task(
            "million",
            N_("Find a context at which V4-Pro's token takes more FLOPs than V3.2's."),
            N_(
                "The published ratios hold at a million tokens. Below the crossover the larger "
                "model is simply the larger model."
            ),
        ),
    ),
    claims=("C15", "C16"),
    code=(
        CodeLink(
            "engine/inference/kv_cache/quantized.py",
            "Int4Store",
            N_("keeps keys and values in four bits, with a scale for each position and head"),
        ),
        CodeLink(
            "engine/inference/lane_settings.py",
            "KVSettings.forgotten_blocks",
            N_("which blocks a window gives back"),
        ),
        CodeLink(
            "engine/catalog/kv_cache.py",
            "kv_bytes_per_token",
            N_("bytes a token for any attention, latents and windows included"),
        ),
        CodeLink(
            "engine/simulator/context_cost.py",
            "context_cost",
            N_("FLOPs and cache of one more token at any context"),
        ),
        CodeLink(
            "engine/inference/probes/fidelity.py",
            "fidelity",
            N_("the same text through two forms, and how far apart they are"),
        ),
    ),
    teaching=Teaching(
        20,
        (
            N_(
                "“Paging makes the cache smaller.” It does not: a token takes the same bytes. It "
                "makes what is set aside and unused smaller."
            ),
            N_(
                "“The text is the same, so nothing was lost.” Greedy text hides small shifts; the "
                "KL shows them. And one token that changes early changes everything after it."
            ),
            N_(
                "“A window can be put on any model.” It can; but a model that never saw one in "
                "training needs its first tokens kept."
            ),
        ),
        (
            N_("Which of these fixes can be chosen when serving, and which need training?"),
            N_("Why does the cache in four bits take more than a quarter of sixteen?"),
            N_(
                "With a window and sinks a model writes fluently again. What can it still not know?"
            ),
        ),
    ),
    scripts=(
        "variants",
        "variants_view",
        "window",
        "paging",
        "cache_lesson",
    ),
    styles=("formats", "window"),
    texts=TEXTS,
    figures=figures,
    shows=shows,
)
