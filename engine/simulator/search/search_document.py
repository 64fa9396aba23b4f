"""A search for the cheapest deployment as JSON: what was found, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields

from engine.errors import InvalidRequest
from engine.simulator.quantity import Document
from engine.simulator.search.cheapest import Requirement, SearchResult
from engine.simulator.search.confirming import Confirmation

MOST_SHOWN = 200
"""Candidates of each list in a document; how many there are is said beside them."""
ASSUMPTIONS = (
    "Ranked in closed form: Poisson arrivals of requests of one length, spread evenly over the "
    "replicas; Little's law gives the batch, Pollaczek and Khinchine's mean the wait for other "
    "prompts, which stop decoding while they run. Limits hold for means.",
    "Confirmed by a simulated run of the finalists, with the same arrivals and lengths.",
    "Prices are the lowest that the catalogue has for a device. Layouts are tensor parallel within "
    "a replica, and replicas side by side.",
)


def search_document(result: SearchResult, confirmed: Sequence[Confirmation]) -> Document:
    """The result as JSON values; times in s. ``confirmed`` are runs of the first of the best."""
    best: list[Document] = [{**asdict(item)} for item in result.best[:MOST_SHOWN]]
    for item, run in zip(best, confirmed, strict=False):
        item["confirmed"] = {**asdict(run), "kind": "predicted"}
    return {
        "requirement": asdict(result.requirement),
        "kind": "predicted",
        "found": len(result.best),
        "best": best,
        "missed": len(result.failed),
        "failed": [asdict(item) for item in result.failed[:MOST_SHOWN]],
        "front": [asdict(point) for point in result.front],
        "assumptions": list(ASSUMPTIONS),
    }


def read_requirement(document: Mapping[str, object]) -> Requirement:
    """The requirement of that document; what it does not name is as usual.

    Raises:
        InvalidRequest: a field is missing, unknown or wrong (names it).
    """
    known = {item.name for item in fields(Requirement)}
    for name in ("model", "rate", "prompt_tokens", "output_tokens", "ttft", "itl"):
        if document.get(name) is None:
            raise InvalidRequest("this is needed", field=name)
    values: dict[str, object] = {}
    for name, value in document.items():
        if name not in known:
            raise InvalidRequest(f"choose among {', '.join(sorted(known))}", field="requirement")
        values[name] = tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType]
    return Requirement(**values)  # pyright: ignore[reportArgumentType]
