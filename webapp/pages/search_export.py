"""The answer of the search's page as a table: a line for every deployment."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import fields
from typing import Any

from engine.simulator.search.cheapest import Candidate

_SECONDS = frozenset({"ttft", "itl"})
_NAMES = tuple(item.name for item in fields(Candidate))
COLUMNS = tuple(f"{name} [s]" if name in _SECONDS else name for name in _NAMES)


def candidates_csv(made: bytes) -> str:
    """The deployments of a search's document, a line each: the cheapest first, then those that miss
    a limit, which ``fails`` names."""
    document: dict[str, Any] = json.loads(made)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for item in (*document["best"], *document["failed"]):
        writer.writerow([item[name] for name in _NAMES])
    return text.getvalue()
