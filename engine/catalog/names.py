"""What to say of an id that no catalogue has."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from engine.errors import UnknownName

# A longer id is no slip of the finger, and comparing takes time that grows with it.
_LONGEST_COMPARED = 64


def unknown_id(field: str, wanted: str, known: Iterable[str]) -> UnknownName:
    """The error for an id that ``field`` ("model", "hardware") does not have.

    It names the most similar ids there are, never the one that was asked for.
    """
    near = get_close_matches(wanted.lower()[:_LONGEST_COMPARED], known, n=3, cutoff=0.5)
    hint = f"similar ones: {', '.join(near)}" if near else "nothing similar is in it"
    return UnknownName(
        f"the catalogue has no {field} of this id; {hint}. "
        f"All ids: python -m engine inspect {_LISTS[field]}, or GET /api/v1/{_LISTS[field]}",
        field=field,
    )


_LISTS = {"model": "models", "hardware": "hardware"}
