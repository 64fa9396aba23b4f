"""``python -m tests.benchmarks.native_kernels``: speed of the matrix kernels, kind by kind.

Every kind at every number of rows streams many copies of one matrix, more than caches hold, as the
layers of a model do; oneDNN (through torch, bfloat16) multiplies the same shapes beside it. The
best of several rounds counts. Calls come from Python, some microseconds each, so small matrices
look slower than they are in a step.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from engine.inference.model.linear import PackedLinear
from engine.inference.native.matrix import MatrixPacker, NativeMatrix
from tests.engine.inference.native.matrices import Form, aligned, compile_kernels, random_levels

FORMS = (
    Form("f32"),
    Form("bf16"),
    Form("i8", 32),
    Form("i8"),
    Form("i4", 32),
    Form("i4", 32, offsets=True),
    Form("i4", 64, offsets=True),
)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 512)
THREADS = 2
STREAMED_BYTES = 128_000_000
ROUNDS = 7


def copies_of(library: CDLL, form: Form, outputs: int, inputs: int) -> list[NativeMatrix]:
    """The same weights packed several times, one after another in memory."""
    random = np.random.default_rng(0)
    packer = MatrixPacker(library)
    if form.quantised:
        make = partial(packer.pack_quantized, random_levels(random, form, outputs, inputs))
    else:
        weight = torch.from_numpy(random.standard_normal((outputs, inputs)).astype(np.float32))
        make = partial(packer.pack_floats, weight, bfloat16=form.kind == "bf16")
    first = make()
    return [first] + [make() for _ in range(STREAMED_BYTES // first.nbytes)]


def best_seconds(work: Callable[[], None]) -> float:
    """Of several rounds; the first, which warms up, does not count."""
    times: list[float] = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def native_seconds(
    library: CDLL, matrices: Sequence[NativeMatrix], rows: int, pool: ThreadPoolExecutor
) -> float:
    """Of one matrix: inputs prepared, and multiplied in ``THREADS`` parts."""
    outputs, inputs = matrices[0].outputs, matrices[0].inputs
    x: NDArray[np.float32] = np.random.default_rng(1).standard_normal((rows, inputs), np.float32)
    y = np.empty((rows, outputs), np.float32)
    nbytes = library.input_bytes(matrices[0].struct, rows)
    prepared = [aligned(nbytes) for _ in range(THREADS)]
    tile = library.column_tile(matrices[0].struct)
    bounds = [outputs // tile * part // THREADS * tile for part in range(THREADS)] + [outputs]

    def part(index: int) -> None:
        mine = prepared[index].ctypes.data
        for matrix in matrices:
            library.prepare_input(matrix.struct, x.ctypes.data, mine, 0, rows)
            begin, end = bounds[index], bounds[index + 1]
            library.matmul_part(
                matrix.struct, mine, rows, y.ctypes.data, outputs, begin, end, False
            )

    def whole() -> None:
        for _ in pool.map(part, range(THREADS)):
            pass

    return best_seconds(whole) / len(matrices)


def onednn_seconds(outputs: int, inputs: int, rows: int) -> float:
    """Of one matrix in bfloat16, from the layer that prefill uses."""
    copies = 1 + STREAMED_BYTES // (outputs * inputs * 2)
    weight = torch.randn(outputs, inputs, dtype=torch.bfloat16)
    layers = [PackedLinear(weight) for _ in range(copies)]
    x = torch.randn(rows, inputs, dtype=torch.bfloat16)

    def whole() -> None:
        for layer in layers:
            layer(x)

    return best_seconds(whole) / copies


def line(name: str, nbytes: int, operations: int, seconds: Sequence[float]) -> str:
    cells = [
        f"{nbytes / taken / 1e9:5.1f} {operations * rows / taken / 1e9:5.0f}"
        for rows, taken in zip(ROWS, seconds, strict=True)
    ]
    return f"{name:16s}" + " | ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outputs", type=int, default=12288)
    parser.add_argument("--inputs", type=int, default=576)
    options = parser.parse_args()
    shape = (options.outputs, options.inputs)
    operations = 2 * options.outputs * options.inputs
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(THREADS) as pool:
        library = compile_kernels(Path(folder) / "kernels.so")
        print(f"{library.matmul_path().decode()}, {shape}, GB/s of weights and GFLOP/s by rows")
        print(f"{'':16s}" + " | ".join(f"{rows:11d}" for rows in ROWS))
        for form in FORMS:
            matrices = copies_of(library, form, *shape)
            seconds = [native_seconds(library, matrices, rows, pool) for rows in ROWS]
            print(line(str(form), matrices[0].nbytes, operations, seconds), flush=True)
        seconds = [onednn_seconds(*shape, rows) for rows in ROWS]
        print(line("oneDNN bf16", operations, operations, seconds))


if __name__ == "__main__":
    main()
