"""A scenario of the simulator's page as the API's document: opened up, and for download."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from engine.simulator.efficiency import DEFAULT_ENGINE
from engine.simulator.scenario import Scenario, simulate
from engine.simulator.search.cell import Cell
from engine.simulator.search.sensitivity import Elasticity, sensitivities
from webapp.pages.simulator_question import Side

COLUMNS = ("quantity", "value", "unit", "kind", "p10", "p90", "formula", "source")
Document = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Opened:
    """One number with the expression it came from."""

    name: str
    label: str
    formula: str
    source: str


@dataclass(frozen=True, slots=True)
class ExplainView:
    """Every number of a scenario, what it takes for granted, and what moves it most."""

    letter: str
    numbers: tuple[Opened, ...]
    assumptions: tuple[str, ...]
    moves: Mapping[str, tuple[Elasticity, ...]]


def scenario_of(side: Side) -> Scenario:
    """The page's scenario as the API takes it.

    Raises:
        InvalidRequest: a number is out of its range (names the field).
    """
    features = side.features
    return Scenario(
        model=side.described.model_value(),
        hardware=side.described.hardware_value(),
        devices=side.tensor,
        weights=side.weights,
        kv=side.kv,
        batch=side.batch,
        prompt_tokens=side.prompt,
        output_tokens=side.output,
        activations=side.activations or None,
        data=side.data,
        stages=side.stages,
        experts=side.experts,
        imbalance=side.imbalance,
        per_node=side.per_node or None,
        network_gb_s=side.network or None,
        engine=side.engine or None,
        memory_utilization=side.utilization / 100,
        chunk_tokens=features.chunk_tokens,
        prefix_hit_rate=features.prefix_hit_rate,
        speculation=features.speculation,
        offload=features.offload,
        disaggregation=features.disaggregation,
        usd_per_hour=side.usd,
        idle_share=side.idle / 100,
    )


def explain_view(letter: str, side: Side) -> ExplainView:
    """The scenario opened up.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: the scenario is wrong (names the field).
    """
    document = simulate(scenario_of(side)).to_document()
    numbers = tuple(
        Opened(name, str(item["label"]), str(item["formula"]), str(item["source"]))
        for name, item in quantities(document)
    )
    cell = Cell(
        model=side.described.chosen_model(),
        hardware=side.described.chosen_hardware(),
        devices=side.tensor,
        weights=side.weights,
        kv=side.kv,
        activations=side.activations or None,
        times="typical",
        engine=side.engine or DEFAULT_ENGINE,
        batch=side.batch,
        prompt_tokens=side.prompt,
        output_tokens=side.output,
    )
    moves: dict[str, list[Elasticity]] = {"ttft": [], "itl": []}
    for item in sensitivities(cell):
        moves[item.metric].append(item)
    assumptions = cast("list[str]", document["assumptions"])
    named = {metric: tuple(found) for metric, found in moves.items() if found}
    return ExplainView(letter, numbers, tuple(assumptions), named)


def scenario_csv(side: Side) -> str:
    """Every number of the scenario as a line of a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for name, item in quantities(simulate(scenario_of(side)).to_document()):
        writer.writerow([name, *(item.get(column) for column in COLUMNS[1:])])
    return text.getvalue()


def quantities(document: Document, path: str = "") -> Iterator[tuple[str, Document]]:
    """Every quantity of a document with its path; operators of a step by their names."""
    if "formula" in document and "value" in document:
        yield path, document
        return
    for key, value in document.items():
        place = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from quantities(cast("Document", value), place)
        elif key == "operators" and isinstance(value, list):
            for item in cast("list[Document]", value):
                yield from quantities(item, f"{place}.{item['name']}")
