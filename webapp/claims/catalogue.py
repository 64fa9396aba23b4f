"""The claims of the article, in our words, and which check goes with each."""

from __future__ import annotations

from webapp.claims.checks import (
    attention,
    diagnose,
    kv_cache,
    layers,
    loop,
    phases,
    quantization,
    sampling,
    serving,
    smaller_cache,
    tokens,
    vectors,
)
from webapp.claims.claim import Check, Claim, Effort
from webapp.i18n import N_

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "C01",
        N_("A model predicts one next token, appends it to the text, and does that again."),
        "loop",
        Effort.ENGINE,
        seconds=1,
    ),
    Claim(
        "C02",
        N_(
            "Byte pair encoding starts from characters and keeps merging the most frequent "
            "neighbours, up to about 50,000 pieces; “unhappiness” becomes un, happi, ness."
        ),
        "tokens",
        Effort.INSTANT,
    ),
    Claim(
        "C03",
        N_("“How does inference work?” becomes the ids 2437, 1374, 32278, 670, 30."),
        "tokens",
        Effort.INSTANT,
    ),
    Claim(
        "C04",
        N_(
            "Languages that a tokenizer saw little of are cut into more pieces, so the same "
            "sentence costs more and answers come later."
        ),
        "tokens",
        Effort.INSTANT,
    ),
    Claim(
        "C05",
        N_("A token's vector is one row, looked up in a table of vocabulary by hidden size."),
        "vectors",
        Effort.ENGINE,
        seconds=1,
    ),
    Claim(
        "C06",
        N_(
            "Words of similar meaning lie close together: king by queen; python near snake in one "
            "direction and near javascript in another."
        ),
        "vectors",
        Effort.ENGINE,
        seconds=1,
    ),
    Claim(
        "C07",
        N_("Attention knows no order by itself; RoPE turns the vectors by their position."),
        "vectors",
        Effort.ENGINE,
        seconds=1,
    ),
    Claim(
        "C08",
        N_(
            "Attention is softmax of the queries times the keys, divided by the root of the hidden "
            "size, times the values."
        ),
        "attention",
        Effort.ENGINE,
        seconds=1,
    ),
    Claim(
        "C09",
        N_(
            "Often 32 layers or more, each attention and a feed-forward network of two "
            "matrices, both added to what came in."
        ),
        "layers",
        Effort.ENGINE,
        seconds=1,
    ),
    Claim(
        "C10",
        N_(
            "The last position's vector becomes a score for every token of the vocabulary; softmax "
            "makes them probabilities; one is drawn."
        ),
        "sampling",
        Effort.ENGINE,
        seconds=1,
    ),
    Claim(
        "C11",
        N_(
            "Prefill computes all tokens of the prompt in parallel and is bound by compute; its "
            "measure is TTFT."
        ),
        "phases",
        Effort.ENGINE,
        seconds=2,
    ),
    Claim(
        "C12",
        N_("Decode computes one token a step and is bound by memory; its measure is ITL."),
        "phases",
        Effort.ENGINE,
        seconds=3,
    ),
    Claim(
        "C13",
        N_(
            "The KV cache makes an answer of about 1,000 tokens at least 5 times as fast; "
            "without it the cost is quadratic."
        ),
        "kv-cache",
        Effort.ENGINE,
        seconds=11,
    ),
    Claim(
        "C14",
        N_("A 13B model keeps about 1 MB of cache a token, so 4K tokens take 4 GB."),
        "kv-cache",
        Effort.INSTANT,
    ),
    Claim(
        "C15",
        N_(
            "Against the cache's size help INT8 and INT4 in the cache, a sliding window, keys and "
            "values shared by several heads, and paging."
        ),
        "smaller-cache",
        Effort.ENGINE,
        seconds=5,
    ),
    Claim(
        "C16",
        N_(
            "At a million tokens DeepSeek-V4-Pro needs about 10% of the cache of the model "
            "before it, and 27% of its compute a token."
        ),
        "smaller-cache",
        Effort.INSTANT,
    ),
    Claim(
        "C17",
        N_("7B parameters take 28 GB at FP32, 14 at FP16, 7 at INT8 and 3.5 at INT4."),
        "quantization",
        Effort.INSTANT,
    ),
    Claim(
        "C18",
        N_(
            "GPTQ and AWQ choose a scale for each channel; done well, INT4 stays within a "
            "percentage point of the original on most benchmarks."
        ),
        "quantization",
        Effort.ENGINE,
        seconds=11,
    ),
    Claim(
        "C19",
        N_("A prompt passes five stations: tokenize, embed, prefill, decode, detokenize."),
        "diagnose",
        Effort.ENGINE,
        seconds=1,
    ),
    Claim(
        "C20",
        N_(
            "Continuous batching, speculative decoding and clever memory let one GPU serve dozens "
            "of people."
        ),
        "serving",
        Effort.ENGINE,
        seconds=3,
    ),
    Claim(
        "C21",
        N_("Long prompts cost TTFT, long outputs cost ITL."),
        "phases",
        Effort.ENGINE,
        seconds=3,
    ),
    Claim(
        "C22",
        N_("Twice the context swells the cache and starves the batch."),
        "kv-cache",
        Effort.INSTANT,
    ),
    Claim(
        "C23",
        N_("From FP16 to INT8, latency often halves at hardly any loss."),
        "quantization",
        Effort.ENGINE,
        seconds=3,
    ),
    Claim(
        "C24",
        N_("GPU utilization misleads: pegged during prefill, it may stand at 30% during decode."),
        "phases",
        Effort.ENGINE,
        seconds=1,
    ),
    Claim(
        "C25",
        N_("The first question to a slow model: slow to start, or slow to stream?"),
        "diagnose",
        Effort.INSTANT,
    ),
)

CHECKS: dict[str, Check] = {
    **loop.CHECKS,
    **tokens.CHECKS,
    **vectors.CHECKS,
    **attention.CHECKS,
    **layers.CHECKS,
    **sampling.CHECKS,
    **phases.CHECKS,
    **kv_cache.CHECKS,
    **serving.CHECKS,
    **diagnose.CHECKS,
    **smaller_cache.CHECKS,
    **quantization.CHECKS,
}
"""The check of each claim, from the modules beside this one."""


def get_claim(claim_id: str) -> Claim | None:
    """The claim of that id; None if there is none."""
    return next((claim for claim in CLAIMS if claim.id == claim_id), None)
