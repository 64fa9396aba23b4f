"""Lesson 4: attention, head by head and number by number."""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.catalog.models import get_model
from webapp.i18n import N_
from webapp.lessons.lesson import Basis, CodeLink, Figure, Guess, Lesson, Task, Teaching

_SHIPPED = "smollm2-135m"


def figures() -> Mapping[str, Figure]:
    """The two scales of the shipped model: by one head's size, and by the hidden size."""
    model = get_model(_SHIPPED)
    return {
        "scale": Figure(
            f"√{model.head_dim} = {math.sqrt(model.head_dim):g}",
            Basis.COMPUTED,
            N_(
                "The root of SmolLM2-135M's head_dim in the catalogue. Scaled dot-product "
                "attention: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.1."
            ),
        ),
        "wrong": Figure(
            f"√{model.hidden_size} = {math.sqrt(model.hidden_size):g}",
            Basis.COMPUTED,
            N_("The root of SmolLM2-135M's hidden_size in the catalogue."),
        ),
    }


_TEXTS: Mapping[str, str | tuple[str, str]] = {
    "inside.reading": N_("The model reads your text…"),
    "inside.waiting": N_("The engine is not ready yet. The picture comes by itself."),
    "inside.read": N_("Tokens: {n}, read by the model just now."),
    "heads.first": N_("Layer {layer}, head {head}: {share} of its weight on the first token."),
    "heads.previous": N_("Layer {layer}, head {head}: {share} of its weight on the token before."),
    "heads.own": N_("Layer {layer}, head {head}: {share} of its weight on the token itself."),
    "heads.spread": N_(
        "Layer {layer}, head {head}: its weight is spread, {share} of it on the first token."
    ),
    "heads.axis": N_("{layers} layers from left to right, {heads} heads from top to bottom."),
    "heads.axisDown": N_("{layers} layers from top to bottom, {heads} heads from left to right."),
    "head.title": N_("Layer {layer}, head {head}"),
    "head.token": N_("{piece} ({position})"),
    "head.weight": N_("{query} gives {share} of its look to {key}."),
    "head.hidden": N_("{key} comes after {query}: hidden by the mask."),
    "head.facts": N_(
        "{n} × {n} weights, measured now. It reads the keys and values of KV head {kv}."
    ),
    "query.title": N_("What {piece} (position {position}) looks at"),
    "query.weight": N_("{piece}, position {position}: {share}"),
    "query.hidden": N_("{piece}, position {position}: hidden, it comes later"),
    "steps.key": N_("{piece}, position {position}"),
    "steps.pair": N_("{query} looks at {key}"),
    "steps.1": N_(
        "Multiply query and key number by number and add up all {d} products: {dot}. "
        "Both were turned by RoPE for their positions."
    ),
    "steps.2": N_(
        "Divide by the root of {d}, which is {scale}: {scaled}. Without it, scores grow with "
        "the size of a head, and softmax comes near to all or nothing."
    ),
    "steps.3": N_(
        "Tokens that come later get minus infinity ({n} here). The future is hidden, so training "
        "can use every position of a text at once."
    ),
    "steps.4": N_(
        "Raise e to each score and divide by the sum over the {seen} tokens in sight: {share} for "
        "{key}. Your browser did the same from q and k: off by {error} at most."
    ),
    "steps.masked": N_(
        "Raise e to each score and divide by the sum over the {seen} tokens in sight. e to minus "
        "infinity is zero, so {key} gets nothing. Your browser did the same from q and k: off by "
        "{error} at most."
    ),
    "steps.5": N_(
        "Each value is multiplied by its weight ({share} for {key}), and all are added: {d} "
        "numbers that this head hands on. Another matrix joins the heads."
    ),
    "compare.asItIs": N_("as it is"),
    "compare.goesOn": N_("goes on, always with the likeliest token:"),
    "compare.facts": N_(
        "Over all positions both rank the same token first in {same} of cases; the distance of "
        "their distributions (KL) is {kl} nats in the mean. Measured."
    ),
    "without.hidden-scale": N_("divided by √hidden"),
    "without.no-mask": N_("without the mask"),
    "without.no-rotation": N_("without RoPE"),
    "without.same": N_("The likeliest next token stays {piece}."),
    "without.other": N_("The likeliest next token is now {piece}."),
    "scale.truth": N_(
        "Measured over {n} heads on your text: a token looks at {before} tokens in effect; with "
        "the larger divisor at {after}. Smaller scores make a flatter softmax. In effect means e "
        "to the mean entropy of the weights."
    ),
}  # fmt: skip

LESSON = Lesson(
    number=4,
    slug="attention",
    title=N_("Attention: how a token finds what it needs"),
    question=N_(
        "A token's vector knows nothing of its neighbours. How does “is” find out that the text "
        "is about Italy, and not about France?"
    ),
    guess=Guess(
        N_(
            "The article divides the scores by the root of the hidden size. Models divide by the "
            "root of the head's size, which is smaller. What happens to a head's weights if one "
            "does it the article's way?"
        ),
        (
            N_("Nothing: softmax turns any scores into the same weights."),
            N_("They become more even: each token looks around more."),
            N_("They become sharper: each token looks at one other."),
        ),
    ),
    tasks=(
        Task(
            "two-habits",
            N_(
                "Among all heads, open one that looks mostly at the token before, and one that "
                "looks mostly at the first token."
            ),
            N_(
                "Nobody built these habits in. Training found them: the one lets later layers see "
                "what came before a token, the other is where a head rests when nothing fits."
            ),
        ),
        Task(
            "follow",
            N_("Follow one query through all five steps, from q · k to the sum of values."),
            N_(
                "Two products, a division, a mask and a softmax: that is all a head does with "
                "its q, k and v."
            ),
        ),
        Task(
            "take-out",
            N_("Run the model with two of the three changes, one after the other."),
            N_(
                "The weights were trained for exactly this formula; a change that looks small can "
                "ruin the text."
            ),
        ),
    ),
    claims=("C08",),
    code=(
        CodeLink(
            "engine/inference/model/reference.py",
            "ReferenceModel._mix",
            N_("scores, mask, softmax and values, written as the formula"),
        ),
        CodeLink(
            "engine/inference/probes/attention.py",
            "attention_detail",
            N_("every number of one query of one head"),
        ),
        CodeLink(
            "engine/inference/probes/taps.py",
            "ablation_tap",
            N_("takes the mask, the scale or RoPE out of the running model"),
        ),
    ),
    teaching=Teaching(
        minutes=25,
        pitfalls=(
            N_(
                "“Attention” is taken for insight. A weight says where a value came from, not why "
                "the model answered as it did."
            ),
            N_(
                "The strong first column is taken for meaning. It is mostly a resting place: "
                "weights must sum to one, even if nothing fits (Xiao et al. 2023, "
                "arXiv 2309.17453)."
            ),
            N_("Heads and layers count from zero here, as they do in code."),
        ),
        questions=(
            N_("Why does each row sum to one, but no column?"),
            N_("Several query heads share one KV head here. What does that save, and where?"),
            N_("Without RoPE, why does the model still know a little about order? (The mask.)"),
        ),
    ),
    scripts=(
        "inside", "attention", "grid-keys", "shades", "heads", "head", "vector-bars", "steps",
        "query", "compare", "without",
    ),
    styles=("inside", "attention"),
    texts=_TEXTS,
    figures=figures,
)  # fmt: skip
