"""Lesson 8: the KV cache."""

from __future__ import annotations

from collections.abc import Mapping

from engine.catalog.models import get_model
from webapp.i18n import N_
from webapp.lessons.lesson import Basis, CodeLink, Figure, Guess, Lesson, Task, Teaching

MODEL = "llama-2-13b"
CONTEXT = 4096


def figures() -> Mapping[str, Figure]:
    """The numbers of the prose, from the catalogue."""
    model = get_model(MODEL)
    per_token, whole = model.kv_bytes_per_token(16), model.kv_cache_bytes(CONTEXT, 16)
    return {
        "per_token": Figure(
            f"{per_token:,} B",
            Basis.COMPUTED,
            N_("Llama-2-13B, 16 bits: key and value × 40 layers × 40 heads × 128 numbers × 2 B"),
        ),
        "context": Figure(
            f"{CONTEXT:,}",
            Basis.PUBLISHED,
            N_("the longest context that Llama 2 was trained for (Touvron et al., 2023)"),
        ),
        "long": Figure(
            f"{float(whole) / 1e9:.2f} GB",
            Basis.COMPUTED,
            N_("4,096 times the bytes of one token; 1 GB is 10⁹ bytes"),
        ),
    }


LESSON = Lesson(
    number=8,
    slug="kv-cache",
    title=N_("The KV cache"),
    question=N_("Why does token 500 take hardly longer than token 5, and what does that cost?"),
    guess=Guess(
        N_(
            "The engine answers your prompt twice: once it keeps keys and values, once it computes "
            "the whole text again at every step. How much longer does the second way take?"
        ),
        (
            N_("less than twice as long"),
            N_("two to five times as long"),
            N_("more than five times as long"),
        ),
    ),
    tasks=(
        Task(
            "race",
            N_("Guess, then run your prompt both ways."),
            N_(
                "But for rounding, the answer is the same. All the time more went into what "
                "was computed again for nothing."
            ),
        ),
        Task(
            "cells",
            N_("Run a prompt into the cells, then step through the run."),
            N_("Prefill wrote many cells at once. Each later step wrote one and read all."),
        ),
        Task(
            "starve",
            N_("Double the context of a model until fewer requests fit."),
            N_("Memory that a long context takes is memory that other requests do not get."),
        ),
    ),
    claims=("C13", "C14", "C22"),
    code=(
        CodeLink(
            "engine/inference/kv_cache/paged.py",
            "PagedKVCache",
            N_("keeps keys and values in blocks and reads them through the block table."),
        ),
        CodeLink(
            "engine/scheduling/blocks.py",
            "BlockPool.allocate",
            N_("hands out blocks; nobody gets memory before a token needs it."),
        ),
        CodeLink(
            "engine/scheduling/scheduler.py",
            "Scheduler.settle",
            N_("closes a step; with the cache off, nothing stays computed."),
        ),
        CodeLink(
            "engine/catalog/kv_cache.py",
            "kv_groups",
            N_("counts a model's bytes of cache from its structure."),
        ),
        CodeLink(
            "engine/simulator/capacity.py",
            "capacity",
            N_("finds the largest batch that fits."),
        ),
    ),
    teaching=Teaching(
        20,
        (
            N_(
                "“The cache stores the text.” It stores each layer's keys and values, which take "
                "thousands of times as many bytes as the text."
            ),
            N_(
                "“With the cache a step costs the same however long the text.” Each step reads all "
                "earlier keys and values, so it grows slowly; run a long answer to see it."
            ),
            N_(
                "“Queries are cached, too.” A query is used once, by the token that asks, and is "
                "never looked at again."
            ),
            N_(
                "On a busy machine single steps stand out. Run the race twice, and compare totals, "
                "not single steps."
            ),
        ),
        (
            N_("Why may keys and values of old tokens be kept? What in the model makes sure?"),
            N_("Which grows faster without the cache: the time of one step, or of the answer?"),
            N_("What would you change in a model to halve its cache, and what might that cost?"),
            N_(
                "Why does a batch of long contexts run out of memory before it runs out of compute?"
            ),
        ),
    ),
    scripts=("kv-race", "kv-cells", "pool", "kv-bytes"),
    styles=("strips", "pool", "kv-cache"),
    figures=figures,
    texts={
        "race.row": N_("tokens: {n} · {time}"),
        "race.on": N_("with the cache"),
        "race.off": N_("without it"),
        "race.tokens": N_("tokens of the answer"),
        "race.seconds": N_("seconds so far"),
        "race.passes.mark": N_("5 times as long from token {n}"),
        "race.passes": N_(
            "From token {n} on, the way without the cache has taken 5 times as long."
        ),
        "race.passes.not": N_(
            "It did not stay at 5 times within {n} tokens. Ask for a longer answer."
        ),
        "race.ratio": N_("as long without the cache · measured"),
        "race.same": N_(
            "{same} of {n} tokens are the same in the same place. Both ran in {dtype}. Where fewer "
            "bits are kept than in float32, rounding can tip a choice between two likely tokens."
        ),
        "race.work": N_(
            "With the cache, {on} positions went through the model. Without it, {off}: every text "
            "of every step, from its beginning. That sum grows with the square of the answer."
        ),
        "race.truth": N_("Measured just now, over {n} tokens: {ratio} times as long."),
        "race.now.paged": N_("Running with the cache…"),
        "race.now.off": N_("Running without the cache…"),
        "race.opening": N_("The engine prepares the way without a cache…"),
        "cells.cell": N_(
            "Position {position}, “{piece}”: place {place} of block {block}. Holds keys and values."
        ),
        "cells.cell.free": N_("Position {position}: place {place} of block {block}, still free."),
        "cells.hint": N_("Point at a cell, or walk through the cells with the arrow keys."),
        "cells.step.prefill": N_(
            "Step {step} of {total}, prefill, {time}: wrote {n} cells at once, for the prompt."
        ),
        "cells.step.decode": N_(
            "Step {step} of {total}, decode, {time}: wrote {n} cell and read all {read}."
        ),
        "cells.step.recompute": N_(
            "Step {step} of {total}, {time}: wrote {n} cells again, after their blocks had gone."
        ),
        "cells.step.token": N_("Out came “{piece}”."),
        "cells.sum": N_(
            "{n} cells × {each} = {bytes}, in {blocks} blocks. {free} places of the last block are "
            "taken but empty: that is all that a paged cache wastes on a request."
        ),
        "cells.done": N_("The run is over: {n} cells are filled."),
    },
)
