"""A roofline prediction beside every real step: this model, on this machine as calibrated.

FLOPs and bytes follow from the model alone. No time is predicted where nothing was measured:
without a calibration, or with one of another device than the engine runs on, it is None. A
prediction only describes: where it fails there is none, and the run goes on.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, NamedTuple

import structlog

from engine.catalog.attention import SlidingAttention
from engine.catalog.hardware import HardwareSpec, get_hardware
from engine.catalog.models import ModelSpec
from engine.catalog.this_machine import (
    Calibration,
    calibrated_hardware,
    calibration_path,
    load_calibration,
)
from engine.errors import EngineError
from engine.inference.messages import EngineInfo, LaneInfo
from engine.scheduling.plan import SequenceShape
from engine.simulator.step_cost import StepCostModel

log = structlog.get_logger("webapp.prediction")

Shape = tuple[int, int, bool, int]
"""(prefix_tokens, new_tokens, samples, drafts), as the worker tells it."""

NUMBER_FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""The engine's names of dtypes, and the catalogue's."""


class _Terms(NamedTuple):
    """What a lane's steps are priced by: its formats by the catalogue's names, and how many
    positions its cache lets a token see (None: all)."""

    weights: str
    kv: str
    activations: str
    visible: int | None


_CHECK_EVERY_S = 1.0
_REMEMBERED_STEPS = 512

# Counts FLOPs and bytes, which no device changes; its times are never told.
_ANY_HARDWARE = "h100-sxm"
_DENSE_FIELDS = frozenset(signature(ModelSpec.dense).parameters)


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """One step of a whole batch: FLOP, bytes moved, FLOP/byte; and, on a machine that has been
    calibrated, seconds and what limits them."""

    flops: float
    bytes: float
    intensity: float
    time_s: float | None = None
    bound: str | None = None


@dataclass(frozen=True, slots=True)
class _Pricing:
    """``calibrated``: the model's hardware is this machine, so its times mean something."""

    model: StepCostModel
    calibrated: bool


class StepPredictor:
    """Predicts steps of the running engine.

    A calibration that appears or changes while the server runs is taken up within a second. Steps
    are remembered by their shapes, so the requests of one batch share the work.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_check = clock()
        self._stamp: tuple[int, int, int] | None = None
        self._calibration: Calibration | None = None
        self._info: EngineInfo | None = None
        self._pricings: dict[_Terms, _Pricing | None] = {}
        self._steps: OrderedDict[tuple[_Terms, tuple[Shape, ...]], StepPrediction] = OrderedDict()
        self._failed: set[_Terms] = set()

    def calibrated(self, info: EngineInfo | None) -> bool:
        """Whether the times of this engine's steps can be predicted."""
        self._refresh(info)
        pricing = None if info is None else self._pricing(_terms(info.lanes[0]))
        return pricing is not None and pricing.calibrated

    def predict(
        self, info: EngineInfo | None, lane: LaneInfo, shapes: Sequence[Shape]
    ) -> StepPrediction | None:
        """The prediction for one step of a lane in which sequences of these shapes took part.

        None where the model itself cannot be simulated, or where predicting fails, which is logged
        once for each kind of lane.
        """
        terms = _terms(lane)
        try:
            return self._predict(info, terms, shapes)
        except Exception:
            if terms not in self._failed:
                self._failed.add(terms)
                log.exception("prediction_failed", lane=lane.name)
            return None

    def _predict(
        self, info: EngineInfo | None, terms: _Terms, shapes: Sequence[Shape]
    ) -> StepPrediction | None:
        self._refresh(info)
        pricing = self._pricing(terms)
        if pricing is None or not shapes:
            return None
        key = (terms, tuple(shapes))
        known = self._steps.get(key)
        if known is not None:
            self._steps.move_to_end(key)
            return known
        cost = pricing.model.cost([SequenceShape(*shape) for shape in shapes])
        prediction = StepPrediction(cost.flops, cost.bytes, cost.intensity)
        if pricing.calibrated:
            prediction = replace(prediction, time_s=cost.time, bound=cost.bound.value)
        self._steps[key] = prediction
        if len(self._steps) > _REMEMBERED_STEPS:
            self._steps.popitem(last=False)
        return prediction

    def _refresh(self, info: EngineInfo | None) -> None:
        if info is not self._info:
            self._info = info
            self._forget()
        now = self._clock()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_EVERY_S
        stamp = _stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._calibration = _load()
            self._forget()

    def _forget(self) -> None:
        self._pricings.clear()
        self._steps.clear()
        self._failed.clear()

    def _pricing(self, terms: _Terms) -> _Pricing | None:
        if terms not in self._pricings:
            self._pricings[terms] = self._build(terms)
        return self._pricings[terms]

    def _build(self, terms: _Terms) -> _Pricing | None:
        info = self._info
        if info is None:
            return None
        try:
            spec = windowed(info, terms.visible)
            if spec is None:
                return None
            hardware = self._hardware(info)
            model = StepCostModel(
                spec,
                hardware or get_hardware(_ANY_HARDWARE),
                weights=terms.weights,
                kv=terms.kv,
                activations=terms.activations,
            )
        except EngineError as error:
            log.warning("no_prediction", terms=tuple(terms), code=error.code, reason=error.message)
            return None
        except Exception:
            log.exception("prediction_failed", terms=tuple(terms))
            return None
        return _Pricing(model, calibrated=hardware is not None)

    def _hardware(self, info: EngineInfo) -> HardwareSpec | None:
        """This machine, if it has been calibrated on the device that the engine runs on."""
        calibration = self._calibration
        if calibration is None or not _same_device(info, calibration):
            return None
        return calibrated_hardware(calibration)


