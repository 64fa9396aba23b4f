"""Request traces from CSV or JSON lines: when each request came and how long it was.

Known column names, among others those of two public traces:

    arrival   arrival_s, arrival_time, arrived_at, timestamp (Mooncake: milliseconds; Azure:
              TIMESTAMP as a date and time), timestamp_ms
    prompt    prompt_tokens, input_length, input_tokens, num_prefill_tokens, ContextTokens (Azure)
    output    output_tokens, output_length, num_decode_tokens, GeneratedTokens (Azure), max_tokens
    prefix    hash_ids (Mooncake): a list of numbers, one for each block of 512 prompt tokens

Letters' case does not matter. The first name of a line above that is there is taken. Errors name
the line and the column.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from typing import Literal, NamedTuple, cast

from engine.errors import EngineError, InvalidRequest
from engine.refusals import Value, refused
from engine.simulator.serving.lengths import MAX_TOKENS

MAX_ROWS = 2_000_000
MAX_PREFIX_KEYS = 8192
MOONCAKE_BLOCK = 512
"""Prompt tokens for each of a row's ``hash_ids``, as that trace's own description says."""

_SECONDS = ("arrival_s", "arrival_time", "arrived_at", "time_s", "arrival")
_MILLISECONDS = ("timestamp_ms", "arrival_ms")
_EITHER = ("timestamp",)
_PROMPT = (
    "prompt_tokens",
    "input_length",
    "input_tokens",
    "num_prefill_tokens",
    "contexttokens",
    "prompt_len",
    "input_len",
    "request tokens",
)
_OUTPUT = (
    "output_tokens",
    "output_length",
    "num_decode_tokens",
    "generatedtokens",
    "output_len",
    "response tokens",
    "max_tokens",
)
_PREFIX = ("hash_ids",)
# A timestamp of Mooncake's is in milliseconds from the start, one of other traces in seconds; its
# list of hashes tells which it is.
_FIELD = "trace"
_MOST_TIME = 1e15

Format = Literal["csv", "jsonl"]
Cell = object


class TraceRow(NamedTuple):
    """One request: seconds from the start of the clock, tokens, and what its prompt begins with."""

    arrival: float | None
    prompt_tokens: int
    output_tokens: int
    prefix_keys: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of arrival. ``prefix_block``: prompt tokens for each prefix key."""

    rows: tuple[TraceRow, ...]
    prefix_block: int = MOONCAKE_BLOCK

    @property
    def has_times(self) -> bool:
        return self.rows[0].arrival is not None

    @property
    def has_prefixes(self) -> bool:
        return any(row.prefix_keys for row in self.rows)


class _Columns(NamedTuple):
    """Names as the file spells them; ``unit`` is what a number of the time column counts."""

    arrival: str | None
    unit: float
    prompt: str
    output: str
    prefix: str | None


def read_trace(text: str, form: Format | None = None) -> Trace:
    """The trace in a text; ``form`` None tells CSV and JSON lines apart by the first character.

    Rows are sorted by arrival; requests of the same time stay in the order of the file.

    Raises:
        InvalidRequest: the text is no trace (field "trace"); line and column are named.
    """
    start = text.lstrip("\ufeff \t\r\n")
    if form is None:
        form = "jsonl" if start.startswith("{") else "csv"
    records = _json_lines(text) if form == "jsonl" else _csv_lines(text)
    columns: _Columns | None = None
    rows: list[TraceRow] = []
    for line, record in records:
        if columns is None:
            columns = _find_columns(record, line)
        if len(rows) >= MAX_ROWS:
            raise _refused(line, None, "trace_rows", high=f"{MAX_ROWS:,}")
        rows.append(_row(record, columns, line))
    if not rows:
        raise refused("no_requests", field=_FIELD)
    if columns is not None and columns.arrival is not None:
        rows.sort(key=lambda row: row.arrival or 0.0)
    return Trace(tuple(rows))


def _refused(line: int, column: str | None, reason: str, **values: Value) -> EngineError:
    if column is not None:
        values["column"] = column
    return refused(reason, kind=InvalidRequest, field=_FIELD, line=line, **values)


def _csv_lines(text: str) -> Iterator[tuple[int, Mapping[str, Cell]]]:
    reader = csv.reader(StringIO(text.lstrip("\ufeff"), newline=""), strict=True)
    try:
        first = next(reader, None)
        header = [name.strip() for name in first or ()]
        if len(set(map(str.lower, header))) < len(header):
            raise _refused(1, None, "trace_same_name")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                found, known = len(cells), len(header)
                raise _refused(reader.line_num, None, "trace_fields", found=found, known=known)
            yield reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error:
        raise _refused(reader.line_num, None, "trace_no_csv") from None


