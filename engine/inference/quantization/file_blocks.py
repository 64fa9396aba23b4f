"""A file's own quantised blocks as they are: nothing is expanded, nothing is rounded again.

Layouts are ggml's (``ggml-common.h``, ``ggml-quants.c``): 32 weights a block, float16 scale first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.inference.quantization.tensor import QuantizedTensor
from engine.inference.weights.checkpoint import RawTensor
from engine.inference.weights.ggml_types import Q4_0, Q4_1, Q8_0
from engine.refusals import refused

BLOCK = 32
USABLE = frozenset((Q4_0.name, Q4_1.name, Q8_0.name))

_Bytes = npt.NDArray[np.uint8]


def from_file_blocks(raw: RawTensor) -> QuantizedTensor:
    """The same levels, scales and offsets as in the file: no bit of a weight changes.

    Raises:
        InvalidRequest: the tensor is stored in another type (field "weights").
    """
    name = raw.storage.name
    if name not in USABLE or len(raw.shape) != 2:
        usable = ", ".join(sorted(USABLE))
        raise refused("file_blocks_type", field="weights", stored=name, usable=usable)
    rows, columns = raw.shape
    blocks = np.ascontiguousarray(raw.blocks).reshape(rows, -1, raw.storage.block_bytes)
    scales = _halves(blocks, 0)
    if name == Q8_0.name:
        levels = torch.from_numpy(blocks[:, :, 2:].view(np.int8).reshape(rows, columns))
        return QuantizedTensor(8, BLOCK, levels, scales)
    offsets = _halves(blocks, 2) if name == Q4_1.name else None
    levels = _nibbles(blocks[:, :, 2 if offsets is None else 4 :]).reshape(rows, columns)
    return QuantizedTensor(4, BLOCK, torch.from_numpy(levels), scales, offsets)


def _halves(blocks: _Bytes, first_byte: int) -> Tensor:
    """The float16 at that byte of every block, ``[rows, blocks of a row]``, as float32."""
    pairs = np.ascontiguousarray(blocks[:, :, first_byte : first_byte + 2])
    return torch.from_numpy(pairs.view("<f2")[:, :, 0].astype(np.float32))


def _nibbles(packed: _Bytes) -> npt.NDArray[np.int8]:
    """Low nibbles are weights 0-15 of a block, high nibbles 16-31."""
    return np.concatenate((packed & 15, packed >> 4), axis=-1).view(np.int8)
