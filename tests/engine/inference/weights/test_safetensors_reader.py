"""Hostile and damaged safetensors files, and agreement with the ``safetensors`` package."""

from __future__ import annotations

import contextlib
import json
import struct
import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.weights.safetensors_reader import MAX_HEADER_BYTES, read_safetensors


def file_of(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: list, begin: int, end: int, dtype: object = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_all_three_dtypes_equal_what_the_package_wrote(tmp_path):
    generator = torch.Generator().manual_seed(0)
    weights = {
        "a": torch.randn(3, 5, generator=generator),
        "b": torch.randn(7, generator=generator).half(),
        "c": torch.randn(2, 2, 4, generator=generator).bfloat16(),
    }
    save_file(weights, tmp_path / "t.safetensors", metadata={"format": "pt"})
    file = read_safetensors(tmp_path / "t.safetensors")
    assert file.tensors.keys() == weights.keys()
    for name, weight in weights.items():
        np.testing.assert_array_equal(file.tensors[name].float32(), weight.float().numpy())
    assert file.file_bytes == (tmp_path / "t.safetensors").stat().st_size


HOSTILE = {
    "empty": b"",
    "seven bytes": bytes(7),
    "header of 2^64-1 bytes": file_of(b"{}", length=2**64 - 1),
    "header over the cap": file_of(b"{}", bytes(99), length=MAX_HEADER_BYTES + 1),
    "header cut off": file_of(b"{}", length=3),
    "not JSON": file_of(b"{'a': 1}"),
    "not UTF-8": file_of(b'{"\xff": 1}'),
    "a list": file_of([1]),
    "nested 100,000 deep": file_of(b'{"a":' * 100_000),
    "NaN": file_of(b'{"a": NaN}'),
    "a number of 10,000 digits": file_of(b'{"a": ' + b"9" * 10_000 + b"}"),
    "key twice": file_of(b'{"a": {}, "a": {}}'),
    "entry that is a number": file_of({"a": 1}),
    "no dtype": file_of({"a": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
    "unknown dtype": file_of({"a": entry([1], 0, 4, "F33")}, bytes(4)),
    "shape of strings": file_of({"a": entry(["1"], 0, 4)}, bytes(4)),
    "negative shape": file_of({"a": entry([-1], 0, 4)}, bytes(4)),
    "shape with a bool": file_of({"a": entry([True], 0, 4)}, bytes(4)),
    "empty shape": file_of({"a": entry([], 0, 4)}, bytes(4)),
    "five dimensions": file_of({"a": entry([1, 1, 1, 1, 1], 0, 4)}, bytes(4)),
    "product that wraps": file_of({"a": entry([2**32, 2**32 + 1], 0, 4)}, bytes(4)),
    "offsets backwards": file_of({"a": entry([1], 4, 0)}, bytes(4)),
    "three offsets": file_of({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}),
    "beyond the end": file_of({"a": entry([2], 0, 8)}, bytes(4)),
    "bytes left over": file_of({"a": entry([1], 0, 4)}, bytes(8)),
    "overlap": file_of({"a": entry([2], 0, 8), "b": entry([1], 4, 8)}, bytes(8)),
    "gap": file_of({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, bytes(12)),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_are_refused_quickly(content, tmp_path):
    path = tmp_path / "t.safetensors"
    path.write_bytes(content)
    start = time.process_time()
    with pytest.raises(FileFormatError) as caught:
        read_safetensors(path)
    assert time.process_time() - start < 1.0
    assert len(caught.value.message) < 200


def test_a_known_dtype_that_is_not_computed_with_is_unsupported(tmp_path):
    path = tmp_path / "t.safetensors"
    path.write_bytes(file_of({"a": entry([1], 0, 1, "F8_E4M3")}, bytes(1)))
    with pytest.raises(UnsupportedModel, match="F8_E4M3"):
        read_safetensors(path)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    flips=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), min_size=1, max_size=5),
    cut=st.integers(0, 60),
)
def test_damaged_files_never_raise_anything_else(flips, cut, tmp_path):
    header = {"__metadata__": {"format": "pt"}, "a": entry([2, 3], 0, 24), "b": entry([4], 24, 40)}
    content = bytearray(file_of(header, bytes(40)))
    for place, mask in flips:
        content[place % len(content)] ^= mask
    path = tmp_path / "t.safetensors"
    path.write_bytes(content[: len(content) - cut])
    with contextlib.suppress(FileFormatError, UnsupportedModel):
        for tensor in read_safetensors(path).tensors.values():
            tensor.float32()
