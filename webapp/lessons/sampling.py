"""Lesson 6: from scores to a token."""

from __future__ import annotations

from webapp.i18n import N_
from webapp.lessons.lesson import CodeLink, Guess, Lesson, Task, Teaching

LESSON = Lesson(
    number=6,
    slug="sampling",
    title=N_("Choosing a token"),
    question=N_(
        "The model ends with a score for every token it knows. Which one is written, and who "
        "decides?"
    ),
    guess=Guess(
        N_(
            "Temperature one, nothing cut, a thousand draws after the beginning above. How many of "
            "them are not the likeliest token?"
        ),
        (
            N_("None: the likeliest always comes"),
            N_("Some, but fewer than half"),
            N_("More than half"),
        ),
    ),
    tasks=(
        Task(
            "draw",
            N_("Draw a thousand at temperature 1, with a token among them that is not the first."),
            N_(
                "The likeliest token comes about as often as its probability says, and no more. To "
                "sample is not to take the best."
            ),
        ),
        Task(
            "freeze",
            N_("Lower the temperature until a thousand draws give one token only."),
            N_(
                "A low temperature stretches the distances between scores. At zero nothing is "
                "drawn: the likeliest is taken."
            ),
        ),
        Task(
            "cut",
            N_(
                "At temperature 1.5, see how many tokens top-p 0.9 leaves; then, with top-p off, "
                "min-p 0.1."
            ),
            N_(
                "Heat spreads the probability over the long tail, so top-p has to let many tokens "
                "in. Min-p compares with the likeliest token and leaves the tail out."
            ),
        ),
        Task(
            "answers",
            N_("Let the engine write all four, and find where they part."),
            N_(
                "Until the first different token the answers are one. From there each goes on from "
                "a text of its own."
            ),
        ),
    ),
    claims=("C10",),
    code=(
        CodeLink(
            "engine/inference/sampling_draw.py",
            "_place",
            N_("Top-k, top-p, min-p and the draw, as the engine does them."),
        ),
        CodeLink(
            "engine/inference/sampling_draw.py",
            "draw_",
            N_("Temperature, and the tokens that have to be looked at."),
        ),
        CodeLink(
            "engine/inference/sampling_draw.py",
            "uniform",
            N_("The number that decides: from the seed and the position, and nothing else."),
        ),
        CodeLink(
            "engine/inference/sampling_shaping.py",
            "Shaper.shape_",
            N_("What comes before temperature: penalties, biases and masks."),
        ),
        CodeLink(
            "engine/inference/probes/session.py",
            "ProbeSession.next_token",
            N_("The scores of the whole vocabulary that you play with here."),
        ),
    ),
    teaching=Teaching(
        25,
        (
            N_(
                "Learners take temperature for a dial of creativity or of truth. It is a divisor "
                "of scores; let them read the entropy while they move it."
            ),
            N_(
                "Temperature and top-p are often turned together, and then nobody knows which one "
                "did it. Move one at a time."
            ),
            N_(
                "The order matters and differs between programs: some apply temperature last. The "
                "same numbers then keep other tokens."
            ),
        ),
        (
            N_("After a sure beginning and after an open one: which setting leaves equally many?"),
            N_("Why does temperature alone never change which token is the likeliest?"),
            N_("When is the likeliest answer a poor answer?"),
        ),
    ),
    scripts=(
        "sampling",
        "sampling-shape",
        "sampling-settings",
        "sampling-picture",
        "sampling-bars",
        "sampling-answers",
        "tok",
    ),
    styles=("tokens", "sampling"),
    texts={
        "sampling.waits": N_("The engine is not ready yet. You can begin when it is."),
        "sampling.ready": N_("The engine is ready: run the model."),
        "sampling.empty": N_("Write a beginning first."),
        "sampling.running": N_("The model runs…"),
        "sampling.ran": N_("Scores for {n} tokens, from one run just now."),
        "sampling.off": N_("off"),
        "sampling.greedy": N_("0, greedy"),
        "sampling.picture": N_(
            "Probability against rank, both on logarithmic axes: {kept} of {n} tokens can be drawn."
        ),
        "sampling.axes": N_("probability ↑ · rank →"),
        "sampling.cut": N_("cut by {filter}"),
        "sampling.cut.cold": N_("not taken at temperature 0"),
        "sampling.cut.others": N_("all cut"),
        "sampling.others": (N_("{n} other token"), N_("{n} other tokens")),
        "sampling.rank": N_("number {n} by probability"),
        "sampling.likeliest": N_("the likeliest"),
        "sampling.first": N_("The likeliest is {piece}, {p}."),
        "sampling.drawn": (
            N_("{n} draw, counted: {others} not the likeliest, {kinds} different tokens."),
            N_("{n} draws, counted: {others} not the likeliest, {kinds} different tokens."),
        ),
        "sampling.truth": N_(
            "Of {n} draws just now, {others} were not the likeliest token. That is {piece}, and "
            "its probability is {p}."
        ),
        "sampling.greedy.row": N_("always the likeliest"),
        "sampling.seed": N_("drawn, seed {seed}"),
        "sampling.instead": N_("{p}; the likeliest was {piece}"),
        "sampling.part": N_("The three drawn answers part at token {n}, measured just now."),
        "sampling.together": N_("The three drawn answers are the same, measured just now."),
        "sampling.failed": N_("Not every answer came to its end. Write them again."),
    },
)
