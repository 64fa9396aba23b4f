"""A completion server that answers by a script: known delays, chunks, counts and failures."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Script:
    """Seconds before the first token and between chunks; what fails, by the request's number."""

    before: float = 0.0
    gap: float = 0.0
    before_a_word: float = 0.0
    tokens_a_chunk: int = 1
    usage: bool = True
    streams: bool = True
    tokens_a_word: int = 1
    template_tokens: int = 9
    cached: int = 0
    most_tokens: int = 10**6
    limit_field: str = "max_tokens"
    takes_stream_options: bool = True
    cut_after: int | None = None
    error_after: int | None = None
    status: Callable[[int], int] = field(default=lambda number: 200)
    headers: dict[str, str] = field(default_factory=dict)
    reply: bytes = b'{"error": {"message": "as the script says"}}'
    seen: list[dict[str, Any]] = field(default_factory=list)
    sent_headers: list[dict[str, str]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script
    lock: threading.Lock

    def log_message(self, format: str, *args: object) -> None:
        """Keeps quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            self.script.seen.append({**body, "path": self.path})
            self.script.sent_headers.append(dict(self.headers))
            number = len(self.script.seen)
            self.script.running += 1
            self.script.most_running = max(self.script.most_running, self.script.running)
        try:
            self.answer(body, self.script.status(number))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with self.lock:
                self.script.running -= 1

    def answer(self, body: dict[str, Any], status: int) -> None:
        script = self.script
        unknown = script.limit_field not in body
        unknown |= "stream_options" in body and not script.takes_stream_options
        if status != 200 or unknown:
            return self.whole(400 if unknown else status, script.reply)
        chat = self.path.endswith("/chat/completions")
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        words = len(prompt.split())
        tokens = min(body[script.limit_field], script.most_tokens)
        usage = {
            "prompt_tokens": words * script.tokens_a_word + script.template_tokens,
            "completion_tokens": tokens,
            "prompt_tokens_details": {"cached_tokens": script.cached},
        }
        time.sleep(script.before + script.before_a_word * words)
        if script.streams:
            return self.stream(chat, tokens, usage if script.usage else None)
        time.sleep(script.gap * tokens)
        message = {"message": {"content": "x"}} if chat else {"text": "x"}
        document = {"choices": [{**message, "finish_reason": "length"}], "usage": usage}
        return self.whole(200, json.dumps(document).encode())

    def whole(self, status: int, content: bytes) -> None:
        self.send_response(status)
        for name, value in self.script.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def stream(self, chat: bool, tokens: int, usage: dict[str, Any] | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if chat:
            self.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        sent = chunks = 0
        while sent < tokens:
            if chunks == self.script.cut_after:
                self.close_connection = True
                return
            if chunks == self.script.error_after:
                return self.event({"error": {"message": "out of memory"}})
            if sent:
                time.sleep(self.script.gap)
            many = min(self.script.tokens_a_chunk, tokens - sent)
            sent, chunks = sent + many, chunks + 1
            text = "x " * many
            inner = {"delta": {"content": text}} if chat else {"text": text}
            finish = "length" if sent == tokens else None
            self.event({"choices": [{**inner, "finish_reason": finish}]})
        if usage:
            self.event({"choices": [], "usage": usage, "timings": {"prompt_ms": 5.0}})
        self.data(b"data: [DONE]\n\n")
        self.data(b"")

    def event(self, event: dict[str, Any]) -> None:
        self.data(f"data: {json.dumps(event)}\n\n".encode())

    def data(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The URL of a server that answers so."""
    kind = type("Scripted", (Handler,), {"script": script, "lock": threading.Lock()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
