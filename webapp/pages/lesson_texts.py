"""Texts that the scripts of every lesson put on the page; a lesson's own stand with the lesson."""

from __future__ import annotations

from collections.abc import Mapping

from webapp.i18n import N_

LESSON_TEXTS: Mapping[str, str | tuple[str, str]] = {
    "lesson.task.done": N_("Done: {task}"),
    "lesson.all.done": N_("All tasks of this lesson are done."),
    "lesson.guess.yours": N_("Your guess: {guess}."),
    "lesson.guess.right": N_("As you guessed."),
    "lesson.guess.wrong": N_("Not as you guessed."),
    "lesson.running": N_("Running…"),
    "lesson.empty": N_("Write something first."),
    "lesson.measured": N_("measured"),
    "lesson.predicted": N_("predicted"),
    "lesson.computed": N_("computed"),
    "progress.tasks": N_("{done} of {n} tasks"),
    "progress.complete": N_("complete"),
    "progress.reset": N_("Progress was deleted from this browser."),
}
