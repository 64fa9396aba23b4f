"""Lesson 12: all together, from key press to pixel, and the question that it is all for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from webapp.i18n import N_, Language, texts
from webapp.lessons.lesson import CodeLink, Guess, Lesson, Task, Teaching
from webapp.pages.cases import CASES, CaseView, case_view
from webapp.pages.diagnose_view import DiagnoseQuestion, diagnose_form
from webapp.pages.elsewhere import measured_device


@cache
def _cases(language: Language) -> tuple[CaseView, ...]:
    said = texts(language)
    return tuple(case_view(case, said) for case in CASES)


def _shows(language: Language) -> Mapping[str, object]:
    return {
        "cases": _cases(language),
        "diagnosis": diagnose_form(DiagnoseQuestion()),
        "measured_device": measured_device,
    }


LESSON = Lesson(
    number=12,
    slug="diagnose",
    title=N_("All together: slow to start, or slow to stream?"),
    question=N_("Somebody says that their model is slow. What do you ask first?"),
    guess=Guess(
        N_(
            "You press Run, and some time later the first letters of the answer stand on the "
            "screen. Where does most of that time go?"
        ),
        (
            N_("Before the model: key, network, tokenizing, waiting."),
            N_("In the model: embedding and prefill."),
            N_("After the model: back to text, network, painting."),
        ),
    ),
    tasks=(
        Task(
            "journey",
            N_("Send a prompt of your own on its way, and read the time of each station."),
            N_(
                "What the model takes is what this course is about: prefill before the first "
                "token, decode steps after it. What stands around it is measured beside it; over "
                "a slow network it can outweigh the rest."
            ),
        ),
        Task(
            "spell",
            N_(
                "Cut a text into tokens in which a character takes several of them, and let them "
                "come one by one to the end."
            ),
            N_(
                "Some tokens put nothing on the screen. A gap that you see can be two steps long, "
                "although the model kept its pace."
            ),
        ),
        Task(
            "cases",
            N_("Solve three of the cases: say rightly what is slow."),
            N_(
                "Two numbers told you where to look. Which cause it is, they do not always say: a "
                "second measurement, at another prompt or batch, would."
            ),
        ),
        Task(
            "own",
            N_("Have your own numbers diagnosed, or those of your run above."),
            N_("The bound, the gap to the roofline, the likely causes, and what would help most."),
        ),
    ),
    claims=("C19", "C25"),
    code=(
        CodeLink(
            "webapp/live/generation.py",
            "Generation",
            N_("carries one prompt from the connection to the engine and its events back"),
        ),
        CodeLink(
            "engine/scheduling/loop.py",
            "SchedulingLoop.step",
            N_("one step: plan, execute, commit, tell"),
        ),
        CodeLink(
            "engine/inference/detokenizer.py",
            "StreamDetokenizer",
            N_("holds bytes back until a character is whole"),
        ),
        CodeLink(
            "engine/simulator/diagnosis/diagnose.py",
            "diagnose",
            N_("compares two measured times with what is typical, and weighs causes"),
        ),
    ),
    teaching=Teaching(
        minutes=25,
        pitfalls=(
            N_(
                "“Slow” without a number. Ask for both times before anybody says a word about "
                "hardware."
            ),
            N_(
                "A long answer that takes long is not a fault. Compare the gap between tokens, not "
                "the total."
            ),
            N_(
                "Times measured in a browser include its network. The engine's own clock tells "
                "which part is the model's."
            ),
        ),
        questions=(
            N_("Which stations would grow if the prompt were ten times as long? Which would not?"),
            N_("Why does the answer's first character sometimes come after its second token?"),
            N_("A service has a short TTFT and a long ITL. What would you measure next?"),
        ),
    ),
    scripts=("diagnose_journey", "diagnose_spell", "diagnose_own"),
    texts={
        "journey.guess": N_("Guess first: choose one of the answers."),
        "journey.truth": N_(
            "Measured: of {total} to the first token on the screen, {before} passed before the "
            "model, {model} in it, {after} after it."
        ),
        "journey.words": N_(
            "From the key press to the first token on the screen: {total}, {share} of it in the "
            "engine."
        ),
        "journey.loop": N_("Decode steps after it: {steps}, {mean} each on average."),
        "journey.silent": N_(
            "Tokens that showed nothing when they came: {silent}. Their text waited for a whole "
            "character."
        ),
        "journey.whole": N_("Every token showed its text at once."),
        "spell.begin": N_("Tokens: {n}. Let them come one by one."),
        "spell.waits": N_(
            "Token {at} of {n}, id {id}, ends inside a character: {bytes} waits for what follows."
        ),
        "spell.shows": N_("Token {at} of {n}, id {id}, bytes {bytes}: now “{text}” can be shown."),
        "case.both": N_("solved"),
        "case.phase": N_("what is slow: solved; why: not yet"),
        "own.notHere": N_(
            "This machine has not been measured, or the catalogue does not know its model: type "
            "the numbers of another one."
        ),
        "own.taken": N_("Taken: the last run's times, on this machine."),
    },
    shows=_shows,
)
