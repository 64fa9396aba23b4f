"""Reads the header of a GGUF file: metadata and where each tensor lies. Nothing is trusted.

Layout (little-endian, versions 2 and 3): magic ``GGUF``, u32 version, u64 tensor count, u64 key
count, the keys, the tensor infos, padding to ``general.alignment``, the tensor data. As ggml's own
reader, this one wants the tensors back to back in the order of their infos, each padded to the
alignment, so that there is neither overlap nor gap.

Every count and length is checked against a limit and against the bytes that are left *before*
anything of that size is made, and products are Python ints, which do not wrap.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.weights.checkpoint import StoredTensor
from engine.inference.weights.ggml_types import BY_GGML_ID

MAX_HEADER_BYTES = 64 * 2**20
MAX_KEYS = 4_096
MAX_TENSORS = 16_384
MAX_KEY_BYTES = 256
MAX_TENSOR_NAME_BYTES = 128
MAX_STRING_BYTES = 2**20
MAX_ARRAY_ITEMS = 2**20
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 2**20
DEFAULT_ALIGNMENT = 32

_STRING, _ARRAY = 8, 9
_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4",
    7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_SCALARS = {
    0: struct.Struct("<B"), 1: struct.Struct("<b"), 2: struct.Struct("<H"), 3: struct.Struct("<h"),
    4: struct.Struct("<I"), 5: struct.Struct("<i"), 6: struct.Struct("<f"), 7: struct.Struct("<?"),
    10: struct.Struct("<Q"), 11: struct.Struct("<q"), 12: struct.Struct("<d"),
}  # fmt: skip
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class StringArray(Sequence[str]):
    """An array of strings that is decoded when it is read, not when the header is.

    A hostile header can then name a million strings without a million objects being made.
    Iterating raises ``FileFormatError`` for a string that is not UTF-8.
    """

    def __init__(self, buffer: mmap.mmap | bytes, start: int, count: int) -> None:
        self._buffer = buffer
        self._start = start
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        buffer, position, read_length = self._buffer, self._start, _U64.unpack_from
        try:
            for _ in range(self._count):
                (length,) = read_length(buffer, position)
                position += 8 + length
                yield buffer[position - length : position].decode("utf-8")
        except UnicodeDecodeError as error:
            raise FileFormatError("a string of an array is not UTF-8") from error

    def __getitem__(self, index: int | slice) -> str:
        raise TypeError("strings lie one after another in the file: iterate, or make a list")


MetadataValue = int | float | bool | str | npt.NDArray[np.generic] | StringArray


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A parsed header. ``tensors`` are views of the mapped file under the file's own names."""

    metadata: dict[str, MetadataValue]
    tensors: dict[str, StoredTensor]
    file_bytes: int


