"""Reads the header of a safetensors file and places its tensors in the mapped file.

Layout: u64 header length, a JSON object name → {dtype, shape, data_offsets}, the data. The data
must be indexed completely, without overlap or gap.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.weights.checkpoint import StoredTensor
from engine.inference.weights.ggml_types import BF16, F16, F32
from engine.inference.weights.json_file import JsonObject, parse_json_object

MAX_HEADER_BYTES = 16 * 2**20
MAX_TENSORS = 16_384
MAX_DIMENSIONS = 4
_MAX_OFFSET = 2**63 - 1

_DTYPES = {"F32": F32, "F16": F16, "BF16": BF16}
_KNOWN_ELSEWHERE = frozenset(
    {"F64", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL", "F8_E4M3", "F8_E5M2"}
)


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """``tensors`` are views of the mapped file under the file's own names."""

    tensors: dict[str, StoredTensor]
    file_bytes: int


def read_safetensors(path: Path) -> SafetensorsFile:
    """Map a file read-only and check its whole header.

    Raises ``FileFormatError`` for anything malformed, ``UnsupportedModel`` for element types that
    are well-formed but not weights we compute with, ``OSError`` where it cannot be opened.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise FileFormatError(f"{path.name} is not a safetensors file: too short")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    header_bytes = int.from_bytes(mapped[:8], "little")
    if header_bytes > min(MAX_HEADER_BYTES, size - 8):
        raise FileFormatError(f"the header of {path.name} is over its limit or truncated")
    header = parse_json_object(mapped[8 : 8 + header_bytes], f"the header of {path.name}")
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise FileFormatError(f"{path.name} names more tensors than the limit")
    data = np.frombuffer(mapped, np.uint8)[8 + header_bytes :]
    placed = sorted((_entry(name, info) for name, info in header.items()), key=lambda e: e.begin)
    position = 0
    for entry in placed:
        if entry.begin != position:
            raise FileFormatError(f"the tensors of {path.name} overlap, or have gaps between them")
        position = entry.end
    if position != len(data):
        raise FileFormatError(
            f"the data of {path.name} is truncated or longer than its header says"
        )
    tensors = {
        entry.name: StoredTensor(_DTYPES[entry.dtype], entry.shape, data[entry.begin : entry.end])
        for entry in placed
    }
    return SafetensorsFile(tensors, size)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _entry(name: str, info: Any) -> _Entry:  # noqa: ANN401 - any JSON value
    if not isinstance(info, dict):
        raise FileFormatError("a tensor's entry in a safetensors header is not an object")
    dtype = info.get("dtype")
    if dtype not in _DTYPES:
        if dtype in _KNOWN_ELSEWHERE:
            raise UnsupportedModel(f"weights of dtype {dtype} are not read here")
        raise FileFormatError("a tensor has an unknown dtype")
    shape = _naturals(info, "shape")
    offsets = _naturals(info, "data_offsets")
    if not 1 <= len(shape) <= MAX_DIMENSIONS or min(shape) < 1:
        raise FileFormatError(f"a tensor is empty or has more than {MAX_DIMENSIONS} dimensions")
    size = math.prod(shape) * _DTYPES[dtype].block_bytes
    if len(offsets) != 2 or offsets[1] - offsets[0] != size:
        raise FileFormatError("a tensor's offsets do not fit its shape")
    return _Entry(name, dtype, shape, offsets[0], offsets[1])


def _naturals(info: JsonObject, key: str) -> tuple[int, ...]:
    values = info.get(key)
    if not isinstance(values, list) or not all(
        type(value) is int and 0 <= value <= _MAX_OFFSET for value in values
    ):
        raise FileFormatError(f"{key} of a tensor is not a list of natural numbers")
    return tuple(values)
