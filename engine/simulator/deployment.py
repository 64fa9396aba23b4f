"""A model served on devices: everything that prices a step, and the room for its cache.

    deployment = Deployment("llama-3.1-70b", "h100-sxm", Layout(tensor=4), times="typical")
    deployment.cost_model().cost(shapes).time     seconds of a step of one data-parallel group
    deployment.kv_blocks()                        blocks of cache that such a group has

Building a cost model looks everything up; pricing a step takes some microseconds after that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.catalog.device import HardwareSpec, Interconnect
from engine.catalog.inline import hardware_from, model_from
from engine.catalog.models import ModelSpec
from engine.refusals import refused
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE
from engine.simulator.cost_model import CostModel
from engine.simulator.efficiency import DEFAULT_ENGINE
from engine.simulator.layout import ONE_DEVICE, Layout
from engine.simulator.links import DEFAULT_NETWORK
from engine.simulator.machine.deployed import LaneCostModel, lane_model
from engine.simulator.pipeline import PipelinedCostModel
from engine.simulator.placement import Load, Placement
from engine.simulator.step_cost import StepCostModel
from engine.simulator.typical import TypicalCostModel

Times = Literal["ideal", "typical"]
TIMES: tuple[Times, ...] = ("ideal", "typical")

STEP_TOKENS = 8192
"""Tokens of the largest step that room for activations is kept for, where nothing else is said."""
SEQUENCES = 256
"""Sequences of that step, each of which takes a row of logits."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on equal devices, in formats, at ideal or typical speed.

    ``model`` and ``hardware`` are ids of the catalogue or specs of one's own; ``weights``, ``kv``
    and ``activations`` names of number formats (activations: None follows the weights).
    ``engine`` is the serving engine whose overheads typical times have (None: the usual one, and
    on this machine the project's own where its lane was measured); ideal times have none.
    ``memory_utilization`` is the part of a device's memory that weights, cache and activations may
    fill. ``network`` joins nodes, where the layout is larger than one.

    Raises:
        InvalidRequest: a value is out of its range (names the field).
    """

    model: str | ModelSpec
    hardware: str | HardwareSpec
    layout: Layout = ONE_DEVICE
    weights: str = "bf16"
    kv: str = "bf16"
    activations: str | None = None
    times: Times = "ideal"
    engine: str | None = None
    memory_utilization: float = 0.9
    block_size: int = DEFAULT_BLOCK_SIZE
    network: Interconnect = DEFAULT_NETWORK

    def __post_init__(self) -> None:
        if self.times not in TIMES:
            raise refused("choose_one", field="times", choices=", ".join(TIMES))
        if not 0 < self.memory_utilization <= 1:
            raise refused("choose_share", field="memory_utilization")
        if not 1 <= self.block_size <= 4096:
            raise refused("choose_whole", field="block_size", low=1, high="4,096")

    @property
    def model_spec(self) -> ModelSpec:
        """The model's structure.

        Raises:
            UnknownName: the catalogue has no such id (field "model").
        """
        return model_from(self.model)

    @property
    def hardware_spec(self) -> HardwareSpec:
        """One of the devices.

        Raises:
            UnknownName: the catalogue has no such id (field "hardware").
        """
        return hardware_from(self.hardware)

    @property
    def engine_name(self) -> str:
        """The serving engine of typical times."""
        return self.engine or DEFAULT_ENGINE

    @property
    def calibrated_by(self) -> str:
        """Where typical times come from, in words."""
        measured = self.hardware_spec.kind == "measured"
        if measured and isinstance(self.cost_model(), LaneCostModel):
            return "steps of this project's engine, measured on this machine"
        return f"calibrated efficiencies of {self.engine_name}"

    def cost_model(self) -> CostModel:
        """What prices the steps of one data-parallel group; building it takes a moment.

        Raises:
            UnknownName, InvalidRequest: a name or the layout is wrong (names the field).
            UnsupportedModel: the model has a part that is not simulated (field "model").
        """
        model, hardware = self.model_spec, self.hardware_spec
        formats = (self.weights, self.kv, self.activations)
        if self.layout.experts and model.moe is None:
            raise refused("no_experts", field="experts")
        if self.times == "ideal":
            whole = StepCostModel(model, hardware, *formats, self.layout, self.network)
        else:
            # The engine that was measured here runs on one device; others are asked for by name.
            own = self.engine is None and self.layout == ONE_DEVICE
            whole = (lane_model(model, hardware, *formats) if own else None) or TypicalCostModel(
                model, hardware, *formats, self.layout, self.engine_name, self.network
            )
        return whole if self.layout.stages == 1 else PipelinedCostModel(whole, self.layout)

    def placement(self) -> Placement:
        """What the fullest device holds.

        Raises:
            UnknownName, InvalidRequest, UnsupportedModel: as for ``cost_model``.
        """
        return Placement(
            self.cost_model().step,
            self.hardware_spec.memory_bytes,
            self.layout,
            self.memory_utilization,
            self.block_size,
        )

    def kv_blocks(
        self,
        tokens: int | None = None,
        *,
        step_tokens: int = STEP_TOKENS,
        sequences: int = SEQUENCES,
    ) -> int:
        """Blocks of cache that one data-parallel group has room for.

        Weights come first, then the activations of a step of ``step_tokens`` tokens that samples
        ``sequences`` positions. ``tokens`` is the usual length of a sequence: where layers have
        windows, compressed entries or states a block takes its part of such a sequence's cache;
        None charges it what it takes while every window has room.

        Raises:
            InvalidRequest: no block fits beside the weights (field "hardware"), or as for
                ``cost_model``.
        """
        blocks = self.placement().blocks(tokens, Load(sequences, tokens or 0, step_tokens))
        if blocks < 1:
            raise refused("no_room_for_cache", field="hardware")
        return blocks


def ideal_model(model: CostModel) -> StepCostModel:
    """The roofline under a deployment's cost model.

    Raises:
        TypeError: the model is of another kind.
    """
    whole = model.whole if isinstance(model, PipelinedCostModel) else model
    if isinstance(whole, TypicalCostModel):
        return whole.ideal
    if isinstance(whole, StepCostModel):
        return whole
    raise TypeError("only models that a deployment builds have a roofline")