class RequestPrediction:
    """Adds up one request's predicted steps to its TTFT and its ITLs.

    Only computing is predicted: the time a request waits for its first step is not part of it.
    """

    def __init__(self) -> None:
        self._known = True
        self._since_sample = 0.0
        self._gaps: list[float] = []

    def add(self, samples: bool, prediction: StepPrediction | None) -> None:
        """One more step of the request; ``samples`` if it produced a token of it."""
        if prediction is None or prediction.time_s is None:
            self.miss()
            return
        self._since_sample += prediction.time_s
        if samples:
            self._gaps.append(self._since_sample)
            self._since_sample = 0.0

    def accept(self, drafts: int) -> None:
        """The step just added gave so many tokens more: they came with it, in no time of theirs."""
        self._gaps += [0.0] * drafts

    def miss(self) -> None:
        """A step of the request is not known, so neither are the sums."""
        self._known = False

    @property
    def ttft_ms(self) -> float | None:
        """All steps up to the first token, in ms."""
        return self._gaps[0] * 1e3 if self._known and self._gaps else None

    @property
    def itl_ms(self) -> float | None:
        """Mean over the gaps between tokens, in ms; those of accepted drafts are 0."""
        gaps = self._gaps[1:]
        return sum(gaps) / len(gaps) * 1e3 if self._known and gaps else None


def _terms(lane: LaneInfo) -> _Terms:
    visible = None if lane.window is None else lane.window + lane.sinks
    return _Terms(lane.weight_format, lane.kv_format, NUMBER_FORMATS[lane.dtype], visible)


def model_spec(info: EngineInfo) -> ModelSpec:
    """The running model as the catalogue would describe it."""
    known: dict[str, Any] = {name: info.model[name] for name in _DENSE_FIELDS & info.model.keys()}
    known.setdefault("id", info.model_name)
    return ModelSpec.dense(**known)


def windowed(info: EngineInfo, visible: int | None) -> ModelSpec | None:
    """The running model with a cache that lets a token see ``visible`` positions (None: all).

    None where layers would see different pasts and none of them all: the catalogue has no words
    for that.
    """
    spec = model_spec(info)
    if visible is None:
        return spec
    window = info.model.get("window")
    if window is not None and window < visible and info.model.get("global_every") is not None:
        return None
    narrowest = visible if window is None else min(window, visible)
    return replace(spec, attention=SlidingAttention(narrowest))


def _same_device(info: EngineInfo, calibration: Calibration) -> bool:
    return (calibration.device_kind, calibration.device_name) == (info.device, info.device_name)


def _stamp() -> tuple[int, int, int] | None:
    try:
        status = calibration_path().stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _load() -> Calibration | None:
    try:
        return load_calibration()
    except (EngineError, OSError) as error:
        log.warning("calibration_unreadable", reason=str(error))
        return None
