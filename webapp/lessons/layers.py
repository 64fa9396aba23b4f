"""Lesson 5: layers, the residual stream and the feed-forward network."""

from __future__ import annotations

from collections.abc import Mapping

from engine.catalog.models import all_models
from webapp.i18n import N_, Language
from webapp.lessons.lesson import Basis, CodeLink, Figure, Guess, Lesson, Task, Teaching
from webapp.pages.layers_view import MOST_POWER, USUAL_POWER


def figures() -> Mapping[str, Figure]:
    """The fewest and the most layers of the catalogue."""
    counts = [model.num_layers for model in all_models()]
    source = N_("The catalogue's models: num_layers of each, with its source beside it.")
    return {
        "fewest": Figure(str(min(counts)), Basis.PUBLISHED, source),
        "most": Figure(str(max(counts)), Basis.PUBLISHED, source),
    }


def shows(_: Language) -> Mapping[str, object]:
    """What the form offers."""
    return {"models": all_models(), "most_power": MOST_POWER, "usual_power": USUAL_POWER}


_TEXTS: Mapping[str, str | tuple[str, str]] = {
    "inside.reading": N_("The model reads your text…"),
    "inside.waiting": N_("The engine is not ready yet. The picture comes by itself."),
    "inside.read": N_("Tokens: {n}, read by the model just now."),
    "lens.after": N_("layer"),
    "lens.embedding": N_("the embedding"),
    "lens.embeddingShort": N_("emb."),
    "lens.layer": N_("layer {layer}"),
    "lens.cell": N_("After {where}, {token} would be followed by {piece} ({share})."),
    "lens.others": N_("{list}. Entropy {entropy} nats, measured."),
    "lens.truth": N_(
        "Measured at the last {n} tokens of your text: in the median {depth} of {layers} layers "
        "have to pass until the likeliest token is the final one and stays."
    ),
    "stream.x": N_("layer"),
    "stream.y": N_("length of the vector"),
    "stream.facts": N_(
        "Measured: {first} after the embedding, {last} at the end, {largest} at its longest, "
        "after {where}."
    ),
    "skip.without": N_("without layer {layer}"),
    "skip.same": N_("The likeliest next token stays {piece}."),
    "skip.other": N_("The likeliest next token is now {piece}."),
    "compare.asItIs": N_("as it is"),
    "compare.goesOn": N_("goes on, always with the likeliest token:"),
    "compare.facts": N_(
        "Over all positions both rank the same token first in {same} of cases; the distance of "
        "their distributions (KL) is {kl} nats in the mean. Measured."
    ),
    "ffn.shape": N_("{rows} × {columns}"),
    "ffn.facts": N_(
        "The {n} largest of {width} inner numbers hold {share} of all their squares at {piece}; "
        "the network adds a vector of length {added}. Measured."
    ),
    "parts.tokens": N_("{n} tokens"),
}

LESSON = Lesson(
    number=5,
    slug="layers",
    title=N_("Thirty layers and the feed-forward network"),
    question=N_(
        "A model is the same small block, many times over. What does each one add, and where in "
        "the stack does the answer appear?"
    ),
    guess=Guess(
        N_(
            "If the model had to stop after some layer, where in the stack would its likeliest "
            "next token already be the final one, and stay so?"
        ),
        (
            N_("In the first third: the rest only polishes."),
            N_("In the middle third."),
            N_("In the last third: it is open until late."),
        ),
    ),
    tasks=(
        Task(
            "decided",
            N_("In the grid, find and open the cell where a column is decided for the first time."),
            N_("Where a column is decided differs from token to token; every token still pays for "
               "all layers."),
        ),
        Task(
            "skip",
            N_("Leave out two different layers, one after the other."),
            N_("A layer in the middle often changes little on its own; without the first one, "
               "little sense is left."),
        ),
        Task(
            "units",
            N_("Look into the feed-forward network of three layers."),
            N_("Of many inner numbers a few stand out, and which ones depends on the token and on "
               "the layer."),
        ),
        Task(
            "compare",
            N_("Divide another model into its parts."),
            N_("In large models the feed-forward networks hold most; in small ones the embedding "
               "takes a good part."),
        ),
    ),
    claims=("C09",),
    code=(
        CodeLink(
            "engine/inference/model/reference.py",
            "ReferenceModel.layer",
            N_("a layer: two additions to the stream"),
        ),
        CodeLink(
            "engine/inference/model/reference.py",
            "ReferenceModel._activated",
            N_("gate, up and their product"),
        ),
        CodeLink(
            "engine/inference/probes/stream.py",
            "lens_rows",
            N_("the logit lens"),
        ),
        CodeLink(
            "engine/catalog/parameters.py",
            "layer_parameters",
            N_("the parameters of a layer, part by part"),
        ),
    ),
    teaching=Teaching(
        minutes=25,
        pitfalls=(
            N_(
                "The logit lens is read as what the model thinks. It shows which token an "
                "unfinished stream would give, read with the final norm and the LM head, which "
                "were made for the finished one."
            ),
            N_(
                "“The feed-forward network holds the facts” is a working idea with evidence for it "
                "(Geva et al. 2021, arXiv 2012.14913), not a law: attention layers matter for "
                "recall too."
            ),
            N_(
                "A very long stream at the first token looks like a fault. Such massive "
                "activations are known (Sun et al. 2024, arXiv 2402.17762)."
            ),
        ),
        questions=(
            N_("Why can a layer be left out at all, and why not the first?"),
            N_("Why does a decode step move nearly all parameters, but a prefill no more bytes of "
               "weights than that?"),
            N_("What would change if layers replaced the stream instead of adding to it?"),
        ),
    ),
    scripts=(
        "inside", "layers", "grid-keys", "lens", "stream", "compare", "skip", "ffn", "parts",
    ),
    styles=("inside", "layers"),
    texts=_TEXTS,
    figures=figures,
    shows=shows,
)  # fmt: skip
