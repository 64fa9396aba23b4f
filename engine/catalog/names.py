"""What to say of an id that no catalogue has."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from engine.errors import EngineError, UnknownName
from engine.refusals import refused

# A longer id is no slip of the finger, and comparing takes time that grows with it.
_LONGEST_COMPARED = 64


def unknown_id(field: str, wanted: str, known: Iterable[str]) -> EngineError:
    """The error for an id that ``field`` ("model", "hardware") does not have.

    It names the most similar ids there are, never the one that was asked for.
    """
    near = get_close_matches(wanted.lower()[:_LONGEST_COMPARED], known, n=3, cutoff=0.5)
    reasons = _REASONS[field]
    if not near:
        return refused(reasons[0], kind=UnknownName, field=field)
    return refused(reasons[1], kind=UnknownName, field=field, similar=", ".join(near))


_REASONS = {
    "model": ("no_such_model", "similar_model"),
    "hardware": ("no_such_hardware", "similar_hardware"),
}
