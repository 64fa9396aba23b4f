"""Random matrices of every kind, and their products in float64, for tests and benchmarks."""

from __future__ import annotations

import subprocess
from ctypes import CDLL
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import engine.inference.native.matrix as native_matrix
from engine.inference.native.matrix import CHUNK, MatrixPacker, NativeMatrix, declare
from engine.inference.quantization.tensor import QuantizedTensor

SOURCES = Path(native_matrix.__file__).parent / "csrc"


@dataclass(frozen=True)
class Form:
    """How the weights of a test are stored. ``group``: 0 for a whole row."""

    kind: str
    group: int = 0
    offsets: bool = False

    def __str__(self) -> str:
        return f"{self.kind}-g{self.group}{'-offsets' if self.offsets else ''}"

    @property
    def quantised(self) -> bool:
        return self.kind in ("i8", "i4")


FORMS = (
    Form("f32"),
    Form("bf16"),
    Form("i8", 32),
    Form("i8", 64),
    Form("i8"),
    Form("i8", 32, offsets=True),
    Form("i4", 32),
    Form("i4", 32, offsets=True),
    Form("i4", 64, offsets=True),
    Form("i4"),
)


def compile_kernels(target: Path, *flags: str) -> CDLL:
    """The kernels alone, compiled into ``target`` for this machine."""
    sources = [str(source) for source in sorted(SOURCES.glob("matmul*.cpp"))]
    options = ["-O3", "-march=native", "-shared", "-fPIC", "-std=c++17", "-Wall", "-Wextra"]
    options += ["-Wno-maybe-uninitialized"]  # GCC 12 warns of its own AVX-512 header
    subprocess.run(
        ["g++", *options, "-Werror", *flags, "-o", str(target), *sources],
        check=True,
        capture_output=True,
        text=True,
    )
    library = CDLL(str(target))
    declare(library)
    return library


@dataclass(frozen=True)
class Sample:
    """A packed matrix, and the very numbers that it holds in float64."""

    form: Form
    native: NativeMatrix
    weight_nk: NDArray[np.float64]
    bias_n: NDArray[np.float64]


def make_sample(library: CDLL, form: Form, outputs: int, inputs: int, seed: int) -> Sample:
    random = np.random.default_rng(seed)
    bias = torch.from_numpy(random.standard_normal(outputs).astype(np.float32))
    packer = MatrixPacker(library)
    if form.quantised:
        quantised = random_levels(random, form, outputs, inputs)
        native = packer.pack_quantized(quantised, bias)
        weight = exact(quantised)
    else:
        plain = torch.from_numpy(random.standard_normal((outputs, inputs)).astype(np.float32))
        plain = plain.bfloat16() if form.kind == "bf16" else plain
        native = packer.pack_floats(plain, bias, bfloat16=form.kind == "bf16")
        weight = plain.double().numpy()
    return Sample(form, native, weight, bias.double().numpy())


def random_levels(
    random: np.random.Generator, form: Form, outputs: int, inputs: int
) -> QuantizedTensor:
    group = form.group or inputs
    low, high = (-127, 128) if form.kind == "i8" else (0, 16)
    levels = torch.from_numpy(random.integers(low, high, (outputs, inputs)).astype(np.int8))
    shape = (outputs, inputs // group)
    scales = torch.from_numpy(random.standard_normal(shape) * 0.01).half().float()
    offsets = torch.from_numpy(random.standard_normal(shape) * 0.1).half().float()
    bits = 8 if form.kind == "i8" else 4
    return QuantizedTensor(bits, group, levels, scales, offsets if form.offsets else None)


def exact(tensor: QuantizedTensor) -> NDArray[np.float64]:
    """The weights in float64: products of few bits, so that nothing is rounded."""
    outputs, inputs = tensor.shape
    levels = tensor.levels_oi.double().view(outputs, -1, tensor.group_size)
    scales = tensor.scales_oq.double().unsqueeze(-1)
    zero = 8.0 if tensor.bits == 4 else 0.0
    if tensor.offsets_oq is None:
        weight: Tensor = (levels - zero) * scales
    else:
        weight = levels * scales + tensor.offsets_oq.double().unsqueeze(-1)
    return weight.view(outputs, inputs).numpy()


def as_the_kernel_sees(form: Form, x_mk: NDArray[np.float32]) -> NDArray[np.float64]:
    """The inputs after their rounding to bfloat16 or to 8 bits, by other means than the kernels."""
    if form.kind == "f32":
        return x_mk.astype(np.float64)
    if form.kind == "bf16":
        return torch.from_numpy(x_mk).bfloat16().double().numpy()
    rows, inputs = x_mk.shape
    padded = np.zeros((rows, -(-inputs // CHUNK) * CHUNK), np.float32)
    padded[:, :inputs] = x_mk
    chunks = padded.reshape(rows, -1, CHUNK)
    largest = np.abs(chunks).max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.rint(chunks * np.where(largest > 0, np.float32(127) / largest, 0))
    seen = levels.astype(np.float64) * (largest / np.float32(127)).astype(np.float64)
    return seen.reshape(rows, -1)[:, :inputs]


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """Memory that begins at a cache line."""
    memory = np.empty(nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + nbytes]


def prepare(library: CDLL, matrix: NativeMatrix, x_mk: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The inputs in the form that the matrix wants."""
    x_mk = np.ascontiguousarray(x_mk)
    rows = x_mk.shape[0]
    prepared = aligned(library.input_bytes(matrix.struct, rows))
    prepared[:] = 0  # what is between rows is not written
    library.prepare_input(matrix.struct, x_mk.ctypes.data, prepared.ctypes.data, 0, rows)
    return prepared


def multiply(
    library: CDLL,
    matrix: NativeMatrix,
    x_mk: NDArray[np.float32],
    bounds: tuple[int, ...] = (),
    onto: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """``x Wᵀ + b`` by native code in parts that end at ``bounds``; added to ``onto``, if given."""
    rows = x_mk.shape[0]
    prepared = prepare(library, matrix, x_mk)
    y = np.full((rows, matrix.outputs), np.nan, np.float32) if onto is None else onto.copy()
    begin = 0
    for end in (*bounds, matrix.outputs):
        library.matmul_part(
            matrix.struct,
            prepared.ctypes.data,
            rows,
            y.ctypes.data,
            matrix.outputs,
            begin,
            end,
            onto is not None,
        )
        begin = end
    return y
