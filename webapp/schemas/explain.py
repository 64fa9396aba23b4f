"""Turns pydantic's list of errors into field errors that name the fix and repeat no input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from webapp import json_codec
from webapp.problems import FieldError
from webapp.schemas.base import NAME_TAG, OBJECT_TAG
from webapp.schemas.serve import UNION_TAGS

_ORIGINS = ("body", "query", "path", "header", "cookie")

# One sentence a kind; {…} are filled from pydantic's own context, which holds bounds, not input.
_SENTENCES: Mapping[str, str] = {
    "missing": "This field is required.",
    "extra_forbidden": "There is no such field; remove it.",
    "bool_type": "Send true or false.",
    "int_type": "Send an integer without quotes.",
    "int_from_float": "Send an integer, not a fraction.",
    "float_type": "Send a number without quotes.",
    "finite_number": "Send a finite number: no NaN, no Infinity.",
    "string_type": "Send a string.",
    "list_type": "Send an array.",
    "dict_type": "Send an object.",
    "model_type": "Send an object.",
    "model_attributes_type": "Send an object as application/json.",
    "literal_error": "Send one of: {expected}.",
    "enum": "Send one of: {expected}.",
    "union_tag_not_found": "Say the kind in {discriminator}.",
    "union_tag_invalid": "Send {discriminator} as one of: {expected_tags}.",
    "greater_than": "Send a number greater than {gt}.",
    "greater_than_equal": "Send a number of at least {ge}.",
    "less_than": "Send a number less than {lt}.",
    "less_than_equal": "Send a number of at most {le}.",
    "string_too_short": "Too short: a length of at least {min_length} is needed.",
    "string_too_long": "Too long: at most {max_length} characters are allowed.",
    "string_pattern_mismatch": "Send a string that matches {pattern}.",
    "too_short": "Too short: a length of at least {min_length} is needed.",
    "too_long": "Too long: a length of at most {max_length} is allowed.",
}
# Kinds whose message is a constant written in our own validators.
_OWN_MESSAGE = ("bad_text", "bad_combination", "bad_value")


def explain_errors(details: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    """Field errors in the order of the input; the value that was sent is never looked at."""
    return [_explain(detail) for detail in details]


def _plain(bound: object) -> object:
    """A bound as people write it: 5 for 5.0."""
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _explain(detail: Mapping[str, Any]) -> FieldError:
    kind = str(detail["type"])
    location = _in_document(detail["loc"])
    if location and location[0] in _ORIGINS:
        origin, location = str(location[0]), location[1:]
        place = json_codec.pointer(location)
        if origin != "body":
            place = f"{origin}:{place.removeprefix('/')}"
    else:
        place = json_codec.pointer(location)
    bounds: Mapping[str, object] = detail.get("ctx") or {}
    context = {name: _plain(bound) for name, bound in bounds.items()}
    if kind in _OWN_MESSAGE:
        sentence = str(detail["msg"])
    else:
        template = _SENTENCES.get(kind, "This value is not valid here.")
        try:
            sentence = template.format(**context)
        except (KeyError, IndexError):
            sentence = "This value is not valid here."
    return FieldError(place, kind, sentence)


def _in_document(location: Sequence[str | int]) -> tuple[str | int, ...]:
    """The place in what was sent: which way a field was read is no part of where it stands."""
    return tuple(
        part
        for before, part in zip(("", *location), location, strict=False)
        if part not in (NAME_TAG, OBJECT_TAG) and part not in UNION_TAGS.get(str(before), ())
    )
