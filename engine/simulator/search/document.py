"""Sweeps as JSON and CSV: what was asked, and the metrics of every cell."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import cast

import numpy as np

from engine.catalog.inline import hardware_from, model_from
from engine.errors import EngineError, InvalidRequest
from engine.simulator.quantity import Document
from engine.simulator.search.axes import KNOBS, Axis, KnobValue, Sweep
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import estimate
from engine.simulator.search.spread import spread, spreads
from engine.simulator.search.sweep import METRICS, SweepResult, Values
from engine.simulator.search.uniform import Floats

UNITS: Mapping[str, str] = {
    "ttft": "s",
    "itl": "s",
    "e2e": "s",
    "tokens_per_s": "tokens/s",
    "memory": "B",
    "fits": "bool",
    "usd_per_mtok": "US$/Mtok",
}
FORMULAS: Mapping[str, str] = {
    "ttft": "the step of all prompts, and what the host takes before a first token",
    "itl": "mean decode step over the growing context, at two Gauss points; none with one token",
    "e2e": "ttft + (output_tokens - 1) × itl",
    "tokens_per_s": "batch × output_tokens / e2e",
    "memory": "weights + KV cache in whole blocks + activations at their peak, on all devices",
    "fits": "memory ≤ memory_utilization × devices × memory of a device",
    "usd_per_mtok": "devices × US$/h / 3600 / tokens_per_s × 1,000,000: output tokens pay for "
    "the prompts too",
}
_ROWS_A_CHUNK = 2048


def sweep_document(result: SweepResult, metrics: Sequence[str] = METRICS) -> Document:
    """The result as JSON values; metrics are flat lists with the last axis running fastest.

    ``null`` stands where there is nothing to predict. Of typical times, ``p10`` and ``p90`` are
    factors on a value: eight of ten measured ones lay between them; one for each cell, or one for
    all where they are the same.

    Raises:
        InvalidRequest: there is no such metric (field "metrics").
    """
    check_metrics(metrics)
    sweep = result.sweep
    found = spreads(result)
    return {
        "base": cell_document(sweep.base),
        "axes": [_axis(axis) for axis in sweep.axes],
        "shape": list(sweep.shape),
        "metrics": {
            name: {
                "unit": UNITS[name],
                "kind": "predicted",
                "formula": FORMULAS[name],
                "values": _values(result.metrics[name]),
                **(_spread(*found[name]) if name in found else {}),
            }
            for name in metrics
        },
        "assumptions": assumptions(sweep),
    }


def estimate_document(cell: Cell) -> Document:
    """One cell's metrics as JSON values: ``p10`` and ``p90`` of typical times are values here.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``estimate``.
    """
    found = estimate(cell)
    factors = spread(cell, found)
    document: Document = {}
    for name, unit in UNITS.items():
        value: float = getattr(found, name)
        nothing = math.isnan(value)
        entry: Document = {"value": None if nothing else value, "unit": unit, "kind": "predicted"}
        if name in factors and not nothing:
            entry["p10"], entry["p90"] = (value * factor for factor in factors[name])
        document[name] = entry
    return document


def sweep_csv(result: SweepResult, metrics: Sequence[str] = METRICS) -> Iterator[str]:
    """The result as CSV, in pieces: a column for each knob turned and each metric.

    Raises:
        InvalidRequest: there is no such metric (field "metrics").
    """
    check_metrics(metrics)
    sweep = result.sweep
    columns = [_values(result.metrics[name]) for name in metrics]
    header = [axis.knob for axis in sweep.axes]
    header += [f"{name} [{UNITS[name]}]" for name in metrics]
    places = np.indices(sweep.shape).reshape(len(sweep.axes), sweep.cells).tolist()
    knobs = [
        [axis.values[place] for place in along]
        for axis, along in zip(sweep.axes, places, strict=True)
    ]
    for first in range(0, sweep.cells, _ROWS_A_CHUNK):
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if first == 0:
            writer.writerow(header)
        rows = [column[first : first + _ROWS_A_CHUNK] for column in (*knobs, *columns)]
        writer.writerows(zip(*rows, strict=True))
        yield text.getvalue()


def read_sweep(document: Mapping[str, object]) -> Sweep:
    """The sweep that ``{"base": {…}, "axes": [{"knob": …, "values": […]}]}`` asks for.

    Raises:
        InvalidRequest: a field is missing, unknown or wrong (names it).
    """
    base = _object(document.get("base"), "base")
    axes = document.get("axes", [])
    if not isinstance(axes, list):
        raise InvalidRequest("give the axes as an array", field="axes")
    found = [_read_axis(place, axis) for place, axis in enumerate(cast("list[object]", axes))]
    try:
        cell = read_cell(base)
    except EngineError as error:
        raise inside(error, "base") from None
    return Sweep(cell, tuple(found))


def at_field(error: EngineError, field: str) -> EngineError:
    """The same error with another place of the input at fault."""
    return error.at(field)


def inside(error: EngineError, place: str) -> EngineError:
    """An error of a cell where the cell stands at ``place``; a knob's parts are named too."""
    of_knob = (error.field or "").split(".")[0] in KNOBS
    return at_field(error, f"{place}.{error.field}" if of_knob else place)


