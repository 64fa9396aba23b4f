"""Lanes on demand open only where memory is free for them."""

from __future__ import annotations

import math

import pytest

from engine.errors import CapacityError
from engine.inference import lane_memory
from engine.inference.device import Device
from engine.inference.lane_memory import weight_bytes_to_open
from engine.inference.lane_orders import OpeningStage
from engine.inference.lane_settings import parse_lane, parse_weights
from engine.inference.lanes import LaneOpener
from engine.inference.quantization.quantize import quantized_names
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.native.steps import library

pytestmark = pytest.mark.usefixtures("one_thread")

DEVICE = Device("cpu", "a processor", 1, "float32")
MEMORY = 10**9
KV_TOKENS = 160


def _free(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    monkeypatch.setattr(lane_memory, "memory_bytes", lambda device: MEMORY)
    monkeypatch.setattr(lane_memory, "free_bytes", lambda device: num_bytes)


def _kv_bytes() -> int:
    config = tiny_random_checkpoint().config
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * 4 * KV_TOKENS


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8-g32", "int4-g32", "int4-channel"])
def test_the_estimate_is_what_the_weights_take(name: str) -> None:
    library()  # so that native weights are packed at once
    checkpoint = tiny_random_checkpoint()
    opened = LaneOpener(checkpoint, DEVICE, KV_TOKENS).open(parse_lane(name))
    estimate = weight_bytes_to_open(checkpoint, parse_weights(name), DEVICE)
    taken = opened.executor.weight_bytes
    # Quantised weights are there once more while they are loaded, one in a byte.
    if parse_weights(name).quantized:
        shapes = checkpoint.config.tensor_shapes()
        taken += sum(math.prod(shapes[each]) for each in quantized_names(checkpoint.config))
    assert 0.97 * taken < estimate < 1.03 * taken


def test_a_lane_on_demand_needs_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tiny_random_checkpoint()
    opener = LaneOpener(checkpoint, DEVICE, KV_TOKENS)
    weights = weight_bytes_to_open(checkpoint, parse_weights("float32"), DEVICE)
    enough = MEMORY // 10 + weights + _kv_bytes()
    _free(monkeypatch, enough - 1)
    with pytest.raises(CapacityError, match="choose weights of fewer bits") as caught:
        opener.open(parse_lane("float32"), on_demand=True)
    assert caught.value.field == "weights"
    _free(monkeypatch, enough)
    assert opener.open(parse_lane("float32"), on_demand=True).executor.num_blocks == 10


def test_lanes_that_are_opened_side_by_side_share_what_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint = tiny_random_checkpoint()
    opener = LaneOpener(checkpoint, DEVICE, KV_TOKENS)
    weights = weight_bytes_to_open(checkpoint, parse_weights("float32"), DEVICE)
    _free(monkeypatch, MEMORY // 10 + weights + _kv_bytes())
    refused: list[str] = []

    def meanwhile(stage: OpeningStage, share: float, part: str) -> None:
        if stage is OpeningStage.LOADING and not refused:
            with pytest.raises(CapacityError) as caught:
                opener.open(parse_lane("int8"), on_demand=True)
            refused.append(caught.value.code)

    opener.open(parse_lane("float32"), on_demand=True, report=meanwhile)
    assert refused == ["capacity"]
    assert opener.open(parse_lane("int8"), on_demand=True).executor.num_blocks == 10


def test_lanes_from_the_start_are_opened_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    _free(monkeypatch, 0)
    opener = LaneOpener(tiny_random_checkpoint(), DEVICE, KV_TOKENS)
    assert opener.open(parse_lane("float32")).executor.num_blocks == 10


def test_weights_that_are_in_memory_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    opener = LaneOpener(tiny_random_checkpoint(), DEVICE, KV_TOKENS)
    first = opener.open(parse_lane("float32"))
    _free(monkeypatch, MEMORY // 10 + _kv_bytes())
    second = opener.open(parse_lane("float32/paged-window-8"), on_demand=True)
    with pytest.raises(CapacityError):
        opener.open(parse_lane("int8"), on_demand=True)
    assert first.executor.weight_bytes == second.executor.weight_bytes
