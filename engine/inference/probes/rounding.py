"""A row of a matrix of the real model, before and after rounding it to a few bits.

Shapes: o out_features · i in_features.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.errors import InvalidRequest
from engine.inference.lane_settings import (
    Granularity,
    QuantizationMethod,
    WeightFormat,
    WeightSettings,
)
from engine.inference.probes.arrays import check_index, numbers, pack
from engine.inference.probes.format_documents import WeightRow
from engine.inference.quantization.file_blocks import from_file_blocks
from engine.inference.quantization.packed import packed_bytes
from engine.inference.quantization.quantize import quantized_names
from engine.inference.quantization.rtn import round_to_nearest
from engine.inference.quantization.tensor import QuantizedTensor
from engine.inference.weights.checkpoint import Checkpoint


@torch.inference_mode()
def weight_row(checkpoint: Checkpoint, name: str, row: int, settings: WeightSettings) -> WeightRow:
    """Row ``row`` of the matrix ``name``, rounded as ``settings`` say: int8 or int4 to the nearest
    level, or ``file``, whose own levels are shown as they are.

    Raises:
        InvalidRequest: no such matrix or row, another format or method, or blocks that are not
            read here; names the field.
        UnsupportedModel: see ``engine.inference.quantization.rtn.fit_grid``.
    """
    names = quantized_names(checkpoint.config)
    if name not in names:
        raise InvalidRequest(f"choose a matrix such as {names[0]}", field="matrix")
    weight_oi = torch.from_numpy(checkpoint.tensor(name))
    check_index("row", row, len(weight_oi))
    rounded = _rounded(checkpoint, name, settings, weight_oi)
    after_oi = rounded.dequantize()
    rows, columns = rounded.shape
    whole = settings.quantized and settings.granularity is Granularity.TENSOR
    offsets = rounded.offsets_oq
    if offsets is None and rounded.bits == 4:
        offsets = -8 * rounded.scales_oq
    return WeightRow(
        matrix=name,
        row=row,
        weights=settings.name,
        shape=(rows, columns),
        storage=checkpoint.tensors[name].storage.name,
        bits=rounded.bits,
        group_size=rounded.group_size,
        shared_by=rows * columns if whole else rounded.group_size,
        before=pack(weight_oi[row], np.float32),
        after=pack(after_oi[row], np.float32),
        scales=numbers(rounded.scales_oq[row]),
        offsets=() if offsets is None else numbers(offsets[row]),
        bits_per_weight=8 * packed_bytes(rounded) / (rows * columns),
        error=_relative_error(weight_oi, after_oi),
        row_error=_relative_error(weight_oi[row], after_oi[row]),
    )


def _rounded(
    checkpoint: Checkpoint, name: str, settings: WeightSettings, weight_oi: Tensor
) -> QuantizedTensor:
    if settings.format is WeightFormat.FILE:
        return from_file_blocks(checkpoint.raw(name))
    if not settings.quantized or settings.method is not QuantizationMethod.RTN:
        raise InvalidRequest("rows are shown in int8 and int4 by rtn, or file", field="weights")
    return round_to_nearest(weight_oi, settings)


def _relative_error(before: Tensor, after: Tensor) -> float:
    """0 where there was nothing to lose."""
    size = float(before.norm())
    return float((after - before).norm()) / size if size else 0.0
