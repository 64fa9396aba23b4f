"""What an open lane is, for the web process to show and to predict from."""

from __future__ import annotations

from engine.catalog.precision import get_format, mixed_format
from engine.inference.lane_settings import KVFormat, KVLayout, WeightFormat
from engine.inference.lanes import OpenedLane
from engine.inference.messages import LaneInfo

_PLAIN = {WeightFormat.FLOAT32: "fp32", WeightFormat.BFLOAT16: "bf16"}


def lane_info(opened: OpenedLane, *, on_demand: bool) -> LaneInfo:
    """The lane's formats and bytes, as they are in memory."""
    settings, executor = opened.settings, opened.executor
    return LaneInfo(
        name=settings.name,
        dtype=executor.dtype,
        weights=settings.weights.name,
        kv_cache=settings.kv.name,
        prefix_cache=settings.prefix_cache,
        weight_format=_weight_format(opened),
        kv_format=_kv_format(opened),
        on_demand=on_demand,
        weight_bytes=executor.weight_bytes,
        kv_bytes_per_token=executor.kv_bytes_per_token,
        kv_blocks_total=executor.num_blocks,
        kv_block_tokens=executor.block_size,
        window=settings.kv.window,
        sinks=settings.kv.sinks,
        native_rows=executor.native_rows,
    )


def _weight_format(opened: OpenedLane) -> str:
    """The catalogue's name; quantised matrices with all their scales count as one mixed format."""
    plain = _PLAIN.get(opened.settings.weights.format)
    return plain or mixed_format(opened.bits_per_weight).name


def _kv_format(opened: OpenedLane) -> str:
    executor, kv = opened.executor, opened.settings.kv
    plain = get_format(executor.dtype)
    if kv.format is KVFormat.SAME or kv.layout is KVLayout.OFF:
        return plain.name
    return mixed_format(8 * executor.kv_bytes_per_token / opened.kv_numbers_per_token).name
