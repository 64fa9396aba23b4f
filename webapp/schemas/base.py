"""The one strict base of everything that comes in, and the texts that are accepted."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from webapp import json_codec

MAX_SAFE_INT = 2**53 - 1
"""The largest integer that every JSON reader holds exactly."""


class StrictModel(BaseModel):
    """No conversion between types, no unknown fields, no NaN, no change after validation."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        ser_json_inf_nan="null",
        protected_namespaces=(),
    )


class OutputModel(BaseModel):
    """What goes out: built by us, so only its shape is checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


def _check_text(text: str) -> str:
    if "\x00" in text:
        raise PydanticCustomError("bad_text", "Remove the NUL character (U+0000).")
    if json_codec.has_surrogate(text):
        raise PydanticCustomError(
            "bad_text", "The text holds a lone surrogate, which is not a character."
        )
    return text


PlainText = Annotated[str, AfterValidator(_check_text)]
"""Text without NUL and lone surrogates; give it a ``max_length`` where it is used."""

Name = Annotated[
    str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:+-]*$")
]
"""The id of a model or a piece of hardware."""

MAX_FIELDS = 256
NAME_TAG, OBJECT_TAG = "(name)", "(object)"


def _name_or_object(value: object) -> str | None:
    if isinstance(value, str):
        return NAME_TAG
    return OBJECT_TAG if isinstance(value, dict) else None


NameOrObject = Annotated[
    Annotated[Name, Tag(NAME_TAG)]
    | Annotated[dict[str, object], Field(max_length=MAX_FIELDS), Tag(OBJECT_TAG)],
    Discriminator(
        _name_or_object,
        custom_error_type="bad_combination",
        custom_error_message="Send an id as text, or an object.",
    ),
]
"""An id, or an object that says everything itself and is read by the engine."""


def check_bytes(text: str, limit: int) -> str:
    """Refuses text whose UTF-8 is longer than ``limit`` bytes."""
    if len(text.encode("utf-8", "surrogatepass")) > limit:
        raise PydanticCustomError(
            "bad_text", "Send at most {limit} bytes of UTF-8.", {"limit": limit}
        )
    return text
