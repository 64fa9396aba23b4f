"""Decode curves and capacities of one model in one set of formats, on many devices at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.catalog.hardware import get_hardware
from engine.simulator.deployment import SEQUENCES, STEP_TOKENS
from engine.simulator.efficiency import engine_constant
from engine.simulator.search.axes import Axis
from engine.simulator.search.block import Block
from engine.simulator.search.cell import Cell
from engine.simulator.search.load import ServiceCurves
from engine.simulator.search.memory import activation_bytes, cache_bytes, weight_bytes
from engine.simulator.search.uniform import Floats, UniformSteps

_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)

REFUSALS = (
    "memory: the weights do not fit",
    "memory: no room for the cache of one request",
)
"""Why a deployment cannot serve at all."""


@dataclass(frozen=True, slots=True)
class StructureCurves:
    """What each device's deployment takes and holds; ``price`` is in US$/h of one device, NaN where
    it is not known; ``room`` bytes are left beside the weights on all of its devices."""

    hardware: tuple[str, ...]
    service: ServiceCurves
    price: Floats
    room: Floats

    def refusal(self, row: int) -> str | None:
        """Why a deployment cannot serve at all."""
        if self.room[row] <= 0:
            return REFUSALS[0]
        if self.service.most[row] < 1:
            return REFUSALS[1]
        return None


def structure_curves(base: Cell, hardware: tuple[str, ...], utilization: float) -> StructureCurves:
    """Price and measure the base on each of the devices.

    Room for activations is kept as ``Deployment.kv_blocks`` keeps it.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``estimate``.
    """
    block = Block(base, [Axis("hardware", hardware), Axis("batch", _SIZES)])
    sizes = block.number("batch")
    prompt, one = np.array(base.prompt_tokens), np.ones((), dtype=np.int64)
    middle = np.array(base.prompt_tokens + base.output_tokens // 2)
    steps = np.broadcast_to(block.time(UniformSteps(sizes, middle, one)), block.shape)
    alone = block.time(UniformSteps(np.ones((1, 1)), np.zeros((), dtype=np.int64), prompt))
    rows = (len(hardware), 1)
    memory = np.array([get_hardware(name).memory_bytes for name in hardware], dtype=np.float64)
    step = block.step
    kept = activation_bytes(step, np.array(float(STEP_TOKENS)), np.array(float(SEQUENCES)))
    room = memory * utilization * base.devices - weight_bytes(step)
    each = cache_bytes(step, np.array(base.prompt_tokens + base.output_tokens))
    limit = engine_constant(base.engine, "max_sequences")
    service = ServiceCurves(
        sizes=np.array(_SIZES, dtype=np.float64),
        steps=steps,
        prefill=np.broadcast_to(alone, rows)[:, 0],
        first=np.broadcast_to(block.first_token, rows)[:, 0],
        most=np.clip(np.floor((room - kept) / each), 0, limit),
        output=base.output_tokens,
    )
    price = np.broadcast_to(block.devices.price, rows)[:, 0]
    return StructureCurves(hardware, service, price, room)
