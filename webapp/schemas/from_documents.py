"""The engine's documents as schemas, so that the API's description has every field of them.

They are built from the dataclasses themselves: a field that is added there is described here.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from pydantic import create_model

from engine.inference.probes.documents import Part, ProbeDocument, TokenPiece
from webapp.schemas.base import OutputModel


@cache
def schema_of(document: type[Part]) -> type[OutputModel]:
    """The schema of what ``document.to_dict`` returns."""
    hints = get_type_hints(document)
    types = {field.name: _plain(hints[field.name]) for field in fields(document)}
    if issubclass(document, ProbeDocument):
        types = {"kind": Literal[document.kind], "basis": Literal["measured"], **types}
    make: Any = create_model
    required = {name: (kind, ...) for name, kind in types.items()}
    return make(document.__name__, __base__=OutputModel, __doc__=document.__doc__, **required)


@cache
def with_tokens(document: type[ProbeDocument]) -> type[OutputModel]:
    """The schema of an answer about a text: beside the document, the tokens that a text is."""
    tokens = (list[schema_of(TokenPiece)] | None, None)
    make: Any = create_model
    return make(f"{document.__name__}OfText", __base__=schema_of(document), tokens=tokens)


def _plain(hint: object) -> object:
    """The type of a field in JSON: what is not finite becomes null, tuples become lists."""
    if hint is float:
        return float | None
    if isinstance(hint, type) and issubclass(hint, Part):
        return schema_of(hint)
    if isinstance(hint, UnionType):
        parts = [_plain(part) for part in get_args(hint) if part is not NoneType]
        made: Any = Union[(*parts, None)]
        return made
    if get_origin(hint) is tuple:
        item: Any = _plain(get_args(hint)[0])
        return cast("object", list[item])
    return cast("object", hint)
