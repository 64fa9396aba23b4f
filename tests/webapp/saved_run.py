"""A run as a document, made by the fake engine: what tests save, replay and spoil."""

from __future__ import annotations

import json
from typing import Any

from tests.webapp.live_server import LiveApp, events_until_end

Document = dict[str, Any]

MACHINE: Document = {
    "model_name": "fake",
    "device": "cpu",
    "device_name": "fake cpu",
    "layers": 2,
    "hidden": 64,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "intermediate": 128,
    "vocabulary": 512,
    "max_context": 2048,
    "random_weights": True,
    "source_format": "F32",
}


def recorded_run(server: LiveApp, prompt: str = "abcdef", **settings: Any) -> Document:
    """Runs ``prompt`` over the websocket and returns what a page would save."""
    request = {
        "type": "generate",
        "request_id": "page-1",
        "prompt": prompt,
        "max_tokens": 64,
        "temperature": 0.0,
        **settings,
    }
    with server.connect() as connection:
        connection.send(json.dumps(request))
        events = events_until_end(connection)
    return as_document(request, events)


def as_document(request: Document, events: list[Document]) -> Document:
    """The document of a run that was asked for with ``request``."""
    return {
        "version": 1,
        "title": "A title",
        "by": "Ada",
        "ran_at_ms": 1_790_000_000_000,
        "request": request,
        "machine": MACHINE,
        "roof": {"dtype": "float32", "bandwidth": 3e10, "peak": 2e11},
        "events": [
            {name: value for name, value in event.items() if name not in ("request_id", "seq")}
            for event in events
        ],
    }
