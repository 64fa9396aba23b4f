"""Arguments of a question, which come as JSON: each is checked where it is read. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import InvalidRequest
from engine.inference.probes.ablations import Ablation, parse_ablation
from engine.inference.tokenizer import Tokenizer
from engine.refusals import refused

Arguments = Mapping[str, Any]

TEXT_FIELDS = ("text", "messages")
"""What may stand in place of ``token_ids``, for the tokenizer to read."""


def integers(arguments: Arguments, name: str) -> Sequence[int]:
    """A list of whole numbers."""
    values = arguments.get(name)
    if not isinstance(values, list | tuple) or any(type(value) is not int for value in values):
        raise InvalidRequest("give a list of token ids", field=name)
    return values


def integer(arguments: Arguments, name: str, default: int | None = None) -> int:
    """A whole number."""
    value = arguments.get(name, default)
    if type(value) is not int:
        raise InvalidRequest("give a whole number", field=name)
    return value


def flag(arguments: Arguments, name: str, default: bool) -> bool:
    """True or false."""
    value = arguments.get(name, default)
    if not isinstance(value, bool):
        raise InvalidRequest("give true or false", field=name)
    return value


def text(arguments: Arguments, name: str) -> str:
    """A string."""
    value = arguments.get(name)
    if not isinstance(value, str):
        raise InvalidRequest("give a text", field=name)
    return value


def ablations(arguments: Arguments) -> list[Ablation]:
    """Parts of the model to take out, by name; none if they are left out."""
    names = arguments.get("ablations", ())
    if not isinstance(names, list | tuple) or any(not isinstance(name, str) for name in names):
        raise InvalidRequest("give a list of names", field="ablations")
    return [parse_ablation(name) for name in names]


def read_text(arguments: Arguments, tokenizer: Tokenizer) -> list[int]:
    """The ids of ``text`` or ``messages``, as a prompt has them.

    ``add_special`` (of a text, else true): the begin token where the model wants one;
    ``add_generation_prompt`` (of messages, else true): what makes the model answer.

    Raises:
        InvalidRequest: both are given, or what is given is no prompt.
        TemplateError: the chat template cannot take these messages.
    """
    if all(name in arguments for name in TEXT_FIELDS):
        raise refused("prompt_or_messages", field="text")
    if "text" in arguments:
        begin = flag(arguments, "add_special", True)
        return tokenizer.encode_prompt(text(arguments, "text"), add_begin=begin)
    turns = arguments.get("messages")
    if not isinstance(turns, list | tuple) or not all(map(_is_turn, turns)):
        raise InvalidRequest("give messages with a role and a content each", field="messages")
    asks = flag(arguments, "add_generation_prompt", True)
    return tokenizer.encode_chat(turns, add_generation_prompt=asks)


def _is_turn(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"role", "content"}
        and all(isinstance(part, str) for part in value.values())
    )
