"""Prices all cells of a sweep together: a hundred thousand in about a second.

Knobs that change the model's operators (its formats, the devices that share it) are turned one
combination after the other; for each, everything else is an array with one dimension an axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from engine.simulator.search.axes import KNOBS, Axis, Sweep, Turn
from engine.simulator.search.block import Block
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import Metrics, usd_per_mtok
from engine.simulator.search.memory import total_bytes
from engine.simulator.search.uniform import UniformSteps, decode_contexts

METRICS: tuple[str, ...] = tuple(item.name for item in fields(Metrics))

Values = NDArray[np.float64 | np.bool_]
Arrays = Mapping[str, Values]
"""Metrics by name."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The metrics of every cell, as ``Metrics`` has them; arrays have one dimension an axis."""

    sweep: Sweep
    metrics: Arrays


def run_sweep(sweep: Sweep) -> SweepResult:
    """Price every cell: the fast way to ``estimate`` of each.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``estimate``.
    """
    turns = [KNOBS[axis.knob].turn for axis in sweep.axes]
    outer = [place for place, turn in enumerate(turns) if turn is Turn.STRUCTURE]
    inner = [place for place, turn in enumerate(turns) if turn is not Turn.STRUCTURE]
    knobs = [sweep.axes[place].knob for place in outer]
    blocks = [
        price_block(
            sweep.cell(dict(zip(knobs, values, strict=True))),
            [sweep.axes[place] for place in inner],
        )
        for values in itertools.product(*(sweep.axes[place].values for place in outer))
    ]
    order = [*outer, *inner]
    shape = tuple(sweep.shape[place] for place in order)
    back = [order.index(place) for place in range(len(order))]
    metrics = {
        name: np.stack([block[name] for block in blocks]).reshape(shape).transpose(back)
        for name in METRICS
    }
    return SweepResult(sweep, metrics)


def price_block(base: Cell, axes: Sequence[Axis]) -> Arrays:
    """The metrics of all cells of one model in one set of formats; no axis turns these.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``estimate``.
    """
    block = Block(base, axes)
    batch, prompt = block.number("batch"), block.integer("prompt_tokens")
    cached, output = block.integer("context_tokens"), block.integer("output_tokens")
    steps = output - 1
    one = np.ones((), dtype=np.int64)
    ttft = block.time(UniformSteps(batch, cached, prompt)) + block.first_token
    contexts = decode_contexts(cached + prompt, steps)
    times = [block.time(UniformSteps(batch, context, one)) for context in contexts]
    gap = (times[0] + times[1]) / 2
    e2e = ttft + steps * gap
    tokens_per_s = batch * output / e2e
    memory = total_bytes(block.step, batch, cached + prompt + steps, batch * prompt)
    found: Arrays = {
        "ttft": ttft,
        "itl": np.where(steps > 0, gap, math.nan),
        "e2e": e2e,
        "tokens_per_s": tokens_per_s,
        "memory": memory,
        "fits": memory <= block.number("memory_utilization") * block.devices.memory * base.devices,
        "usd_per_mtok": usd_per_mtok(block.hourly_price, tokens_per_s),
    }
    return {name: np.broadcast_to(values, block.shape) for name, values in found.items()}