def read_gguf(path: Path) -> GgufFile:
    """Map a GGUF file read-only and parse its header.

    Raises ``FileFormatError`` for anything malformed or over a limit, ``UnsupportedModel`` for an
    element type that no part of the engine can read, ``OSError`` where the file cannot be opened.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 24:
            raise FileFormatError("not a GGUF file: shorter than its fixed header")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return _parse(mapped)
    except struct.error as error:
        raise FileFormatError("the GGUF header ends in the middle of a value") from error


def _parse(mapped: mmap.mmap) -> GgufFile:
    cursor = _Cursor(mapped, min(len(mapped), MAX_HEADER_BYTES))
    if mapped[:4] != b"GGUF":
        raise FileFormatError("not a GGUF file: wrong magic number")
    cursor.position = 4
    version = cursor.u32()
    if version not in (2, 3):
        raise FileFormatError("only little-endian GGUF versions 2 and 3 can be read")
    num_tensors, num_keys = cursor.u64(), cursor.u64()
    if num_tensors > MAX_TENSORS or num_keys > MAX_KEYS:
        raise FileFormatError("the GGUF header counts more tensors or keys than the limit")
    metadata: dict[str, MetadataValue] = {}
    for _ in range(num_keys):
        key = cursor.string(MAX_KEY_BYTES)
        if key in metadata:
            raise FileFormatError("a GGUF metadata key appears twice")
        metadata[key] = cursor.value(cursor.u32())
    infos = _tensor_infos(cursor, num_tensors)
    tensors = _place_tensors(infos, mapped, cursor.position, _alignment(metadata))
    return GgufFile(metadata, tensors, len(mapped))


class _Cursor:
    """A position in the header; every read is checked against the header's end."""

    def __init__(self, buffer: mmap.mmap, limit: int) -> None:
        self.buffer = buffer
        self.limit = limit
        self.position = 0

    def take(self, size: int) -> int:
        """Step over ``size`` bytes; gives where they start."""
        start = self.position
        if size > self.limit - start:
            raise FileFormatError("the GGUF header is truncated or over its size limit")
        self.position = start + size
        return start

    def u32(self) -> int:
        return _U32.unpack_from(self.buffer, self.take(4))[0]

    def u64(self) -> int:
        return _U64.unpack_from(self.buffer, self.take(8))[0]

    def string(self, max_bytes: int) -> str:
        length = self.u64()
        if length > max_bytes:
            raise FileFormatError("a string in the GGUF header is longer than the limit")
        start = self.take(length)
        try:
            return self.buffer[start : start + length].decode("utf-8")
        except UnicodeDecodeError as error:
            raise FileFormatError("a string in the GGUF header is not UTF-8") from error

    def value(self, kind: int) -> MetadataValue:
        if kind == _STRING:
            return self.string(MAX_STRING_BYTES)
        if kind == _ARRAY:
            return self._array()
        scalar = _SCALARS.get(kind)
        if scalar is None:
            raise FileFormatError("a GGUF metadata value has an unknown type")
        return scalar.unpack_from(self.buffer, self.take(scalar.size))[0]

    def _array(self) -> MetadataValue:
        kind, count = self.u32(), self.u64()
        if count > MAX_ARRAY_ITEMS:
            raise FileFormatError("an array in the GGUF header is longer than the limit")
        if kind == _STRING:
            return self._strings(count)
        if kind not in _NUMBERS:
            raise FileFormatError("a GGUF array has an unknown or nested element type")
        dtype = np.dtype(_NUMBERS[kind])
        start = self.take(count * dtype.itemsize)
        return np.frombuffer(self.buffer, dtype, count, start)

    def _strings(self, count: int) -> StringArray:
        """Walk over the lengths only; a walk, because strings are not of one size."""
        start = position = self.position
        buffer, limit, read_length = self.buffer, self.limit, _U64.unpack_from
        for _ in range(count):
            if limit - position < 8:
                raise FileFormatError("the GGUF header is truncated or over its size limit")
            (length,) = read_length(buffer, position)
            position += 8
            if length > limit - position or length > MAX_STRING_BYTES:
                raise FileFormatError("a string of a GGUF array is too long")
            position += length
        self.position = position
        return StringArray(buffer, start, count)


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    name: str
    dimensions: tuple[int, ...]
    ggml_id: int
    offset: int


def _tensor_infos(cursor: _Cursor, count: int) -> list[_TensorInfo]:
    infos: list[_TensorInfo] = []
    names: set[str] = set()
    for _ in range(count):
        name = cursor.string(MAX_TENSOR_NAME_BYTES)
        if name in names:
            raise FileFormatError("a tensor name appears twice")
        names.add(name)
        num_dimensions = cursor.u32()
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            raise FileFormatError(f"a tensor has no dimensions or more than {MAX_DIMENSIONS}")
        # The fastest-running dimension is stored first; shapes here end with it.
        dimensions = tuple(cursor.u64() for _ in range(num_dimensions))[::-1]
        if min(dimensions) < 1:
            raise FileFormatError("a tensor has an empty dimension")
        infos.append(_TensorInfo(name, dimensions, cursor.u32(), cursor.u64()))
    return infos


def _alignment(metadata: dict[str, MetadataValue]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if (
        not isinstance(alignment, int)
        or not 1 <= alignment <= MAX_ALIGNMENT
        or alignment & (alignment - 1)
    ):
        raise FileFormatError(f"general.alignment must be a power of two up to {MAX_ALIGNMENT}")
    return alignment


def _place_tensors(
    infos: list[_TensorInfo], mapped: mmap.mmap, header_end: int, alignment: int
) -> dict[str, StoredTensor]:
    data_start = _align(header_end, alignment)
    whole_file = np.frombuffer(mapped, np.uint8)
    tensors: dict[str, StoredTensor] = {}
    expected_offset = 0
    for info in infos:
        storage = BY_GGML_ID.get(info.ggml_id)
        if storage is None:
            raise UnsupportedModel("a tensor has an element type that is not read here")
        if info.dimensions[-1] % storage.block_elements:
            raise FileFormatError(f"rows of a tensor are not whole {storage.name} blocks")
        size = math.prod(info.dimensions) // storage.block_elements * storage.block_bytes
        if info.offset != expected_offset:
            raise FileFormatError("the tensors overlap, or have gaps between them")
        start = data_start + info.offset
        if start + size > len(mapped):
            raise FileFormatError("a tensor reaches beyond the end of the file")
        stored = whole_file[start : start + size]
        tensors[info.name] = StoredTensor(storage, info.dimensions, stored)
        expected_offset = _align(info.offset + size, alignment)
    return tensors


def _align(position: int, alignment: int) -> int:
    return (position + alignment - 1) // alignment * alignment
