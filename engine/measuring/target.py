"""The server that is measured: its address, and the request that it understands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from engine.errors import InvalidRequest

Kind = Literal["chat", "completions"]
_PATHS: Mapping[Kind, str] = {"chat": "/chat/completions", "completions": "/completions"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where requests go. ``base`` is the path that clients of OpenAI call base URL, "/v1"."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    base: str

    @classmethod
    def of(cls, url: str) -> Address:
        """The address of a URL as clients take it; without a path it is "/v1".

        Raises:
            InvalidRequest: it is no plain http or https URL (field "url").
        """
        if not url.isascii() or not url.isprintable() or " " in url:
            raise InvalidRequest("write the address in ASCII, with %-escapes", field="url")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InvalidRequest("give an address such as http://host:8000", field="url") from None
        scheme, host = parts.scheme, parts.hostname
        if (scheme != "http" and scheme != "https") or not host:
            raise InvalidRequest("give an address such as http://host:8000", field="url")
        if parts.username is not None or parts.query or parts.fragment:
            raise InvalidRequest("give no user, query or fragment; keys go in --api-key-env",
                                 field="url")  # fmt: skip
        base = parts.path.rstrip("/")
        for path in _PATHS.values():
            base = base.removesuffix(path)
        return cls(scheme, host, port or (443 if scheme == "https" else 80), base or "/v1")

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.base}"


@dataclass(frozen=True, slots=True)
class Form:
    """What of the request differs between servers: names of fields that they take."""

    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    usage: bool = True


FORMS = (Form(), Form(limit="max_completion_tokens"), Form(usage=False))
"""Tried in this order until a server takes one."""


@dataclass(frozen=True, slots=True)
class Target:
    """A model on a server. ``key`` is a secret: it is in no text or document of this object.

    ``exact_output`` asks for as many tokens as the limit, in the fields that vLLM, SGLang and
    this project's server know (``ignore_eos``, ``min_tokens``).

    Raises:
        InvalidRequest: the key cannot be sent in a header (field "api_key_env").
    """

    address: Address
    model: str
    kind: Kind = "chat"
    key: str | None = field(default=None, repr=False)
    exact_output: bool = False
    form: Form = Form()

    def __post_init__(self) -> None:
        if self.key is not None and not (self.key.isascii() and self.key.isprintable()):
            raise InvalidRequest("the key has characters no header takes", field="api_key_env")

    @property
    def path(self) -> str:
        return self.address.base + _PATHS[self.kind]

    @property
    def headers(self) -> dict[str, str]:
        sent = {"Content-Type": "application/json", "Accept": "text/event-stream",
                "User-Agent": "firsttoken-measure"}  # fmt: skip
        return sent if self.key is None else {**sent, "Authorization": f"Bearer {self.key}"}

    def body(self, prompt: str, output_tokens: int) -> bytes:
        """The request for one answer, streamed and greedy."""
        asked: dict[str, object] = {
            "model": self.model,
            "stream": True,
            "temperature": 0,
            self.form.limit: output_tokens,
        }
        if self.form.usage:
            asked["stream_options"] = {"include_usage": True}
        if self.exact_output:
            asked |= {"ignore_eos": True, "min_tokens": output_tokens}
        if self.kind == "chat":
            asked["messages"] = [{"role": "user", "content": prompt}]
        else:
            asked["prompt"] = prompt
        return json.dumps(asked).encode()
