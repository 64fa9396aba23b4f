"""Lesson 1: the loop, by hand."""

from __future__ import annotations

from webapp.i18n import N_
from webapp.lessons.lesson import CodeLink, Guess, Lesson, Task, Teaching

LESSON = Lesson(
    number=1,
    slug="loop",
    title=N_("The loop: one token, then the next"),
    question=N_(
        "A language model does not write sentences. It answers one question, over and over: what "
        "comes next?"
    ),
    guess=Guess(
        N_("You ask for twelve tokens. How often does the whole model run?"),
        (
            N_("Once: the answer comes out whole"),
            N_("Once for each word"),
            N_("Once for each token"),
        ),
    ),
    tasks=(
        Task(
            "step",
            N_("Begin, then press Space five times. Watch one token come with each press."),
            N_(
                "Each press runs all layers of the model and gives one token. It joins the text, "
                "and the next press reads it too."
            ),
        ),
        Task(
            "other",
            N_("Take a token that is not the likeliest, then go on for four more."),
            N_(
                "The model does not know who chose. It goes on from the text as it stands, whoever "
                "wrote it."
            ),
        ),
        Task(
            "ways",
            N_("Go back to a fork, take another branch, and give both at least four tokens."),
            N_("One token changes the text that all later ones are computed from."),
        ),
        Task(
            "end",
            N_("Ask a short question as a chat, and step until the model ends its answer."),
            N_(
                "The end is a token like any other: the model gives it a probability, and the "
                "program stops when it is chosen."
            ),
        ),
    ),
    claims=("C01",),
    code=(
        CodeLink(
            "engine/scheduling/loop.py",
            "SchedulingLoop.step",
            N_("One turn of the loop as this service runs it: plan, execute, book."),
        ),
        CodeLink(
            "engine/scheduling/scheduler.py",
            "Scheduler.append",
            N_("The chosen token joins its text."),
        ),
        CodeLink(
            "engine/inference/sampling.py",
            "Sampler.sample",
            N_("Scores of the last position in, one token out."),
        ),
        CodeLink(
            "engine/inference/probes/session.py",
            "ProbeSession.next_token",
            N_("The distribution that you see here, from one pass over the text."),
        ),
    ),
    teaching=Teaching(
        20,
        (
            N_(
                "Learners think that the model has its sentence ready and types it. Let them take "
                "an unlikely token: the text goes on from there as if it had been meant."
            ),
            N_(
                "A probability is not a measure of truth. It says how well a token would go on "
                "from this text, by what the model has learnt."
            ),
            N_(
                "Each press here computes the whole text again. The running service does not: the "
                "lesson on the KV cache shows what it keeps."
            ),
        ),
        (
            N_("Where does the model keep what it has said so far?"),
            N_("What would have to change so that it could take back a token?"),
            N_("Two readers take the same tokens in the same order. Can their next lists differ?"),
        ),
    ),
    scripts=("loop", "loop-tree", "loop-text", "loop-list", "tok"),
    styles=("tokens", "loop"),
    texts={
        "loop.waits": N_("The engine is not ready yet. The loop can begin when it is."),
        "loop.ready": N_("The engine is ready: begin."),
        "loop.empty": N_("Write a beginning first."),
        "loop.running": (
            N_("The model runs over {n} token…"),
            N_("The model runs over {n} tokens…"),
        ),
        "loop.ran": (
            N_("Asked about {n} token, it answered after {time}: measured here, there and back."),
            N_("Asked about {n} tokens, it answered after {time}: measured here, there and back."),
        ),
        "loop.ended": N_(
            "{piece} is a control token, no text: programs take it as the end of an answer, and "
            "the loop stops. Go back to take another."
        ),
        "loop.full": N_("A look inside the model takes at most {max} tokens. Go back to go on."),
        "loop.long": N_("A look inside the model takes at most {max} tokens. Shorten your text."),
        "loop.taken": N_("Taken: {taken}. Likeliest next: {next}, {p}."),
        "loop.first": N_("Likeliest next: {next}, {p}."),
        "loop.others": (N_("{n} other token"), N_("{n} other tokens")),
        "loop.option": N_("{piece}, {p}"),
        "loop.option.end": N_("{piece}, {p}, a control token"),
        "loop.earlier": (N_("{n} earlier token"), N_("{n} earlier tokens")),
        "loop.prompt": N_("prompt"),
        "loop.rank": N_("number {n} by probability"),
        "loop.likeliest": N_("the likeliest"),
        "loop.way": N_("After {n} tokens in common: {text}"),
        "loop.truth": N_(
            "Measured just now: the model ran {steps} times for {tokens} tokens, which make "
            "{words} words: “{text}”"
        ),
    },
)
