"""What a layout or a format does that a reader of the number should know at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.simulator.layout import Route
from engine.simulator.links import link_of
from engine.simulator.step_cost import StepCostModel

Kind = Literal["heads", "kv-copies", "latents", "no-link", "across-nodes", "no-rate"]


@dataclass(frozen=True, slots=True)
class LayoutWarning:
    """One of the kinds, and the numbers and names that its sentence needs."""

    kind: Kind
    count: int = 0
    devices: int = 0
    names: tuple[str, ...] = field(default=())


def layout_warnings(model: StepCostModel) -> tuple[LayoutWarning, ...]:
    """All that apply: what does not divide, what is kept more than once, what falls back."""
    return (*_division(model), *_links(model), *_rates(model))


def _division(model: StepCostModel) -> list[LayoutWarning]:
    spec, group = model.model, model.group
    devices = group.devices
    found: list[LayoutWarning] = []
    if spec.num_attention_heads % devices:
        found.append(LayoutWarning("heads", spec.num_attention_heads, devices))
    if devices == 1:
        return found
    if spec.mla is not None:
        found.append(LayoutWarning("latents", devices=devices))
    elif devices * group.kv_heads(spec.num_kv_heads) > spec.num_kv_heads:
        found.append(LayoutWarning("kv-copies", spec.num_kv_heads, devices))
    return found


def _links(model: StepCostModel) -> list[LayoutWarning]:
    layout, devices = model.layout, model.group.devices
    if devices == 1:
        return []
    if link_of(Route.GROUP, layout, model.hardware, model.network) is None:
        return [LayoutWarning("no-link", devices=devices)]
    if layout.leaves_node(Route.GROUP):
        return [LayoutWarning("across-nodes", layout.per_node or 0, devices)]
    return []


def _rates(model: StepCostModel) -> list[LayoutWarning]:
    rate = model.formats.matmul
    if not rate.fell_back:
        return []
    return [LayoutWarning("no-rate", names=(rate.requested, rate.used))]