def placed(error: EngineError, sweep: Sweep) -> EngineError:
    """An error of one of the cells, at the place of its knob in the sweep's document."""
    if error.field not in KNOBS:
        return error
    for place, axis in enumerate(sweep.axes):
        if axis.knob == error.field:
            return at_field(error, f"axes.{place}.values")
    return at_field(error, f"base.{error.field}")


def read_cell(document: Mapping[str, object]) -> Cell:
    """The cell of that document; what it does not name is as usual.

    Model and device are ids, or objects that ``catalog.inline`` understands.

    Raises:
        InvalidRequest, UnsupportedModel: a field is missing, unknown or wrong (names it).
    """
    known = {item.name for item in fields(Cell)}
    for name in document:
        if name not in known:
            raise InvalidRequest(f"choose among {', '.join(KNOBS)}", field="cell")
    values = dict(document)
    for name, read in (("model", model_from), ("hardware", hardware_from)):
        value = values.get(name)
        if isinstance(value, Mapping):
            values[name] = read(cast("object", value))
        elif not isinstance(value, str):
            raise InvalidRequest("give the name of one of the catalogue, or an object", field=name)
    return Cell(**values)  # pyright: ignore[reportArgumentType]


def _read_axis(place: int, axis: object) -> Axis:
    found = _object(axis, f"axes.{place}")
    knob, values = found.get("knob"), found.get("values")
    if not isinstance(knob, str):
        raise InvalidRequest("give the name of a knob", field=f"axes.{place}.knob")
    if not isinstance(values, list):
        raise InvalidRequest("give the values as an array", field=f"axes.{place}.values")
    return Axis(knob, tuple(cast("list[KnobValue]", values)))


def _object(value: object, field: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidRequest("give an object", field=field)
    return cast("Mapping[str, object]", value)


def check_metrics(metrics: Sequence[str]) -> None:
    """Refuses names of no metric.

    Raises:
        InvalidRequest: there is no such metric (field "metrics").
    """
    for place, name in enumerate(metrics):
        if name not in METRICS:
            raise InvalidRequest(f"choose among {', '.join(METRICS)}", field=f"metrics.{place}")


def cell_document(cell: Cell) -> Document:
    """The knobs of a cell; specs of one's own by their id."""
    found: Document = {item.name: getattr(cell, item.name) for item in fields(cell)}
    found["model"], found["hardware"] = cell.model_spec.id, cell.hardware_spec.id
    return found


def assumptions(sweep: Sweep) -> list[str]:
    """What the cells take for granted."""
    times = {sweep.base.times, *(v for a in sweep.axes if a.knob == "times" for v in a.values)}
    lines = [
        "All requests of a cell arrive together; their prompts run in one step, then each step "
        "gives one token of each.",
        "Cells that do not fit get the times of devices with more memory.",
        "Prices are the lowest that the catalogue has for a device, unless usd_per_hour is given.",
    ]
    if "ideal" in times:
        lines.append("Ideal times are those of the roofline, without any overhead.")
    if "typical" in times:
        lines.append(
            "Typical times are calibrated on published measurements; p10 and p90 are factors "
            "between which eight of ten measured ones lay."
        )
    return lines


def _axis(axis: Axis) -> Document:
    knob = KNOBS[axis.knob]
    return {
        "knob": axis.knob,
        "unit": knob.unit,
        "meaning": knob.meaning,
        "values": list(axis.values),
    }


def _values(array: Values) -> list[float | bool | None]:
    """Row-major, with None in place of NaN."""
    return [None if math.isnan(value) else value for value in array.ravel().tolist()]


def _spread(low: Floats, high: Floats) -> Document:
    return {"p10": _factor(low), "p90": _factor(high)}


def _factor(factors: Floats) -> object:
    """One factor where all cells have the same one."""
    values = _values(factors)
    return values[0] if len(set(values)) == 1 else values
