"""The lessons, in the order in which they are read."""

from __future__ import annotations

from webapp.lessons.attention import LESSON as ATTENTION
from webapp.lessons.diagnose import LESSON as DIAGNOSE
from webapp.lessons.kv_cache import LESSON as KV_CACHE
from webapp.lessons.layers import LESSON as LAYERS
from webapp.lessons.lesson import CodeLink, Lesson
from webapp.lessons.loop import LESSON as LOOP
from webapp.lessons.phases import LESSON as PHASES
from webapp.lessons.quantization import LESSON as QUANTIZATION
from webapp.lessons.sampling import LESSON as SAMPLING
from webapp.lessons.serving import LESSON as SERVING
from webapp.lessons.smaller_cache import LESSON as SMALLER_CACHE
from webapp.lessons.tokens import LESSON as TOKENS
from webapp.lessons.vectors import LESSON as VECTORS

LESSONS: tuple[Lesson, ...] = (
    LOOP,
    TOKENS,
    VECTORS,
    ATTENTION,
    LAYERS,
    SAMPLING,
    PHASES,
    KV_CACHE,
    SMALLER_CACHE,
    QUANTIZATION,
    SERVING,
    DIAGNOSE,
)


def get_lesson(slug: str) -> Lesson | None:
    """The lesson of that name; None if there is none."""
    return next((lesson for lesson in LESSONS if lesson.slug == slug), None)


def neighbours(lesson: Lesson) -> tuple[Lesson | None, Lesson | None]:
    """The lesson before and the one after."""
    place = LESSONS.index(lesson)
    before = LESSONS[place - 1] if place else None
    after = LESSONS[place + 1] if place + 1 < len(LESSONS) else None
    return before, after


def find_code(path: str, name: str) -> CodeLink | None:
    """The link of a lesson to that definition: nothing else of the code is shown."""
    for lesson in LESSONS:
        for code in lesson.code:
            if (code.path, code.name) == (path, name):
                return code
    return None
