"""From stored blocks to float32, vectorised, bit for bit what ggml's own formulas give.

Legend: ``blocks_nb`` is ``[number of blocks, bytes of one block]`` in uint8.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.errors import UnsupportedModel
from engine.inference.weights.ggml_types import (
    BF16,
    F16,
    F32,
    Q4_0,
    Q4_1,
    Q4_K,
    Q6_K,
    Q8_0,
    StorageType,
)

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def dequantize(stored: Bytes, storage: StorageType, shape: tuple[int, ...]) -> Floats:
    """The weights in ``stored`` as a new, writable, contiguous float32 array of ``shape``.

    ``stored`` holds exactly the bytes of ``shape``. Raises ``UnsupportedModel`` where the type
    needs the ``gguf`` package and that is not installed.
    """
    blocks_nb = np.ascontiguousarray(stored).reshape(-1, storage.block_bytes)
    function = _NATIVE.get(storage.name)
    # A scale that is infinite or NaN gives weights that are: the file's own, and no surprise.
    with np.errstate(invalid="ignore", over="ignore"):
        values = function(blocks_nb) if function else _dequantize_by_package(blocks_nb, storage)
    return values.reshape(shape)


def _halves(column_bytes: Bytes) -> Floats:
    """Little-endian float16 pairs of bytes as float32; one column for each pair."""
    return np.ascontiguousarray(column_bytes).view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Floats:
    """``[n, 16]`` bytes as ``[n, 32]``: low nibbles are weights 0-15, high nibbles 16-31."""
    values = np.empty((packed.shape[0], 2, 16), np.float32)
    np.bitwise_and(packed, 15, out=values[:, 0], casting="unsafe")
    np.right_shift(packed, 4, out=values[:, 1], casting="unsafe")
    return values.reshape(-1, 32)


def _q4_0(blocks_nb: Bytes) -> Floats:
    """w = d · (q - 8)"""
    values = _nibbles(blocks_nb[:, 2:])
    values -= 8
    values *= _halves(blocks_nb[:, :2])
    return values


def _q4_1(blocks_nb: Bytes) -> Floats:
    """w = d · q + m"""
    scales = _halves(blocks_nb[:, :4])
    values = _nibbles(blocks_nb[:, 4:])
    values *= scales[:, :1]
    values += scales[:, 1:]
    return values


def _q8_0(blocks_nb: Bytes) -> Floats:
    """w = d · q, q signed"""
    values = np.empty((blocks_nb.shape[0], 32), np.float32)
    np.multiply(blocks_nb[:, 2:].view(np.int8), _halves(blocks_nb[:, :2]), out=values)
    return values


def _q4_k(blocks_nb: Bytes) -> Floats:
    """w = d · s · q - m · o in eight groups of 32; s and o are 6-bit numbers in twelve bytes.

    Of these, bytes 0-3 hold s of groups 0-3 in their low 6 bits, bytes 4-7 hold o; bytes 8-11 hold
    the low 4 bits of s and o of groups 4-7, whose high 2 bits are the first eight bytes' own.
    """
    count = blocks_nb.shape[0]
    scales, packed = _halves(blocks_nb[:, :4]), blocks_nb[:, 4:16]
    tops = packed[:, :8] >> 6 << 4
    lows = np.concatenate((packed[:, 8:] & 15, packed[:, 8:] >> 4), axis=1)
    sixes = np.stack((packed[:, :8] & 63, lows | tops)).astype(np.float32)
    # [half of the groups, block, s or o, group of the half] to [block, s or o, group]
    grouped = sixes.reshape(2, count, 2, 4).transpose(1, 2, 0, 3).reshape(count, 2, 8)
    grouped *= scales[:, :, None]
    # A group's numbers are the low or the high halves of 32 neighbouring bytes.
    pairs = blocks_nb[:, 16:].reshape(count, 4, 1, 32)
    values = np.concatenate((pairs & 15, pairs >> 4), axis=2).astype(np.float32)
    values = values.reshape(count, 8, 32)
    values *= grouped[:, 0, :, None]
    values -= grouped[:, 1, :, None]
    return values.reshape(count, 256)


def _q6_k(blocks_nb: Bytes) -> Floats:
    """w = d · s · (q - 32) in sixteen groups of 16, s signed.

    Of the 6-bit q, 128 bytes hold the low 4 bits and 64 bytes the high 2. Each half of the block is
    four runs of 32: low halves of 32 bytes and of the next 32, then their high halves.
    """
    count = blocks_nb.shape[0]
    lows = blocks_nb[:, :128].reshape(count, 2, 1, 64)
    lows = np.concatenate((lows & 15, lows >> 4), axis=2).reshape(count, 2, 4, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(4, 1)
    highs = (blocks_nb[:, 128:192].reshape(count, 2, 1, 32) >> shifts & 3) << 4
    values = (lows | highs).astype(np.float32).reshape(count, 16, 16)
    values -= 32
    scales = blocks_nb[:, 192:208].view(np.int8).astype(np.float32)
    values *= (scales * _halves(blocks_nb[:, 208:]))[:, :, None]
    return values.reshape(count, 256)


def _f16(blocks_nb: Bytes) -> Floats:
    return blocks_nb.view("<f2").astype(np.float32)


def _bf16(blocks_nb: Bytes) -> Floats:
    """A bfloat16 is the upper half of a float32."""
    wide = blocks_nb.view("<u2").astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def _f32(blocks_nb: Bytes) -> Floats:
    return blocks_nb.view("<f4").astype(np.float32)


_NATIVE: dict[str, Callable[[Bytes], Floats]] = {
    Q4_0.name: _q4_0,
    Q4_1.name: _q4_1,
    Q8_0.name: _q8_0,
    Q4_K.name: _q4_k,
    Q6_K.name: _q6_k,
    F16.name: _f16,
    BF16.name: _bf16,
    F32.name: _f32,
}


def _dequantize_by_package(blocks_nb: Bytes, storage: StorageType) -> Floats:
    try:
        from gguf import GGMLQuantizationType, quants
    except ImportError as error:
        raise UnsupportedModel(
            f"weights stored as {storage.name} need the package 'gguf', which is not installed"
        ) from error
    return quants.dequantize(blocks_nb, GGMLQuantizationType(storage.ggml_id))
