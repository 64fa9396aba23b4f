"""What a lesson is made of, beside its prose: a template of its own, and everything here."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

from webapp.i18n import N_, Language

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = Path(__file__).resolve().parent / "scripts"


class Basis(StrEnum):
    """What kind of number stands there."""

    MEASURED = N_("measured")
    PREDICTED = N_("predicted")
    PUBLISHED = N_("published")
    COMPUTED = N_("computed")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number in a lesson's prose, with where it comes from.

    ``text`` is the number with its unit as it is shown; ``source`` a sentence (English, ``N_``)
    that names the formula, the catalogue's entry or the publication.
    """

    text: str
    basis: Basis
    source: str


@dataclass(frozen=True, slots=True)
class Task:
    """Something to do in a widget, which completes by being done.

    ``name`` is unique within the lesson; the lesson's scripts report it. ``text`` says what to do,
    ``found`` what the reader has seen once it is done (both English, ``N_``).
    """

    name: str
    text: str
    found: str


@dataclass(frozen=True, slots=True)
class Guess:
    """A prediction that the reader makes before anything is measured.

    ``choices`` are shown in this order; none of them is marked as the right one here: the lesson's
    script measures, and then says which it was.
    """

    question: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CodeLink:
    """A function or class of ours: ``path`` from the project's root, ``name`` as ``Class.method``;
    ``does`` says in a few words what it does for this lesson (English, ``N_``)."""

    path: str
    name: str
    does: str

    @property
    def address(self) -> str:
        """The page that shows it, below ``/source``."""
        return f"/source/{self.path}?name={self.name}"


@dataclass(frozen=True, slots=True)
class Teaching:
    """For teachers: minutes in class, what goes wrong, questions to ask (English, ``N_``)."""

    minutes: int
    pitfalls: tuple[str, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lesson:
    """One of the twelve.

    ``template`` is ``templates/lessons/<slug>.html``; ``scripts`` and ``styles`` are its own files
    below ``static/js/lessons`` and ``static/css/lessons``; ``texts`` are what its scripts say, by
    key, a tuple for (one, other). ``figures`` computes the numbers of its prose, by name. The call
    that gives the same numbers stands in ``scripts/<slug>.sh`` and ``scripts/<slug>.py``.
    ``borrows`` are texts of the first page that its scripts say as well, by how their keys begin;
    ``shows`` gives what its template shows beside all this, by name, in a reader's language.
    """

    number: int
    slug: str
    title: str
    question: str
    guess: Guess
    tasks: tuple[Task, ...]
    claims: tuple[str, ...]
    code: tuple[CodeLink, ...]
    teaching: Teaching
    scripts: tuple[str, ...]
    styles: tuple[str, ...] = ()
    texts: Mapping[str, str | tuple[str, str]] = field(
        default_factory=dict[str, "str | tuple[str, str]"]
    )
    figures: Callable[[], Mapping[str, Figure]] = dict
    borrows: tuple[str, ...] = ()
    shows: Callable[[Language], Mapping[str, object]] = lambda _: {}

    @property
    def curl(self) -> str:
        """The call in a shell; ``$SERVICE`` is this service's address."""
        return (SCRIPTS / f"{self.slug}.sh").read_text("utf-8")

    @property
    def python(self) -> str:
        """The same call in Python; ``SERVICE`` in the environment is this service's address."""
        return (SCRIPTS / f"{self.slug}.py").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class SourceCode:
    """The lines of a definition: ``first`` is the number of its first line in the file."""

    first: int
    text: str


@cache
def source_code(path: str, name: str) -> SourceCode:
    """The definition ``name`` (``function``, ``Class``, ``Class.method`` or a constant) of a file.

    Raises:
        LookupError: the file defines no such name.
    """
    text = (ROOT / path).read_text("utf-8")
    body: list[ast.stmt] = ast.parse(text).body
    node: ast.stmt | None = None
    for part in name.split("."):
        node = next((item for item in body if part in _names(item)), None)
        if node is None:
            raise LookupError(f"{path} defines no {name}")
        body = node.body if isinstance(node, ast.ClassDef) else []
    if node is None:
        raise LookupError(f"{path}: no name was given")
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    lines = text.splitlines()[first - 1 : node.end_lineno]
    return SourceCode(first, "\n".join(lines))


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]
