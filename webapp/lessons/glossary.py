"""The words of the field that the lessons use, each with one sentence or two."""

from __future__ import annotations

from dataclasses import dataclass

from webapp.i18n import N_, Texts


@dataclass(frozen=True, slots=True)
class Term:
    """A word. ``id`` names it in addresses; ``lesson`` explains it, by slug; ``also`` are other
    forms of it that a lesson's text may have (all texts English, ``N_``)."""

    id: str
    name: str
    meaning: str
    lesson: str
    also: tuple[str, ...] = ()


TERMS: tuple[Term, ...] = (
    Term(
        "token",
        N_("token"),
        N_("A piece of text with a number of its own: a word, part of one, a sign, some bytes."),
        "tokens",
        (N_("tokens"),),
    ),
    Term(
        "vocabulary",
        N_("vocabulary"),
        N_("All tokens that a model knows. Each has an id, a row of the table and a score."),
        "tokens",
    ),
    Term(
        "bpe",
        N_("byte pair encoding"),
        N_("Cutting text into tokens by merging neighbours in an order learned from a corpus."),
        "tokens",
        (N_("BPE"),),
    ),
    Term(
        "embedding",
        N_("embedding"),
        N_("The row of numbers that stands for a token: what the first layer gets to see."),
        "vectors",
        (N_("embeddings"),),
    ),
    Term(
        "rope",
        N_("RoPE"),
        N_("Rotary position embedding: queries and keys are turned by an angle for their place."),
        "vectors",
    ),
    Term(
        "attention",
        N_("attention"),
        N_("The part of a layer where a position takes in what others hold, each by its weight."),
        "attention",
    ),
    Term(
        "head",
        N_("attention head"),
        N_(
            "One of several attentions of a layer. Each has queries of its own; several may "
            "share keys and values."
        ),
        "attention",
        (N_("attention heads"),),
    ),
    Term(
        "softmax",
        N_("softmax"),
        N_("Makes shares of any scores: e to the power of each, divided by the sum of all."),
        "attention",
    ),
    Term(
        "causal-mask",
        N_("causal mask"),
        N_("Hides from each position everything that comes after it."),
        "attention",
    ),
    Term(
        "layer",
        N_("transformer layer"),
        N_("Attention, then a feed-forward network; each adds its result to what came in."),
        "layers",
    ),
    Term(
        "residual-stream",
        N_("residual stream"),
        N_("The vector of a position on its way through all layers, to which each layer adds."),
        "layers",
    ),
    Term(
        "ffn",
        N_("feed-forward network"),
        N_("The part of a layer that works on each position alone; most parameters sit there."),
        "layers",
        (N_("FFN"),),
    ),
    Term(
        "logit-lens",
        N_("logit lens"),
        N_("Reads what the model would say if it ended after a layer."),
        "layers",
    ),
    Term(
        "logit",
        N_("logit"),
        N_("The score of a token before softmax makes probabilities of all scores."),
        "sampling",
        (N_("logits"),),
    ),
    Term(
        "temperature",
        N_("temperature"),
        N_("Divides all logits: below one sharpens the distribution, above one flattens it."),
        "sampling",
    ),
    Term(
        "top-p",
        N_("top-p"),
        N_("Keeps the likeliest tokens that together reach a probability of p."),
        "sampling",
    ),
    Term(
        "min-p",
        N_("min-p"),
        N_("Keeps tokens with at least a share p of the likeliest one's probability."),
        "sampling",
    ),
    Term(
        "prefill",
        N_("prefill"),
        N_("The phase that computes all tokens of the prompt together, up to the first token."),
        "phases",
    ),
    Term(
        "decode",
        N_("decode"),
        N_("The phase after the first token: each step computes one token of a sequence."),
        "phases",
        (N_("decoding"),),
    ),
    Term(
        "ttft",
        N_("TTFT"),
        N_("Time to first token: from the request until the first token is there."),
        "phases",
    ),
    Term(
        "itl",
        N_("ITL"),
        N_("Inter-token latency: the gap between a token and the one before it."),
        "phases",
    ),
    Term(
        "step",
        N_("step"),
        N_("One run of the model over a batch: some prompts' tokens, some answers' next tokens."),
        "loop",
    ),
    Term(
        "roofline",
        N_("roofline"),
        N_(
            "The most that a machine can reach: bandwidth limits it on the left, arithmetic on the "
            "right."
        ),
        "phases",
    ),
    Term(
        "arithmetic-intensity",
        N_("arithmetic intensity"),
        N_("Operations for each byte that is moved, in FLOP/byte."),
        "phases",
    ),
    Term(
        "ridge-point",
        N_("ridge point"),
        N_("The arithmetic intensity from which on a machine is limited by arithmetic."),
        "phases",
    ),
    Term(
        "memory-bound",
        N_("memory-bound"),
        N_("Limited by how fast bytes arrive, while arithmetic units wait."),
        "phases",
        (N_("bound by memory"),),
    ),
    Term(
        "compute-bound",
        N_("compute-bound"),
        N_("Limited by arithmetic, while bytes arrive fast enough."),
        "phases",
        (N_("bound by compute"),),
    ),
    Term(
        "mfu",
        N_("MFU"),
        N_("Model FLOPs utilization: the share of a machine's arithmetic that the model uses."),
        "phases",
    ),
    Term(
        "mbu",
        N_("MBU"),
        N_("Model bandwidth utilization: the share of its bandwidth that the model uses."),
        "phases",
    ),
    Term(
        "kv-cache",
        N_("KV cache"),
        N_("The keys and values of all positions so far, kept so that no step computes them anew."),
        "kv-cache",
    ),
    Term(
        "block",
        N_("block"),
        N_("A page of the KV cache: the keys and values of a fixed number of positions."),
        "kv-cache",
        (N_("blocks"),),
    ),
    Term(
        "gqa",
        N_("grouped-query attention"),
        N_("Several query heads share one head of keys and values, so the cache is smaller."),
        "smaller-cache",
        (N_("GQA"),),
    ),
    Term(
        "mla",
        N_("MLA"),
        N_("Multi-head latent attention: the cache keeps one compressed vector a position."),
        "smaller-cache",
    ),
    Term(
        "sliding-window",
        N_("sliding window"),
        N_("Each position sees only so many positions before it; older ones leave the cache."),
        "smaller-cache",
    ),
    Term(
        "quantization",
        N_("quantization"),
        N_("Keeping numbers in fewer bits: small integers, and scales to stretch them."),
        "quantization",
    ),
    Term(
        "kl-divergence",
        N_("KL divergence"),
        N_("How far one distribution is from another, in nats; none if they are the same."),
        "quantization",
    ),
    Term(
        "perplexity",
        N_("perplexity"),
        N_("How many equally likely tokens a model's surprise over a text amounts to."),
        "quantization",
    ),
    Term(
        "awq",
        N_("AWQ"),
        N_("Stretches the weights that meet large activations, so that rounding hurts them less."),
        "quantization",
    ),
    Term(
        "gptq",
        N_("GPTQ"),
        N_("Rounds weights one after the other, and lets the rest make up for each error."),
        "quantization",
    ),
    Term(
        "continuous-batching",
        N_("continuous batching"),
        N_("Requests join and leave the batch between any two steps; none waits for the others."),
        "serving",
    ),
    Term(
        "prefix-cache",
        N_("prefix cache"),
        N_("Blocks of a beginning that was computed before are found again and used again."),
        "serving",
    ),
    Term(
        "preemption",
        N_("preemption"),
        N_("A sequence gives its blocks to others when memory is full, and is computed again."),
        "serving",
    ),
    Term(
        "chunked-prefill",
        N_("chunked prefill"),
        N_("A long prompt is computed in parts, so that other answers go on in between."),
        "serving",
    ),
    Term(
        "speculative-decoding",
        N_("speculative decoding"),
        N_("Cheap drafts of the next tokens, verified by the model in one step."),
        "serving",
    ),
    Term(
        "detokenize",
        N_("detokenize"),
        N_("Turning ids back into text, a character at a time even if it spans several tokens."),
        "diagnose",
    ),
)


def known_terms(said: Texts) -> dict[str, dict[str, object]]:
    """All terms in one language, by id, for the scripts that show them in a lesson's text."""
    return {
        term.id: {
            "name": said.gettext(term.name),
            "meaning": said.gettext(term.meaning),
            "forms": sorted({said.gettext(form) for form in (term.name, *term.also)}),
        }
        for term in TERMS
    }
