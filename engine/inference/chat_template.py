"""Renders a model's own chat template, which is a program from a file that nobody here wrote.

Semantics are those of transformers' ``apply_chat_template``: Jinja with trimmed blocks, loop
controls, ``tojson``, ``raise_exception``, ``strftime_now`` and the ``generation`` tag. The sandbox
keeps the template away from Python's internals; sizes are capped here; time and memory are
limited by the process that renders (see ``template_process``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from engine.errors import TemplateError

MAX_TEMPLATE_CHARS = 64 * 1024
MAX_RENDERED_CHARS = 128 * 1024
MAX_RANGE = 10_000
_MAX_JSON_INDENT = 16

ChatMessage = Mapping[str, str]


class SandboxedTemplate:
    """A compiled template. Raises ``TemplateError`` where it is too long or not valid Jinja."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise TemplateError(f"the chat template has more than {MAX_TEMPLATE_CHARS} characters")
        try:
            self._template = _environment().from_string(source)
        # Parsing and compiling foreign text may end in almost any error, RecursionError included.
        except Exception as error:
            raise TemplateError("the model's chat template is not valid") from error

    def render(
        self,
        messages: Sequence[ChatMessage],
        special_tokens: Mapping[str, str],
        *,
        add_generation_prompt: bool,
    ) -> str:
        """The conversation as one string, as the model was trained to read it.

        ``special_tokens`` are offered by name (``bos_token``, ``eos_token``). Raises
        ``TemplateError`` where the template fails, refuses these messages or writes more than
        ``MAX_RENDERED_CHARS``.
        """
        parts: list[str] = []
        length = 0
        try:
            for part in self._template.generate(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **special_tokens,
            ):
                length += len(part)
                if length > MAX_RENDERED_CHARS:
                    raise TemplateError(
                        f"the chat template writes more than {MAX_RENDERED_CHARS} characters"
                    )
                parts.append(part)
        except TemplateError:
            raise
        except _Refusal as error:
            raise TemplateError(
                "the model's chat template refuses these messages; most want user and assistant"
                " to take turns, after at most one system message"
            ) from error
        except jinja2.exceptions.SecurityError as error:
            raise TemplateError("the chat template reaches outside its sandbox") from error
        except Exception as error:
            raise TemplateError("the model's chat template failed on these messages") from error
        return "".join(parts)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _to_json
    for unused in ("lipsum", "cycler", "joiner"):
        del environment.globals[unused]
    environment.globals |= {
        "range": _short_range,
        "dict": _make_dict,
        "namespace": _PublicNamespace,
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
    }
    return environment


class _Refusal(jinja2.exceptions.TemplateError):
    """The template itself called ``raise_exception``."""


class _GenerationTag(Extension):
    """``{% generation %}`` marks the assistant's part for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _PublicNamespace(Namespace):
    """A namespace without underscore names, so that none can shadow what Python looks up."""

    def __init__(self, /, *args: Iterable[tuple[str, object]], **kwargs: object) -> None:
        attributes = dict(*args, **kwargs)
        for name in attributes:
            _require_public(name)
        super().__init__(attributes)

    def __setitem__(self, name: str, value: object) -> None:
        _require_public(name)
        super().__setitem__(name, value)


def _require_public(name: str) -> None:
    if str(name).startswith("_"):
        raise jinja2.exceptions.SecurityError("names in a namespace may not begin with _")


def _make_dict(
    *args: Mapping[str, object] | Iterable[tuple[str, object]], **kwargs: object
) -> dict[str, object]:
    """A function in place of the class, which would be a way to its attributes."""
    return dict(*args, **kwargs)


def _short_range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > MAX_RANGE:
        raise jinja2.exceptions.SecurityError(f"a range is longer than {MAX_RANGE}")
    return numbers


def _raise_exception(message: str) -> NoReturn:
    raise _Refusal(message)


def _strftime_now(format_: str) -> str:
    """Local time, as templates that write today's date into the system message expect."""
    return datetime.now().astimezone().strftime(format_)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without the HTML escapes of Jinja's own filter: this text goes to a model, not a page."""
    if indent is not None and not 0 <= indent <= _MAX_JSON_INDENT:
        raise jinja2.exceptions.SecurityError(f"JSON is indented by more than {_MAX_JSON_INDENT}")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