def _json_lines(text: str) -> Iterator[tuple[int, Mapping[str, Cell]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip("\ufeff \t")
        if not stripped:
            continue
        try:
            record: object = json.loads(stripped)
        except (ValueError, RecursionError):
            raise _refused(number, None, "trace_no_json") from None
        if not isinstance(record, dict):
            raise _refused(number, None, "trace_one_object")
        yield number, cast("dict[str, Cell]", record)


def _find_columns(record: Mapping[str, Cell], line: int) -> _Columns:
    names = {name.strip().lower(): name for name in record}

    def find(*known: str) -> str | None:
        return next((names[name] for name in known if name in names), None)

    prompt, output = find(*_PROMPT), find(*_OUTPUT)
    if prompt is None:
        raise _refused(line, None, "trace_no_prompts", usual=_PROMPT[0])
    if output is None:
        raise _refused(line, None, "trace_no_outputs", usual=_OUTPUT[0])
    prefix = find(*_PREFIX)
    seconds, milliseconds, either = find(*_SECONDS), find(*_MILLISECONDS), find(*_EITHER)
    if seconds is not None:
        return _Columns(seconds, 1.0, prompt, output, prefix)
    if milliseconds is not None:
        return _Columns(milliseconds, 0.001, prompt, output, prefix)
    unit = 0.001 if prefix is not None and find("input_length") is not None else 1.0
    return _Columns(either, unit, prompt, output, prefix)


def _row(record: Mapping[str, Cell], columns: _Columns, line: int) -> TraceRow:
    arrival = None
    if columns.arrival is not None:
        arrival = _time(_cell(record, columns.arrival, line), columns, line)
    prompt = _tokens(_cell(record, columns.prompt, line), columns.prompt, line, least=1)
    output = _tokens(_cell(record, columns.output, line), columns.output, line, least=1)
    if columns.prefix is None:
        return TraceRow(arrival, prompt, output)
    return TraceRow(arrival, prompt, output, _keys(record, columns.prefix, line))


def _cell(record: Mapping[str, Cell], column: str, line: int) -> Cell:
    if column not in record:
        raise _refused(line, column, "trace_no_value")
    value = record[column]
    return value.strip() if isinstance(value, str) else value


def _tokens(value: Cell, column: str, line: int, least: int) -> int:
    number: object = value
    if isinstance(value, str):
        number = int(value) if value.isascii() and value.isdigit() and len(value) <= 12 else None
    elif isinstance(value, float):
        number = int(value) if value.is_integer() else None
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= MAX_TOKENS:
        raise _refused(line, column, "trace_whole", low=least, high=f"{MAX_TOKENS:,}")
    return number


def _time(value: Cell, columns: _Columns, line: int) -> float:
    column = columns.arrival
    seconds = math.nan
    if isinstance(value, str):
        try:
            seconds = float(value) * columns.unit
        except ValueError:
            seconds = _date(value)
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST_TIME:
        seconds = value * columns.unit
    if not math.isfinite(seconds) or abs(seconds) > _MOST_TIME:
        raise _refused(line, column, "trace_time")
    return seconds


def _date(text: str) -> float:
    """Seconds of a date and time such as 2023-11-16 18:15:46.6805900; NaN where it is none.

    Digits beyond microseconds are cut; without a zone it is taken for UTC, as only differences
    count.
    """
    head, dot, digits = text.partition(".")
    whole = head + dot + digits[:6] if digits.isdigit() else text
    try:
        moment = datetime.fromisoformat(whole)
    except ValueError:
        return math.nan
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _keys(record: Mapping[str, Cell], column: str, line: int) -> tuple[int, ...]:
    value = record.get(column)
    if isinstance(value, str):
        try:
            value = cast("object", json.loads(value or "[]"))
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list) or len(cast("list[object]", value)) > MAX_PREFIX_KEYS:
        raise _refused(line, column, "trace_keys", high=f"{MAX_PREFIX_KEYS:,}")
    keys: list[int] = []
    for key in cast("list[object]", value):
        if not isinstance(key, int) or isinstance(key, bool) or not 0 <= key < 2**53:
            raise _refused(line, column, "trace_from_zero")
        keys.append(key)
    return tuple(keys)
