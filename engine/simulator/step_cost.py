"""What one step costs: fast enough to price every real step while it runs.

All that does not depend on the batch is computed once. Linear operators depend only on the number
of tokens and of sampled positions, so their sum is remembered by these two; the core operators
are counted in closed form. ``StepCost.operators`` builds the whole list, for those who show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.catalog.device import HardwareSpec, Interconnect
from engine.catalog.gguf_files import file_type_format, is_file_type
from engine.catalog.models import ModelSpec
from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import DecoderStep, StepShape
from engine.simulator.formats import StorageFormats, resolve_formats
from engine.simulator.layout import ONE_DEVICE, Layout, Route
from engine.simulator.links import DEFAULT_NETWORK, link_of
from engine.simulator.operators import CoreOperator, Role, Rows, Term, Unit
from engine.simulator.roofline import Bound, PricedOperator, Roofline, RooflineCurve

_MAX_REMEMBERED = 8192


@dataclass(frozen=True, slots=True)
class StepCost:
    """FLOPs and bytes of a step on all its devices, and its time in seconds.

    ``bound`` compares the time of all arithmetic with that of all memory traffic.
    """

    flops: float
    bytes: float
    time: float
    bound: Bound
    shape: StepShape
    _model: StepCostModel

    @property
    def intensity(self) -> float:
        """FLOP/byte."""
        return self.flops / self.bytes

    @property
    def model(self) -> StepCostModel:
        """What priced it."""
        return self._model

    @property
    def operators(self) -> tuple[PricedOperator, ...]:
        """The step operator by operator, as one device runs it."""
        return self._model.price_operators(self.shape)


@dataclass(frozen=True, slots=True)
class _Linear:
    """The linear operators of a step on one device, added up."""

    flops: float
    bytes: float
    compute_time: float
    memory_time: float
    time: float


@dataclass(frozen=True, slots=True)
class _Core:
    """A core operator as sums of its terms: FLOPs and bytes a pair, a read and a token.

    ``measure`` is the place of its counts in a step's shape, ``peak`` its rate in FLOP/s.
    """

    measure: int
    peak: float
    weight_bytes: float
    pair_flops: float
    read_flops: float
    flops: float
    pair_bytes: float
    read_bytes: float
    bytes: float


class StepCostModel:
    """Prices the steps of a model on a device, or on one data-parallel group of a layout.

    ``weights``, ``kv`` and ``activations`` are names of number formats, or of a GGUF file type for
    the weights; the rate of arithmetic follows the activations, memory traffic each format's own
    bits. ``network`` joins nodes, where the layout is larger than one. A step goes through all
    stages as a whole: ``pipeline`` divides it.

    Raises:
        UnknownName, InvalidRequest: a format or the layout is wrong (names the field).
        UnsupportedModel: the model has a part that is not simulated (field "model").
    """

    def __init__(
        self,
        model: ModelSpec,
        hardware: HardwareSpec,
        weights: str = "bf16",
        kv: str = "bf16",
        activations: str | None = None,
        layout: Layout = ONE_DEVICE,
        network: Interconnect = DEFAULT_NETWORK,
    ) -> None:
        self.model = model
        self.hardware = hardware
        if is_file_type(weights):
            weights = file_type_format(weights, model).name
        self.formats = resolve_formats(hardware, weights, kv, activations)
        self.layout = layout
        self.network = network
        self.group = layout.group
        self.step = _decoder_step(model, self.formats.storage, layout)
        group, exchange, stage = (
            link_of(route, layout, hardware, network)
            for route in (Route.GROUP, Route.EXCHANGE, Route.STAGE)
        )
        self.roofline = Roofline(
            bandwidth=hardware.bandwidth,
            matmul=self.formats.matmul.flops,
            attention=self.formats.attention.flops,
            link=None if group is None else group.bandwidth,
            exchange=None if exchange is None else exchange.bandwidth,
            stage=None if stage is None else stage.bandwidth,
        )
        self._cores = tuple(self._coefficients(core) for core in self.step.cores)
        self._remembered: dict[tuple[int, int], _Linear] = {}

    @property
    def curve(self) -> RooflineCurve:
        """The roofline of all devices together, at the rate of the matrix products."""
        devices = self.group.devices
        return RooflineCurve(self.roofline.bandwidth * devices, self.roofline.matmul * devices)

    def cost(self, shapes: Sequence[SequenceShape]) -> StepCost:
        """The cost of one step over a batch of at least one sequence."""
        return self.cost_of(self.step.measure(shapes))

    def cost_of(self, shape: StepShape) -> StepCost:
        """The cost of a step of that shape."""
        linear = self._linear(shape.tokens, shape.sampled)
        bandwidth = self.roofline.bandwidth
        flops, moved, time = linear.flops, linear.bytes, linear.time
        compute_time, memory_time = linear.compute_time, linear.memory_time
        work = shape.work
        for core in self._cores:
            pairs, reads, tokens = work[core.measure]
            if tokens == 0:
                continue
            core_flops = pairs * core.pair_flops + reads * core.read_flops + tokens * core.flops
            core_bytes = (
                core.weight_bytes
                + pairs * core.pair_bytes
                + reads * core.read_bytes
                + tokens * core.bytes
            )
            compute = core_flops / core.peak
            memory = core_bytes / bandwidth
            flops += core_flops
            moved += core_bytes
            compute_time += compute
            memory_time += memory
            time += compute if compute > memory else memory
        devices = self.group.devices
        bound = Bound.COMPUTE if compute_time > memory_time else Bound.MEMORY
        return StepCost(devices * flops, devices * moved, time, bound, shape, self)

    def price_operators(self, shape: StepShape) -> tuple[PricedOperator, ...]:
        """The step operator by operator, as one device runs it: the slow way to ``cost``."""
        return tuple(self.roofline.price(operator) for operator in self.step.operators(shape))

    def _coefficients(self, core: CoreOperator) -> _Core:
        moved = (*core.activations, *core.cache)
        attention = core.role is Role.ATTENTION
        return _Core(
            measure=self.step.measures.index(core.measure),
            peak=self.roofline.attention if attention else self.roofline.matmul,
            weight_bytes=core.weight_bytes,
            pair_flops=_each(core.flops, Unit.PAIRS),
            read_flops=_each(core.flops, Unit.READS),
            flops=_each(core.flops, Unit.TOKENS),
            pair_bytes=_each(moved, Unit.PAIRS),
            read_bytes=_each(moved, Unit.READS),
            bytes=_each(moved, Unit.TOKENS),
        )

    def _linear(self, tokens: int, sampled: int) -> _Linear:
        found = self._remembered.get((tokens, sampled))
        if found is None:
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            found = self._sum_linear(tokens, sampled)
            self._remembered[tokens, sampled] = found
        return found

    def _sum_linear(self, tokens: int, sampled: int) -> _Linear:
        flops = moved = compute_time = memory_time = time = 0.0
        roofline = self.roofline
        for operator in self.step.linear:
            rows = tokens if operator.rows is Rows.TOKENS else sampled
            if rows == 0:
                continue
            operator_flops = rows * operator.flops
            operator_bytes = operator.weights_read(rows) + rows * (
                operator.activation_bytes + operator.kv_bytes
            )
            compute = operator.skew * operator_flops / roofline.matmul
            memory = operator_bytes / roofline.bandwidth
            flops += operator_flops
            moved += operator_bytes
            compute_time += compute
            memory_time += memory
            time += compute if compute > memory else memory
            if operator.link_bytes:
                speed = roofline.speed(operator.route)
                time += operator.skew * rows * operator.link_bytes / speed if speed else 0.0
        return _Linear(flops, moved, compute_time, memory_time, time)


@lru_cache(maxsize=256)
def _decoder_step(model: ModelSpec, formats: StorageFormats, layout: Layout) -> DecoderStep:
    """A step does not change and does not depend on the hardware: it is composed once."""
    return DecoderStep(model, formats, layout)


def _each(terms: Iterable[Term], unit: Unit) -> float:
    return sum(term.each for term in terms if term.unit is unit)
