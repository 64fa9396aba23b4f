"""Lesson 3: tokens become vectors, and where position comes in."""

from __future__ import annotations

from collections.abc import Mapping

from engine.catalog.models import get_model
from engine.catalog.words import word_vectors
from webapp.i18n import N_
from webapp.lessons.lesson import Basis, CodeLink, Figure, Guess, Lesson, Task, Teaching

RUNNING = "smollm2-135m"


def _figures() -> Mapping[str, Figure]:
    """Sizes that the prose names, from the catalogue and from the vectors themselves."""
    model = get_model(RUNNING)
    large = get_model("llama-3.1-8b")
    vectors = word_vectors()
    catalogue = N_("The model's configuration, as in the catalogue of this project.")
    glove = N_(
        "GloVe 6B (Pennington, Socher, Manning 2014): the most frequent words of its vocabulary."
    )
    return {
        "table": Figure(f"{model.vocab_size:,} × {model.hidden_size}", Basis.PUBLISHED, catalogue),
        "large_table": Figure(
            f"{large.vocab_size:,} × {large.hidden_size:,}", Basis.PUBLISHED, catalogue
        ),
        "pairs": Figure(str(model.head_dim // 2), Basis.COMPUTED, N_("Half of head_dim.")),
        "words": Figure(f"{len(vectors.words):,}", Basis.COMPUTED, glove),
        "word_dimensions": Figure(str(vectors.dimensions), Basis.COMPUTED, glove),
    }


LESSON = Lesson(
    number=3,
    slug="vectors",
    title=N_("Tokens become vectors, and where position comes in"),
    question=N_(
        "An id is only a name. What does the model compute with, and how does it know which "
        "token came first?"
    ),
    guess=Guess(
        N_("The same word stands at two places of a prompt. Where do the two first differ?"),
        (
            N_("In the table: each position has its own copy of the word."),
            N_("Right after the table: a position vector is added to the row."),
            N_("Inside attention: the query and the key are turned by their position."),
            N_("Nowhere: the model sees a bag of words."),
        ),
    ),
    tasks=(
        Task(
            "rows",
            N_("Look at the rows of two different tokens of your prompt."),
            N_(
                "A row is copied, not computed: no arithmetic, only a read of one row out of the "
                "whole table."
            ),
        ),
        Task(
            "neighbours",
            N_("Ask both tables for the neighbours of one word, and then for a sum of words."),
            N_(
                "Word vectors put meanings side by side. The model's own table also puts "
                "spellings side by side, since it has to write them."
            ),
        ),
        Task(
            "distance",
            N_("Turn the dial: move both positions by the same amount."),
            N_(
                "The score stays as it is: of the two positions, only how far apart they are "
                "counts."
            ),
        ),
        Task(
            "without",
            N_("Run the model without its rotations."),
            N_(
                "The weights are the same. Only the mask still tells a little about order, since "
                "it hides what comes later; this model was not trained to make do with that."
            ),
        ),
    ),
    claims=("C05", "C06", "C07"),
    code=(
        CodeLink(
            "engine/inference/probes/embeddings.py",
            "EmbeddingTable.rows",
            N_("copies rows out of the table"),
        ),
        CodeLink(
            "engine/inference/probes/embeddings.py",
            "EmbeddingTable.neighbours",
            N_("finds the rows with the largest cosine"),
        ),
        CodeLink("engine/inference/model/rope.py", "rotate_", N_("turns queries and keys")),
        CodeLink(
            "engine/inference/probes/attention.py",
            "rotation",
            N_("reads the angles off the tensors"),
        ),
    ),
    teaching=Teaching(
        25,
        (
            N_(
                "“Similar tokens are close” is half true of a language model's table: spelling "
                "variants and other scripts are often closer than synonyms."
            ),
            N_(
                "A two-dimensional map loses a large part of the distances. The share of the "
                "variance that it keeps stands below it."
            ),
            N_(
                "RoPE is not added to the embedding. It turns queries and keys in every layer, and "
                "leaves the values alone."
            ),
        ),
        (
            N_("Why does a look-up cost no arithmetic and yet take time?"),
            N_("What would be lost if positions were numbered from the end instead?"),
            N_("Why do fast pairs tell near positions apart, and slow ones far positions?"),
        ),
    ),
    scripts=("vector-rows", "vector-words", "vector-dial", "vector-order"),
    styles=("vectors",),
    texts={
        "rows.which": N_("{piece}, position {n}"),
        "rows.facts": N_(
            "Id {id}: row {id} of {rows} rows of {columns} numbers. The file keeps a row in "
            "{rowBytes} ({format}), the whole table in {tableBytes}. Length of the vector: {norm}. "
            "Arithmetic to get it: {flops} FLOP."
        ),
        "rows.hover": N_("number {n}: {value}"),
        "rows.first": N_("The first numbers"),
        "words.none": N_("One of these words is not a single token of this model."),
        "words.map": N_(
            "The two directions drawn hold {share} of the variance between these words' vectors."
        ),
        "words.mapTitle": N_("{n} words on a plane: {words}."),
        "dial.caption": N_(
            "Pair {pair} of {pairs}: each position turns it by {step}; a whole turn takes {wave} "
            "positions."
        ),
        "dial.query": N_("query “{piece}”, position {m}"),
        "dial.key": N_("key “{piece}”, position {n}"),
        "dial.hands": N_("q: {query}; k: {key}."),
        "dial.score": N_("Score of all pairs at positions {m} and {n}: {score}."),
        "dial.same": N_(
            "The distance is {distance} as before, and the score is the same to {digits} digits."
        ),
        "dial.moved": N_("The distance is {distance}; the score was {before} at distance {was}."),
        "dial.engine": N_(
            "At its own places in the prompt the model itself computed {score} (measured), the "
            "dial {dial}. Positions count from 0."
        ),
        "dial.axisDistance": N_("distance between query and key"),
        "dial.turns": N_("{degrees} degrees"),
        "order.next": N_("next token"),
        "order.goes": N_("goes on"),
        "order.kl": N_(
            "The two disagree by {kl} nats a position on average (KL divergence); at {share} of "
            "the positions they rank the same token first."
        ),
        "guess.truth": N_(
            "“{piece}” stands at positions {a} and {b}. Measured just now in the first layer: its "
            "two queries differ by {before} on average before the turn, and by {after} after it. "
            "The row is one and the same; the turn in attention is what differs."
        ),
        "guess.needs": N_("Give a prompt in which a word comes twice."),
    },
    figures=_figures,
)
