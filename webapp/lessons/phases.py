"""Lesson 7: two phases, prefill and decode."""

from __future__ import annotations

from collections.abc import Mapping

from webapp.i18n import N_, Language
from webapp.lessons.lesson import CodeLink, Guess, Lesson, Task, Teaching
from webapp.pages.elsewhere import measured_device
from webapp.pages.phases_view import lengths_form


def _shows(_: Language) -> Mapping[str, object]:
    return {"lengths": lengths_form(), "measured_device": measured_device}


LESSON = Lesson(
    number=7,
    slug="phases",
    title=N_("Two phases: prefill and decode"),
    question=N_("Why does the first word take so long, when the next ones come so fast?"),
    guess=Guess(
        N_(
            "Before the first token, the model works through every token of your prompt. Before "
            "each later one, it works through one token. How much longer does the first token take?"
        ),
        (
            N_("Hardly longer: it is one pass through the model either way."),
            N_("Longer, but by far fewer times than the prompt has tokens."),
            N_("About as many times longer as the prompt has tokens."),
        ),
    ),
    tasks=(
        Task(
            "run",
            N_("Run a prompt of your own and watch its two phases being drawn to scale."),
            N_(
                "Prefill is one wide block and ends with the first token. Decode is a row of "
                "narrow ones, a token each."
            ),
        ),
        Task(
            "steps",
            N_(
                "Step along the strip with the arrow keys: look at the prefill, then at a decode "
                "step, and find both on the roofline."
            ),
            N_(
                "The decode steps stand far left on the slope, at about one operation for each "
                "byte of 16-bit weights: memory sets their pace. The prefill does more "
                "arithmetic with each byte, almost as many times more as it has tokens, and "
                "stands that much further right."
            ),
        ),
        Task(
            "alone",
            N_(
                "Make the prompt at least twice as long and leave the answer. Then do the same "
                "with the answer and leave the prompt."
            ),
            N_(
                "The prompt's length moves the time to the first token. The answer's length moves "
                "the whole time, and hardly the gap between tokens."
            ),
        ),
        Task(
            "sweep",
            N_("Measure the time to the first token for several lengths of your prompt."),
            N_(
                "Far below the ridge point a token more in the prompt costs little: "
                "memory-bound. Far above it, the time grows in proportion to the length, or a "
                "little faster: bound by arithmetic. The gap between tokens rises only slowly."
            ),
        ),
    ),
    claims=("C11", "C12", "C21", "C24"),
    code=(
        CodeLink(
            "engine/scheduling/scheduler.py",
            "Scheduler.plan",
            N_("decides how many tokens of each request run in the next step"),
        ),
        CodeLink(
            "engine/simulator/roofline.py",
            "Roofline.price",
            N_("the time of a piece of work: the longer of arithmetic and memory"),
        ),
        CodeLink(
            "webapp/prediction.py",
            "StepPredictor.predict",
            N_("predicts each real step from the shapes that took part in it"),
        ),
        CodeLink(
            "webapp/pages/phases_forecast.py",
            "forecast",
            N_("adds up the steps of a prompt and an answer of any length"),
        ),
    ),
    teaching=Teaching(
        minutes=20,
        pitfalls=(
            N_(
                "“The first token is slow because of the network, or because the model thinks.” "
                "Let them double the prompt and see the time follow."
            ),
            N_(
                "“A long answer makes each token slower.” It adds tokens. For one reader, the "
                "gap grows only with the context, and slowly."
            ),
            N_(
                "“Memory-bound means that the memory is full.” It means that bytes cannot be read "
                "fast enough."
            ),
            N_(
                "Two people who measure at once on one machine measure each other as well: the "
                "strip marks the steps that were shared."
            ),
        ),
        questions=(
            N_("Which of the two times does a chat with a long system prompt suffer in?"),
            N_("Twice the bandwidth or twice the FLOP/s: what would each do to TTFT and to ITL?"),
            N_("From what length on is prefill bound by arithmetic here, and why from there?"),
            N_("Why can the utilization stand high in decode while the arithmetic is hardly used?"),
        ),
    ),
    scripts=("phases", "phases_use", "phases_lengths", "phases_sweep"),
    texts={
        "phases.guess": N_("Guess first: choose one of the answers."),
        "phases.truth": N_(
            "Measured: computing the first token took {first} (tokens of prompt: {n}), a later one "
            "{gap} (median). That is {ratio} times as long."
        ),
        "phases.one": N_(
            "Reading the weights took most of either pass, and both read them once. Try a longer "
            "prompt."
        ),
        "phases.some": N_(
            "All tokens of the prompt shared one reading of the weights, so each of them cost far "
            "less than a token of the answer."
        ),
        "phases.all": N_(
            "With so many tokens the arithmetic of each counts in full, and no sharing helps."
        ),
        "busy.words": N_(
            "A step was running for {prefillBusy} of the time in prefill and {decodeBusy} in "
            "decode: that is all that such a measure says. But prefill reached {prefill} of "
            "the peak arithmetic, and decode {decode}, at {mbu} of the bandwidth."
        ),
        "busy.step": N_("step {n}: {phase}"),
        "busy.unknown": N_(
            "A step was running for {prefillBusy} of the time in prefill and {decodeBusy} in "
            "decode. This machine's peaks were not measured, so MFU and MBU are not known."
        ),
        "lengths.prompt": N_("Prompt from {from} to {to} tokens:"),
        "lengths.output": N_("Answer from {from} to {to} tokens:"),
        "lengths.ttft": N_("TTFT {factor},"),
        "lengths.itl": N_("ITL {factor},"),
        "lengths.total": N_("the whole answer {factor}."),
        "lengths.same": N_("unchanged"),
        "lengths.times": N_("× {n}"),
        "lengths.measured": (
            N_(
                "Measured: {prompt} prompt tokens and {output} tokens of answer gave TTFT {ttft} "
                "and ITL {itl} (mean)."
            )
        ),
        "lengths.cut": N_("It was cut to what may run here at once."),
        "sweep.running": N_("{n} of {total}: about {tokens} tokens…"),
        "sweep.words": N_(
            "Measured: a prompt {prompt} times as long took {ttft} times as long to its first "
            "token. The gap between tokens became {itl} times as long."
        ),
    },
    borrows=("strip.", "batch.", "pause.", "roof.", "table.", "ttft.", "itl.", "predicted."),
    shows=_shows,
)
