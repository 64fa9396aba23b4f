"""Predictions beside every real step: this model, on this machine as calibrated.

FLOPs and bytes follow from the model alone. Two times are told apart: the ideal one of the
roofline, and, once this lane itself was measured, the typical one. No time is predicted where
nothing was measured: without a calibration, or with one of another device than the engine runs on,
it is None. A prediction only describes: where it fails there is none, and the run goes on.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import structlog

from engine.catalog.attention import SlidingAttention
from engine.catalog.hardware import get_hardware
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
from engine.simulator.machine.ideal import LaneFormats, LaneRoofline
from engine.simulator.machine.typical import (
    NUMBER_FORMATS,
    LaneTypical,
    dense_spec,
    fitted,
    matching_lane,
)

log = structlog.get_logger("webapp.prediction")

Shape = tuple[int, int, bool, int]
"""(prefix_tokens, new_tokens, samples, drafts), as the worker tells it."""


class _Terms(NamedTuple):
    """What a lane's steps are priced by: its formats, and how many positions its cache lets a
    token see (None: all)."""

    formats: LaneFormats
    visible: int | None


_CHECK_EVERY_S = 1.0
_REMEMBERED_STEPS = 512

# Counts FLOPs and bytes, which no device changes; its times are never told.
_ANY_HARDWARE = "h100-sxm"


@dataclass(frozen=True, slots=True)
class TypicalTime:
    """Seconds of a step as this lane usually takes, and between which eight of ten runs lay.

    ``between_s``: what the engine takes until the next step, which no event counts as the step's.
    """

    time_s: float
    p10_s: float
    p90_s: float
    between_s: float


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """One step of a whole batch: FLOP, bytes moved, FLOP/byte; on a machine that has been
    calibrated the ideal seconds and what limits them; on a lane that was measured the typical
    ones."""

    flops: float
    bytes: float
    intensity: float
    time_s: float | None = None
    bound: str | None = None
    typical: TypicalTime | None = None


@dataclass(frozen=True, slots=True)
class _Pricing:
    """``calibrated``: the roofline is this machine's, so its times mean something. ``typical``:
    None unless this lane was measured."""

    ideal: LaneRoofline
    calibrated: bool
    typical: LaneTypical | None = None


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
        prediction = _price(pricing, [SequenceShape(*shape) for shape in shapes])
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
            calibration = self._calibration_of(info)
            hardware = (
                get_hardware(_ANY_HARDWARE)
                if calibration is None
                else calibrated_hardware(calibration)
            )
            ideal = LaneRoofline(spec, hardware, terms.formats)
            typical = None if calibration is None else _typical(calibration, info, ideal)
        except EngineError as error:
            log.warning("no_prediction", terms=str(terms), code=error.code, reason=error.message)
            return None
        except Exception:
            log.exception("prediction_failed", terms=str(terms))
            return None
        return _Pricing(ideal, calibration is not None, typical)

    def _calibration_of(self, info: EngineInfo) -> Calibration | None:
        """The calibration, if it is of the device that the engine runs on."""
        calibration = self._calibration
        return calibration if calibration and _same_device(info, calibration) else None


def _typical(calibration: Calibration, info: EngineInfo, ideal: LaneRoofline) -> LaneTypical | None:
    lane = matching_lane(calibration, info.model, ideal.formats)
    return None if lane is None else LaneTypical(ideal, fitted(calibration, lane))


def _price(pricing: _Pricing, shapes: Sequence[SequenceShape]) -> StepPrediction:
    shape = pricing.ideal.step.measure(shapes)
    cost = pricing.ideal.cost_of(shape)
    prediction = StepPrediction(cost.flops, cost.bytes, cost.intensity)
    if not pricing.calibrated:
        return prediction
    prediction = replace(prediction, time_s=cost.time, bound=cost.bound.value)
    if pricing.typical is None:
        return prediction
    typical = pricing.typical.cost_of(shape)
    between = typical.parts.scheduler
    step = typical.time - between
    share = step / typical.time
    times = TypicalTime(step, typical.p10 * share, typical.p90 * share, between)
    return replace(prediction, typical=times)


class _Gaps:
    """One prediction of a request's steps, added up from token to token."""

    def __init__(self) -> None:
        self._known = True
        self._since_sample = 0.0
        self._gaps: list[float] = []

    def add(self, samples: bool, seconds: float | None) -> None:
        if seconds is None:
            self.miss()
            return
        self._since_sample += seconds
        if samples:
            self._gaps.append(self._since_sample)
            self._since_sample = 0.0

    def accept(self, drafts: int) -> None:
        self._gaps += [0.0] * drafts

    def miss(self) -> None:
        self._known = False

    @property
    def ttft_ms(self) -> float | None:
        return self._gaps[0] * 1e3 if self._known and self._gaps else None

    @property
    def itl_ms(self) -> float | None:
        gaps = self._gaps[1:]
        return sum(gaps) / len(gaps) * 1e3 if self._known and gaps else None


class RequestPrediction:
    """Adds up one request's predicted steps to its TTFT and its ITLs, ideal and typical.

    Only computing is predicted: the time a request waits for its first step is not part of it.
    The typical times count what the engine does between two steps, but before the first.
    """

    def __init__(self) -> None:
        self._ideal = _Gaps()
        self._typical = _Gaps()
        self._between = 0.0

    def add(self, samples: bool, prediction: StepPrediction | None) -> None:
        """One more step of the request; ``samples`` if it produced a token of it."""
        typical = None if prediction is None else prediction.typical
        self._ideal.add(samples, None if prediction is None else prediction.time_s)
        self._typical.add(samples, None if typical is None else self._between + typical.time_s)
        self._between = 0.0 if typical is None else typical.between_s

    def accept(self, drafts: int) -> None:
        """The step just added gave so many tokens more: they came with it, in no time of theirs."""
        self._ideal.accept(drafts)
        self._typical.accept(drafts)

    def miss(self) -> None:
        """A step of the request is not known, so neither are the sums."""
        self._ideal.miss()
        self._typical.miss()

    @property
    def ttft_ms(self) -> float | None:
        """All steps up to the first token at the roofline, in ms."""
        return self._ideal.ttft_ms

    @property
    def itl_ms(self) -> float | None:
        """Mean over the gaps between tokens at the roofline, in ms; those of accepted drafts are
        0."""
        return self._ideal.itl_ms

    @property
    def typical_ttft_ms(self) -> float | None:
        """As ``ttft_ms``, as long as it typically takes here."""
        return self._typical.ttft_ms

    @property
    def typical_itl_ms(self) -> float | None:
        """As ``itl_ms``, as long as it typically takes here."""
        return self._typical.itl_ms


def _terms(lane: LaneInfo) -> _Terms:
    visible = None if lane.window is None else lane.window + lane.sinks
    activations = NUMBER_FORMATS[lane.dtype]
    formats = LaneFormats(lane.weight_format, lane.kv_format, activations, lane.native_rows)
    return _Terms(formats, visible)


def model_spec(info: EngineInfo) -> ModelSpec:
    """The running model as the catalogue would describe it."""
    return dense_spec(info.model, info.model_name)


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
