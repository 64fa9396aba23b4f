"""The published measurements: facts as their sources state them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from engine.errors import FileFormatError

_DETAILS = (
    (r"-?fa (\d)", "flash"),
    (r"(?:Server|Offline) at ([\d.]+) tok/s", "load_tok_s"),
    (r"achieved ([\d.]+) req/s", "achieved_rps"),
)
_REQUIRED = ("row_id", "source_id", "framework", "device", "model", "metric", "value")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row. Empty texts are what the source does not state.

    ``detail`` holds what else decides the number, as names and values: "flash" (attention
    without a matrix of scores), "load_tok_s" (offered load of an MLPerf server run),
    "achieved_rps".
    """

    row_id: str
    source_id: str
    source: str
    date: str
    framework: str
    version: str
    device: str
    devices: int
    parallelism: str
    model: str
    weights: str
    weight_gib: float | None
    activations: str
    kv: str
    batch: str
    batch_kind: str
    prompt_tokens: int | None
    output_tokens: float | None
    depth: int | None
    metric: str
    value: float
    tier: str
    flags: frozenset[str]
    detail: Mapping[str, str]


def data_folder() -> Traversable:
    """Where the measurements lie."""
    return files("engine.catalog") / "data" / "measurements"


def read_measurements(path: Path | None = None) -> tuple[Measurement, ...]:
    """The rows of a CSV file; without one, of the measurements that come with the program.

    Raises:
        FileFormatError: a column is missing or a number is malformed (names the row).
    """
    where: Traversable | Path = data_folder() / "measurements.csv" if path is None else path
    with where.open(encoding="utf-8") as lines:
        return tuple(_read(lines))


def _read(lines: Iterable[str]) -> Iterable[Measurement]:
    reader = csv.DictReader(lines)
    missing = set(_REQUIRED) - set(reader.fieldnames or ())
    if missing:
        raise FileFormatError(
            f"the measurements lack the column {min(missing)}", field=min(missing)
        )
    for row in reader:
        try:
            yield _measurement(row)
        except ValueError as error:
            raise FileFormatError(f"measurement {row['row_id']} has a malformed number") from error


def _measurement(row: Mapping[str, str]) -> Measurement:
    def number(name: str) -> float | None:
        text = row.get(name, "")
        return float(text) if text else None

    def integer(name: str) -> int | None:
        value = number(name)
        return None if value is None else int(value)

    return Measurement(
        row_id=row["row_id"],
        source_id=row["source_id"],
        source=row.get("source", ""),
        date=row.get("date", ""),
        framework=row["framework"],
        version=row.get("framework_version", ""),
        device=row["device"],
        devices=integer("n_devices") or 1,
        parallelism=row.get("parallelism", ""),
        model=row["model"],
        weights=row.get("weight_dtype", ""),
        weight_gib=number("weight_gib"),
        activations=row.get("act_dtype", ""),
        kv=row.get("kv_dtype", ""),
        batch=row.get("batch", ""),
        batch_kind=row.get("batch_kind", ""),
        prompt_tokens=integer("prompt_tokens"),
        output_tokens=number("gen_tokens"),
        depth=integer("context_depth"),
        metric=row["metric"],
        value=float(row["value"]),
        tier=row.get("tier", ""),
        flags=frozenset(filter(None, row.get("flags", "").split(";"))),
        detail=_detail(row),
    )


def _detail(row: Mapping[str, str]) -> Mapping[str, str]:
    """The column of details, or the same facts picked out of a source's notes."""
    pairs = [item.partition("=") for item in row.get("detail", "").split(";") if item]
    found = {name: value for name, _, value in pairs}
    for pattern, name in _DETAILS:
        match = re.search(pattern, row.get("notes", ""))
        if match:
            found[name] = match.group(1)
    return found
