"""Hostile and damaged GGUF headers: refused quickly, with our own errors and little memory."""

from __future__ import annotations

import contextlib
import struct
import time
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.weights import open_checkpoint
from engine.inference.weights.gguf_reader import StringArray, read_gguf
from tests.engine.inference.weights.gguf_files import Header, metadata, tensors, write_gguf

MAX_SECONDS = 1.0
MAX_BYTES = 5_000_000


def test_values_and_tensors_equal_those_of_the_package(tmp_path):
    keys = metadata() | {
        "general.u64": (2**63, gguf.GGUFValueType.UINT64),
        "general.i8": (-3, gguf.GGUFValueType.INT8),
        "general.f64": (0.1, gguf.GGUFValueType.FLOAT64),
        "general.floats": [0.5, -0.25],
        "general.flags": [True, False],
        "general.nothing": "",
        "general.words": ["", "中", "🙂"],
    }
    path = write_gguf(tmp_path / "tiny.gguf", keys)
    ours, theirs = read_gguf(path), gguf.GGUFReader(path)
    for key, field in theirs.fields.items():
        if key.startswith("GGUF."):
            continue
        value = ours.metadata[key]
        if isinstance(value, StringArray | np.ndarray):
            value = list(value)
        assert value == field.contents(), key
    assert ours.metadata.keys() == {k for k in theirs.fields if not k.startswith("GGUF.")}
    for tensor in theirs.tensors:
        stored = ours.tensors[tensor.name]
        assert stored.shape == tuple(reversed(tensor.shape.tolist()))
        np.testing.assert_array_equal(stored.stored, np.asarray(tensor.data).view(np.uint8).ravel())
    assert ours.tensors.keys() == {tensor.name for tensor in theirs.tensors}
    assert ours.file_bytes == path.stat().st_size


