"""Weights in the layout of the native kernels: packed once, multiplied many times.

Shapes: n outputs · k inputs · q groups of a row, k / group_size · m rows of x.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.inference.quantization.tensor import QuantizedTensor

CHUNK = 32  # inputs that share a scale when they are rounded to 8 bits
_LINE = 64  # bytes; every packed matrix begins at a multiple
_ARENA_BYTES = 64 << 20


class MatrixKind(IntEnum):
    """How weights are stored; the numbers are those of ``Kind`` in ``csrc/matmul.h``."""

    F32 = 0
    BF16 = 1
    I8 = 2
    I4 = 3


class PackedMatrixStruct(ctypes.Structure):
    """``PackedMatrix`` of ``csrc/matmul.h``, field by field."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("n", ctypes.c_int32),
        ("k", ctypes.c_int32),
        ("group", ctypes.c_int32),
        ("has_offsets", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("data", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class NativeMatrix:
    """A packed matrix and the memory behind it, which lives as long as this object.

    ``nbytes``: what the weights, scales, offsets and bias take, padding included.
    """

    kind: MatrixKind
    outputs: int
    inputs: int
    struct: PackedMatrixStruct
    nbytes: int
    _library: ctypes.CDLL
    _owned: tuple[npt.NDArray[Any], ...]

    @property
    def storage(self) -> Tensor:
        """The packed weights as bytes, for comparing where they lie."""
        return torch.from_numpy(self._owned[0])

    def rows(self, which_r: Tensor) -> Tensor:
        """Weights of these outputs, ``[r]`` to ``[r, k]`` in float32, without the bias.

        Raises:
            IndexError: there is no such output.
        """
        if len(which_r) and not 0 <= int(which_r.min()) <= int(which_r.max()) < self.outputs:
            raise IndexError(f"outputs are from 0 to {self.outputs - 1}")
        wanted = which_r.to(torch.int32).contiguous()
        weight_rk = torch.empty(len(wanted), self.inputs)
        self._library.unpack_rows(self.struct, wanted.data_ptr(), len(wanted), weight_rk.data_ptr())
        return weight_rk


class CannotPackError(ValueError):
    """Weights that the native layout has no place for."""


class MatrixPacker:
    """Packs the matrices of one model, one after another in memory.

    Matrices that are packed in the order in which they are used are read as one stream. The memory
    asks for huge pages. ``library``: the loaded native library (see ``matmul.h``).
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        declare(library)
        self._library = library
        self._arena = np.empty(0, np.uint8)

    def pack_floats(
        self, weight_nk: Tensor, bias_n: Tensor | None = None, *, bfloat16: bool
    ) -> NativeMatrix:
        """Weights in bfloat16 (rounded to the nearest, if they are not yet) or float32."""
        kind = MatrixKind.BF16 if bfloat16 else MatrixKind.F32
        outputs, inputs = weight_nk.shape
        struct = PackedMatrixStruct(kind=kind, n=outputs, k=inputs, group=inputs)
        if bfloat16:
            stored = weight_nk.to(torch.bfloat16).contiguous().view(torch.int16).numpy()
            pack = self._library.pack_bfloats
        else:
            stored = weight_nk.float().contiguous().numpy()
            pack = self._library.pack_floats
        return self._finish(struct, bias_n, lambda data: pack(struct, stored.ctypes.data, data))

    def pack_quantized(self, weight: QuantizedTensor, bias_n: Tensor | None = None) -> NativeMatrix:
        """Quantised weights, without loss.

        Raises:
            CannotPackError: groups that are neither whole rows nor multiples of 32 that fill them,
                or scales or offsets that float16 cannot hold.
        """
        outputs, inputs = weight.shape
        if weight.group_size != inputs and (
            weight.group_size % CHUNK or inputs % weight.group_size
        ):
            raise CannotPackError(
                f"groups of {weight.group_size} in rows of {inputs}: they must be multiples of"
                f" {CHUNK} and fill the rows"
            )
        levels = weight.levels_oi.to(torch.int8).contiguous().numpy()
        scales = _half_floats(weight.scales_oq, "scales")
        offsets = None
        if weight.offsets_oq is not None:
            offsets = _half_floats(weight.offsets_oq, "offsets")
        struct = PackedMatrixStruct(
            kind=MatrixKind.I8 if weight.bits == 8 else MatrixKind.I4,
            n=outputs,
            k=inputs,
            group=weight.group_size,
            has_offsets=offsets is not None,
        )
        offsets_at = None if offsets is None else offsets.ctypes.data
        return self._finish(
            struct,
            bias_n,
            lambda data: self._library.pack_levels(
                struct, levels.ctypes.data, scales.ctypes.data, offsets_at, data
            ),
        )

    def _finish(
        self, struct: PackedMatrixStruct, bias_n: Tensor | None, pack: Callable[[int], None]
    ) -> NativeMatrix:
        data = self._take(self._library.packed_bytes(struct))
        pack(data.ctypes.data)
        struct.data = data.ctypes.data
        owned: tuple[npt.NDArray[Any], ...] = (data,)
        if bias_n is not None:
            bias = bias_n.detach().float().clone().contiguous().numpy()
            struct.bias = bias.ctypes.data
            owned += (bias,)
        nbytes = sum(array.nbytes for array in owned)
        return NativeMatrix(
            MatrixKind(struct.kind), struct.n, struct.k, struct, nbytes, self._library, owned
        )

    def _take(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """The next ``nbytes`` of the arena, zeroed, at a multiple of a cache line."""
        padded = -(-nbytes // _LINE) * _LINE
        if padded > self._arena.size:
            self._arena = _huge_pages(max(padded, _ARENA_BYTES))
        taken, self._arena = self._arena[:nbytes], self._arena[padded:]
        return taken


def declare(library: ctypes.CDLL) -> None:
    """Tell ctypes the types of the functions of ``matmul.h``."""
    matrix = ctypes.POINTER(PackedMatrixStruct)
    pointer, integer, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
    for name, result, arguments in (
        ("column_tile", integer, (matrix,)),
        ("packed_bytes", size, (matrix,)),
        ("pack_floats", None, (matrix, pointer, pointer)),
        ("pack_bfloats", None, (matrix, pointer, pointer)),
        ("pack_levels", None, (matrix, pointer, pointer, pointer, pointer)),
        ("unpack_rows", None, (matrix, pointer, integer, pointer)),
        ("input_bytes", size, (matrix, integer)),
        ("prepare_input", None, (matrix, pointer, pointer, integer, integer)),
        (
            "matmul_part",
            None,
            (matrix, pointer, integer, pointer, integer, integer, integer, ctypes.c_bool),
        ),
        ("matmul_path", ctypes.c_char_p, ()),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments


def _half_floats(values: Tensor, name: str) -> npt.NDArray[np.float32]:
    wide = values.float()
    if not torch.equal(wide.half().float(), wide):
        raise CannotPackError(f"{name} that float16 cannot hold")
    return wide.contiguous().numpy()


def _huge_pages(nbytes: int) -> npt.NDArray[np.uint8]:
    """Anonymous memory, in large pages where the system grants them: to private memory it does, to
    shared memory, Python's default, mostly not."""
    private = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
    memory = mmap.mmap(-1, nbytes, flags=private) if private else mmap.mmap(-1, nbytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)
