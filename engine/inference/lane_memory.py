"""Whether a lane fits into memory, before anything of it is made.

An estimate from shapes and formats. What it leaves out (activations, norms in float32, the float32
layer that AWQ and GPTQ work on) fits into the share of the memory that is left free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from engine.catalog.units import bytes_label
from engine.errors import CapacityError
from engine.inference.calibration import free_bytes, memory_bytes
from engine.inference.device import DTYPES, Device
from engine.inference.kv_cache.make import kv_bytes_per_token
from engine.inference.lane_settings import LaneSettings, WeightFormat, WeightSettings
from engine.inference.native.switch import library_for_all_steps
from engine.inference.quantization.quantize import quantized_names
from engine.inference.quantization.rtn import group_size_of
from engine.inference.weights.checkpoint import Checkpoint
from engine.refusals import refused

LEFT_FREE = 0.1
"""Share of the memory that no lane may take: the system and what a step needs live in it."""

_SCALE_BYTES = 2  # float16, as packed tensors keep scales and offsets


def require_room(
    checkpoint: Checkpoint,
    settings: LaneSettings,
    device: Device,
    *,
    num_positions: int,
    weights_are_there: bool,
    taken: int = 0,
) -> int:
    """The bytes that a lane needs; raise unless it leaves ``LEFT_FREE`` of the memory free.

    ``num_positions``: those of its KV cache. ``weights_are_there``: another lane has them in
    memory, so that only the cache is new. ``taken``: bytes that lanes need which are being opened
    just now.

    Raises:
        CapacityError: it would not (field "weights").
    """
    dtype = DTYPES.get(settings.weights.format.value, DTYPES[device.default_dtype])
    needed = num_positions * kv_bytes_per_token(checkpoint.config, dtype, settings.kv.format)
    if not weights_are_there:
        needed += weight_bytes_to_open(checkpoint, settings.weights, device)
    memory, free = memory_bytes(device.torch_device), free_bytes(device.torch_device) - taken
    if free - needed < LEFT_FREE * memory:
        raise refused(
            "lane_memory",
            kind=CapacityError,
            field="weights",
            needed=bytes_label(needed),
            free=bytes_label(max(0, free)),
            kept=bytes_label(LEFT_FREE * memory),
        )
    return needed


def weight_bytes_to_open(checkpoint: Checkpoint, weights: WeightSettings, device: Device) -> int:
    """Bytes that weights take at most, once they are loaded and while they are.

    The matrices are there twice on a CPU where torch runs some steps and native code the others.
    Those that are quantised are there a second time anyhow, as bytes and float32 scales, until all
    are packed.
    """
    config = checkpoint.config
    shapes = config.tensor_shapes()
    names = quantized_names(config)
    floats = DTYPES.get(weights.format.value, DTYPES[device.default_dtype]).itemsize
    others = floats * _count(shape for name, shape in shapes.items() if name not in names)
    if weights.format in (WeightFormat.FLOAT32, WeightFormat.BFLOAT16):
        matrices = floats * _count(shapes[name] for name in names)
        one_form = library_for_all_steps(config, device.torch_device) is not None
        if device.kind != "cpu" or one_form:
            return others + matrices
        # A tied head is packed, and the table whose rows are looked up is not.
        table = floats * _count([shapes["embed"]]) if config.tied_embeddings else 0
        return others + table + 2 * matrices
    if weights.format is WeightFormat.FILE:
        stored = sum(checkpoint.tensors[name].stored.nbytes for name in names)
    else:
        stored = sum(_stored_bytes(shapes[name], weights) for name in names)
    unpacked = _count(shapes[name] for name in names)
    return others + stored + max(unpacked, stored if device.kind == "cpu" else 0)


def _stored_bytes(shape: tuple[int, ...], weights: WeightSettings) -> int:
    """Levels, scales and, in 4 bits, offsets of one matrix."""
    rows, columns = shape
    bits = weights.bits or 8
    groups = rows * columns // group_size_of(weights, columns)
    return rows * columns * bits // 8 + groups * _SCALE_BYTES * (2 if bits == 4 else 1)


def _count(shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes)