def test_version_2_is_read_too(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf")
    content = bytearray(path.read_bytes())
    content[4:8] = struct.pack("<I", 2)
    path.write_bytes(content)
    assert read_gguf(path).metadata["general.architecture"] == "llama"


def test_the_mapped_weights_cannot_be_written(tmp_path):
    stored = read_gguf(write_gguf(tmp_path / "tiny.gguf")).tensors["token_embd.weight"].stored
    assert not stored.flags.writeable


HUGE = 2**64 - 1

HOSTILE = {
    "empty": b"",
    "too short": b"GGUF" + bytes(19),
    "wrong magic": b"GGML" + bytes(60),
    "version 1": Header(version=1).content,
    "version 4": Header(version=4).content,
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "2^64-1 keys": Header(keys=HUGE).content,
    "2^64-1 tensors": Header(tensors=HUGE).content,
    "keys counted that are not there": Header(keys=3).content,
    "tensors counted that are not there": Header(tensors=3).content,
    "key of 2^64-1 bytes": Header(keys=1).raw("Q", HUGE).content,
    "key of 10,000 bytes": Header(keys=1).string("k" * 10_000).raw("II", 4, 1).content,
    "key that is not UTF-8": Header(keys=1).string(b"\xff\xfe").raw("II", 4, 1).content,
    "string of 2^63 bytes": Header(keys=1).string("k").raw("IQ", 8, 2**63).content,
    "string of 2 MiB": Header(keys=1).string("k").raw("I", 8).string("x" * 2**21).content,
    "value of an unknown type": Header(keys=1).string("k").raw("I", 99).content,
    "key twice": Header(keys=2).string("k").raw("II", 4, 1).string("k").raw("II", 4, 1).content,
    "number cut off": Header(keys=1).string("k").raw("IH", 4, 1).content,
    "array of 2^64-1 bytes": Header(keys=1).string("k").raw("IIQ", 9, 0, HUGE).content,
    "array of 2^61 numbers (wraps)": Header(keys=1).string("k").raw("IIQ", 9, 10, 2**61).content,
    "array of a million absent strings": Header(keys=1)
    .string("k")
    .raw("IIQ", 9, 8, 10**6)
    .raw("Q", 0)
    .content,
    "array of 200,000 present strings, then nonsense": Header(keys=2)
    .string("k")
    .raw("IIQ", 9, 8, 200_000)
    .content
    + (struct.pack("<Q", 2) + b"ab") * 200_000
    + b"\xff" * 64,
    "array in an array": Header(keys=1).string("k").raw("IIQ", 9, 9, 1).raw("IQB", 0, 1, 7).content,
    "arrays nested 10,000 deep": Header(keys=1).string("k").raw("I", 9).content
    + struct.pack("<IQ", 9, 1) * 10_000,
    "array of an unknown type": Header(keys=1).string("k").raw("IIQ", 9, 77, 1).content,
    "a million dimensions": Header(tensors=1).string("t").raw("I", 10**6).content
    + struct.pack("<Q", 1) * 1_000,
    "no dimension": Header(tensors=1).string("t").raw("IIQ", 0, 0, 0).content,
    "five dimensions": Header(tensors=1).tensor("t", (1, 1, 1, 1, 1)).content,
    "product 2^64 + 2^34 (wraps)": Header(tensors=1).tensor("t", (2**32 + 4, 2**32)).content,
    "product 2^64 (wraps to nothing)": Header(tensors=1).tensor("t", (2**32, 2**32)).content,
    "an empty dimension": Header(tensors=1).tensor("t", (8, 0)).content,
    "rows that are not whole blocks": Header(tensors=1).tensor("t", (33,), 2).content + bytes(99),
    "offset beyond the end": Header(tensors=1).tensor("t", (8,), 0, 2**40).content,
    "offset that is not aligned": Header(tensors=1).tensor("t", (8,), 0, 4).content + bytes(99),
    "tensor cut off": Header(tensors=1).tensor("t", (1024,)).content + bytes(99),
    "tensors overlap": Header(tensors=2).tensor("a", (8,)).tensor("b", (8,)).content + bytes(999),
    "gap between tensors": Header(tensors=2).tensor("a", (8,)).tensor("b", (8,), 0, 64).content
    + bytes(999),
    "tensor name twice": Header(tensors=2).tensor("a", (8,)).tensor("a", (8,), 0, 32).content
    + bytes(999),
    "tensor name of 10,000 bytes": Header(tensors=1).tensor("t" * 10_000, (8,)).content,
    "alignment 0": Header(keys=1).alignment(0).content,
    "alignment 3": Header(keys=1).alignment(3).content,
    "alignment 2 MiB": Header(keys=1).alignment(2**21).content,
    "alignment that is a string": Header(keys=1)
    .string("general.alignment")
    .raw("I", 8)
    .string("32")
    .content,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_headers_are_refused_quickly_in_little_memory(content, tmp_path):
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    start = time.process_time()
    with pytest.raises(FileFormatError) as caught:
        read_gguf(path)
    assert time.process_time() - start < MAX_SECONDS
    assert len(caught.value.message) < 200
    # A second time, because tracing allocations makes the reader many times slower.
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError):
            read_gguf(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_BYTES


def test_an_unknown_element_type_is_unsupported_not_malformed(tmp_path):
    path = Header(tensors=1).tensor("t", (256,), kind=16).write(tmp_path / "t.gguf", data=999)
    with pytest.raises(UnsupportedModel, match="element type"):
        read_gguf(path)


def test_what_the_header_may_be_is_read(tmp_path):
    """The other side of the limits: the same builder, with nothing wrong."""
    header = (
        Header(keys=1, tensors=2).alignment(64).tensor("a", (32, 2), 2).tensor("b", (8,), 0, 64)
    )
    header.content += bytes(-len(header.content) % 64)
    file = read_gguf(header.write(tmp_path / "fine.gguf", data=64 + 32))
    assert file.tensors["a"].shape == (2, 32)
    assert file.tensors["b"].stored.size == 32


def test_strings_of_an_array_are_checked_when_they_are_read(tmp_path):
    header = Header(keys=1).string("k").raw("IIQ", 9, 8, 2).string("fine").string(b"\xff")
    strings = read_gguf(header.write(tmp_path / "t.gguf")).metadata["k"]
    assert isinstance(strings, StringArray)
    assert len(strings) == 2
    with pytest.raises(FileFormatError, match="UTF-8"):
        list(strings)


def _use_everything(path: Path) -> None:
    checkpoint = open_checkpoint(path)
    for name in checkpoint.names:
        checkpoint.tensor(name)
    checkpoint.tokenizer().encode_prompt("The 12 cats")


@pytest.fixture(scope="module")
def valid_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("valid") / "tiny.gguf"
    write_gguf(path, quantised={"token_embd.weight": gguf.GGMLQuantizationType.Q8_0})
    _use_everything(path)
    return path


def _must_be_refused_or_work(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with contextlib.suppress(FileFormatError, UnsupportedModel):
        _use_everything(path)


QUICK = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@QUICK
@given(cut=st.floats(0, 1))
def test_a_truncated_file_is_refused(cut, valid_file, tmp_path):
    content = valid_file.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[: int(cut * (len(content) - 1))])
    with pytest.raises(FileFormatError):
        _use_everything(path)


@QUICK
@given(
    flips=st.lists(
        st.tuples(st.floats(0, 1), st.integers(1, 255), st.booleans()), min_size=1, max_size=6
    )
)
def test_flipped_bytes_never_raise_anything_else(flips, valid_file, tmp_path):
    content = bytearray(valid_file.read_bytes())
    header_end = len(content) - 4 * sum(w.size for w in tensors().values()) // 2
    for place, mask, in_header in flips:
        content[int(place * ((header_end if in_header else len(content)) - 1))] ^= mask
    _must_be_refused_or_work(tmp_path / "flipped.gguf", bytes(content))


@QUICK
@given(place=st.floats(0, 1), word=st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]))
def test_overwritten_lengths_never_raise_anything_else(place, word, valid_file, tmp_path):
    content = bytearray(valid_file.read_bytes())
    start = int(place * 20_000)
    content[start : start + 8] = struct.pack("<Q", word)
    _must_be_refused_or_work(tmp_path / "overwritten.gguf", bytes(content))
