"""Lesson 11: serving many."""

from __future__ import annotations

from webapp.i18n import N_
from webapp.lessons.lesson import CodeLink, Guess, Lesson, Task, Teaching

LESSON = Lesson(
    number=11,
    slug="serving",
    title=N_("Serving many"),
    question=N_("How can one device answer many people at once, and what does each of them pay?"),
    guess=Guess(
        N_(
            "One person gets an answer alone. Then four people ask at the same moment, for answers "
            "as long. How long until the last of the four has theirs?"
        ),
        (
            N_("at most one and a half times as long"),
            N_("one and a half to three times as long"),
            N_("more than three times as long"),
        ),
    ),
    tasks=(
        Task(
            "together",
            N_("Guess, then run one person alone and four together."),
            N_("A step reads the weights once, however many people it computes a token for."),
        ),
        Task(
            "interleave",
            N_("Add a long prompt while others stream, then step through the shared steps."),
            N_("In one step some read their prompt while others get their next token."),
        ),
        Task(
            "prefix",
            N_("Ask two questions with the same beginning."),
            N_("The second found the beginning's keys and values, and began sooner."),
        ),
        Task(
            "drafts",
            N_("Run a prompt with drafts, and find one that was struck out."),
            N_("Right drafts saved a step each; wrong ones cost a little. The text is the same."),
        ),
    ),
    claims=("C20",),
    code=(
        CodeLink(
            "engine/scheduling/scheduler.py",
            "Scheduler.plan",
            N_("chooses who runs in the next step: continuous batching in one function."),
        ),
        CodeLink(
            "engine/scheduling/scheduler.py",
            "Scheduler._who_yields",
            N_("says whose blocks are taken when memory runs out."),
        ),
        CodeLink(
            "engine/scheduling/sharing.py",
            "take_over",
            N_("finds the blocks of a beginning that is known already."),
        ),
        CodeLink(
            "engine/scheduling/drafting.py",
            "add_drafts",
            N_("puts drafts into a step that has room for them."),
        ),
    ),
    teaching=Teaching(
        25,
        (
            N_(
                "“Requests are collected, run as one batch, and returned together.” That is static "
                "batching. Here anybody joins at the next step and leaves when done."
            ),
            N_(
                "“A batch is free.” It is nearly free while a step is bound by the weights it "
                "reads. Each person's cache is read as well, and compute runs out in the end."
            ),
            N_(
                "“Wrong drafts spoil the text.” A draft counts only if the model would have chosen "
                "it. Compare both texts token by token."
            ),
            N_(
                "“The model's own first layers must draft well.” They do in models that were "
                "trained for it. This one was not: look at how few of their drafts are accepted."
            ),
            N_(
                "On a loaded machine four together may take longer than they should. Run it again "
                "when the class is quiet."
            ),
        ),
        (
            N_("What is read once a step, and what once a person?"),
            N_("Whom does a long prompt slow down, and how could that be made gentler?"),
            N_("For which texts are drafts easy? Why do they help less in a large batch?"),
            N_("When memory runs out, whose answer would you stop, and what is lost by it?"),
        ),
    ),
    scripts=("serve-together", "pool", "serve-prefix", "serve-drafts"),
    styles=("strips", "pool", "serving"),
    texts={
        "serve.alone": N_("Alone"),
        "serve.person": N_("Person {n}"),
        "serve.long": N_("Long prompt {n}"),
        "serve.row.sent": N_("sent"),
        "serve.row.waiting": N_("waits for its first token"),
        "serve.row": N_("tokens: {n} · TTFT {ttft} · ITL {itl} · longest gap {worst}"),
        "serve.step": N_("Step {n} of {total}, {time}."),
        "serve.part.prefill": N_("{name}: prompt tokens read: {n}."),
        "serve.part.decode": N_("{name}: next token."),
        "serve.part.recompute": N_("{name}: tokens computed again: {n}."),
        "serve.part.others": N_("People elsewhere: {n}."),
        "serve.sum": N_(
            "Of {n} steps, {shared} were shared, by up to {most}. A step takes whoever is there."
        ),
        "serve.truth": N_(
            "Measured just now: the last of four was done after {ratio} times the {alone} that one "
            "takes alone. That is {rate} times the tokens a second."
        ),
        "drafts.right": N_("draft “{piece}”, accepted"),
        "drafts.not": N_("draft “{piece}”, rejected"),
        "drafts.now.plain": N_("Running without drafts…"),
        "drafts.now.drafts": N_("Running with drafts…"),
        "drafts.row.accepted": N_("drafts accepted, of drafts"),
        "drafts.row.steps": N_("steps after the first token, with drafts and without"),
        "drafts.row.perStep": N_("tokens a step"),
        "drafts.row.time": N_("time after the first token, with drafts and without"),
        "drafts.row.same": N_("tokens that are the same"),
        "drafts.found.none": N_(
            "Nothing was drafted: the text never repeated itself. Try one that does."
        ),
        "drafts.found.faster": N_(
            "With drafts by {method}, this answer was {ratio} times as fast."
        ),
        "drafts.found.slower": N_(
            "With drafts by {method}, this answer took {ratio} times as long: making and verifying "
            "them cost more than they saved."
        ),
        "prefix.row": N_("{name} — found: {found} tokens, computed: {computed}, TTFT {time}"),
        "prefix.now": N_("Running question {n}…"),
        "prefix.hit": N_(
            "The second question found {n} tokens in the cache. TTFT: {first}, then {second}."
        ),
        "prefix.none": N_(
            "Nothing was found: only whole blocks are shared, so the beginning must be longer."
        ),
        "prefix.known": N_(
            "The first found some as well: you, or somebody else, asked with this beginning before."
        ),
    },
)
