"""``tokenizer.json`` and its companions in a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference import tokenizer as ours
from engine.inference.chat_template import MAX_TEMPLATE_CHARS
from engine.inference.weights.json_file import (
    MAX_CONFIG_BYTES,
    MAX_TOKENIZER_BYTES,
    JsonObject,
    parse_json_object,
    read_json_object,
    read_text,
)

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


def hf_tokenizer(folder: Path) -> ours.Tokenizer:
    """The tokenizer of a folder.

    Raises ``FileFormatError`` for missing or malformed files, ``UnsupportedModel`` for a decoder
    whose spelling of bytes is not known here or a tokenizer that ends prompts with a token.
    """
    content = read_text(folder / "tokenizer.json", MAX_TOKENIZER_BYTES)
    document = parse_json_object(content, "tokenizer.json")
    spelling, strip = _spelling(document.get("decoder"))
    template = hf_chat_template(folder)
    shown = _control_what_the_template_writes(document, template or "")
    try:
        backend = Tokenizer.from_str(json.dumps(document))
    except Exception as error:  # the library raises bare Exceptions
        raise FileFormatError("tokenizer.json is not a tokenizer that the library reads") from error
    config = _tokenizer_config(folder)
    settings = ours.TokenizerSettings(
        spelling=spelling,
        strip_leading_spaces=strip,
        bos_token_id=_begin_token(backend, config),
        special_tokens=_named_tokens(config),
        chat_template=template,
        shown_control_ids=shown,
    )
    return ours.Tokenizer(backend, settings)


def hf_chat_template(folder: Path) -> str | None:
    """``chat_template.jinja`` before ``tokenizer_config.json``, as transformers has it."""
    if (folder / "chat_template.jinja").is_file():
        content = read_text(folder / "chat_template.jinja", 4 * MAX_TEMPLATE_CHARS)
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FileFormatError("chat_template.jinja is not UTF-8") from error
    template = _tokenizer_config(folder).get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in map(_object, template)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise FileFormatError("tokenizer_config.json: chat_template is not a string")
    return template


def _object(value: Any) -> JsonObject:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict):
        raise FileFormatError("tokenizer_config.json: chat_template is a list of other things")
    return value


def _tokenizer_config(folder: Path) -> JsonObject:
    path = folder / "tokenizer_config.json"
    return read_json_object(path, MAX_CONFIG_BYTES) if path.is_file() else {}


def _control_what_the_template_writes(document: JsonObject, template: str) -> frozenset[int]:
    """Make control tokens of added tokens that are not marked special but that the template writes.

    Some models leave their turn markers unmarked; a person who types one must not begin a turn.
    Gives their ids: decoding still shows them, as the file wants.
    """
    promoted: set[int] = set()
    added = document.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        if not isinstance(token, dict) or token.get("special"):
            continue
        content, number = token.get("content"), token.get("id")
        if isinstance(content, str) and content and content in template and type(number) is int:
            token["special"] = True
            promoted.add(number)
    return frozenset(promoted)


def _spelling(decoder: Any) -> tuple[ours.Spelling, int]:  # noqa: ANN401 - any JSON value
    """How the decoder's description spells bytes, and how many leading spaces it strips."""
    steps = decoder.get("decoders") if _type(decoder) == "Sequence" else [decoder]
    if not isinstance(steps, list):
        raise FileFormatError("tokenizer.json: decoder is not an object")
    kinds = [_type(step) for step in steps]
    if kinds == ["ByteLevel"]:
        return ours.Spelling.BYTE_LEVEL, 0
    if kinds[:3] == ["Replace", "ByteFallback", "Fuse"] and kinds[3:] in ([], ["Strip"]):
        replace, strip = steps[0], steps[3] if kinds[3:] else {"content": " ", "start": 0}
        plain = replace.get("pattern") == {"String": "▁"} and replace.get("content") == " "
        start = strip.get("start", 0)
        spaces = strip.get("content") == " " and not strip.get("stop") and type(start) is int
        if plain and spaces:
            return ours.Spelling.SPACE_MARK, start
    raise UnsupportedModel("tokenizer.json: decoder spells bytes in a way that is not known here")


def _type(step: Any) -> str | None:  # noqa: ANN401 - any JSON value
    return step.get("type") if isinstance(step, dict) else None


def _begin_token(backend: Tokenizer, config: JsonObject) -> int | None:
    """What the tokenizer puts around an empty text: nothing, or one begin token."""
    if config.get("add_eos_token"):
        raise UnsupportedModel("tokenizer_config.json: add_eos_token is set, which is not run here")
    backend.no_truncation()
    backend.no_padding()
    asked = config.get("add_bos_token")
    around = backend.encode("", add_special_tokens=True).ids
    if asked is False or (asked is None and not around):
        return None
    begin = backend.token_to_id(_text(config.get("bos_token")) or "")
    if begin is None or around not in ([], [begin]):
        raise UnsupportedModel(
            "tokenizer.json puts other tokens than one begin token around a text"
        )
    return begin


def _named_tokens(config: JsonObject) -> dict[str, str]:
    named = ((name, _text(config.get(name))) for name in _NAMED_TOKENS)
    return {name: text for name, text in named if text}


def _text(token: Any) -> str | None:  # noqa: ANN401 - any JSON value
    """A token is written as its text or as an object with its content."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None
