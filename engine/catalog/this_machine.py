"""This machine as hardware: what calibration measured, kept in the state folder."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from platformdirs import user_state_path

from engine.catalog.device import FALLBACKS, HardwareSpec
from engine.catalog.json_values import as_list, as_number, as_numbers, as_object, as_text
from engine.catalog.lane_calibration import LaneCalibration, lane_from_json, lane_to_json
from engine.errors import FileFormatError

THIS_MACHINE_ID = "this-machine"

_FILE_NAME = "calibration.json"
_FORMAT_VERSION = 1
_MAX_FILE_BYTES = 1 << 20

_log = logging.getLogger(__name__)


def state_dir() -> Path:
    """Where this program keeps what it learns: $FIRSTTOKEN_STATE, or the platform's own place."""
    override = os.environ.get("FIRSTTOKEN_STATE")
    return Path(override) if override else user_state_path("firsttoken")


@dataclass(frozen=True)
class Calibration:
    """What was measured of this machine.

    ``bandwidth_bytes_per_s`` is a read of memory much larger than the caches; ``flops_per_s`` are
    matrix products by format ("fp32", "bf16", "int8"); ``spread`` gives, by measurement, the
    largest minus the smallest run over the median. ``device_kind`` is "cpu" or "cuda"; ``date``
    is ISO 8601. ``lanes`` are what was measured of the engine itself, which takes longer and is
    done by hand.
    """

    bandwidth_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    memory_bytes: int
    device_name: str
    device_kind: str
    torch_version: str
    threads: int
    date: str
    spread: Mapping[str, float] = field(default_factory=lambda: MappingProxyType[str, float]({}))
    lanes: tuple[LaneCalibration, ...] = ()

    def with_lane(self, lane: LaneCalibration) -> Calibration:
        """With this lane, together with what was known of the same lane of the same model."""
        others: list[LaneCalibration] = []
        for known in self.lanes:
            if (known.lane, known.model) == (lane.lane, lane.model):
                lane = lane.with_sessions_of(known)
            else:
                others.append(known)
        return replace(self, lanes=(*others, lane))

    def with_best_rates(self, other: Calibration) -> Calibration:
        """With the higher of two measurements of each rate, and that one's spread."""
        mine, theirs = self.flops_per_s, other.flops_per_s
        spread = dict(self.spread)
        rates = dict(mine)
        for name, rate in theirs.items():
            if rate > mine.get(name, 0.0):
                rates[name] = rate
                spread[name] = other.spread.get(name, 0.0)
        bandwidth = self.bandwidth_bytes_per_s
        if other.bandwidth_bytes_per_s > bandwidth:
            bandwidth = other.bandwidth_bytes_per_s
            spread["bandwidth"] = other.spread.get("bandwidth", 0.0)
        return replace(self, bandwidth_bytes_per_s=bandwidth, flops_per_s=rates, spread=spread)

    def __post_init__(self) -> None:
        numbers = (self.bandwidth_bytes_per_s, self.memory_bytes, *self.flops_per_s.values())
        if not all(0 < number < float("inf") for number in numbers):
            raise ValueError("measured rates and sizes must be finite and above 0")
        if not self.flops_per_s or self.flops_per_s.keys() - FALLBACKS.keys():
            raise ValueError(f"rates are needed, by format: {', '.join(FALLBACKS)}")
        if self.device_kind not in {"cpu", "cuda"}:
            raise ValueError("the kind of device must be cpu or cuda")


def calibration_path() -> Path:
    return state_dir() / _FILE_NAME


def save_calibration(calibration: Calibration) -> Path:
    """Keep a calibration, replacing the one before it at once; where it was written.

    Raises:
        OSError: the state folder cannot be written.
    """
    path = calibration_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    values: dict[str, object] = {"version": _FORMAT_VERSION}
    for item in fields(calibration):
        values[item.name] = getattr(calibration, item.name)
    values["flops_per_s"] = dict(calibration.flops_per_s)
    values["spread"] = dict(calibration.spread)
    values["lanes"] = [lane_to_json(lane) for lane in calibration.lanes]
    # A reader never sees half a file: write beside it, then rename.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".calibration-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(values, file, indent=2, allow_nan=False)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def load_calibration() -> Calibration | None:
    """The calibration of this machine, or None if there is none yet.

    Raises:
        FileFormatError: the file is there and is not a calibration of this version.
    """
    path = calibration_path()
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > _MAX_FILE_BYTES:
        raise FileFormatError("the calibration file is too large; calibrate again")
    try:
        return _parsed(content)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileFormatError("the calibration file is malformed; calibrate again") from error


@lru_cache(maxsize=1)
def _parsed(content: bytes) -> Calibration:
    """The file's content, parsed once: a diagnosis asks for this machine a thousand times."""
    return _from_json(json.loads(content))


def _from_json(values: object) -> Calibration:
    entry = as_object(values)
    if entry.get("version") != _FORMAT_VERSION:
        raise ValueError("another version of the calibration file")
    return Calibration(
        bandwidth_bytes_per_s=as_number(entry["bandwidth_bytes_per_s"]),
        flops_per_s=as_numbers(entry["flops_per_s"]),
        memory_bytes=int(as_number(entry["memory_bytes"])),
        device_name=as_text(entry["device_name"]),
        device_kind=as_text(entry["device_kind"]),
        torch_version=as_text(entry["torch_version"]),
        threads=int(as_number(entry["threads"])),
        date=as_text(entry["date"]),
        spread=as_numbers(entry["spread"]),
        # Files from before lanes were measured have none.
        lanes=tuple(lane_from_json(lane) for lane in as_list(entry.get("lanes", []))),
    )


def this_machine() -> HardwareSpec | None:
    """This machine as hardware, or None before calibration.

    Raises:
        FileFormatError: its calibration cannot be read.
    """
    calibration = load_calibration()
    return None if calibration is None else calibrated_hardware(calibration)


def calibrated_hardware(calibration: Calibration) -> HardwareSpec:
    """What was measured, as hardware."""
    software = f"torch {calibration.torch_version}, {calibration.threads} threads"
    return HardwareSpec(
        id=THIS_MACHINE_ID,
        name=f"This machine ({calibration.device_name})",
        vendor="",
        category="gpu" if calibration.device_kind == "cuda" else "cpu",
        memory_bytes=calibration.memory_bytes,
        bandwidth=calibration.bandwidth_bytes_per_s,
        dense_flops=MappingProxyType(dict(calibration.flops_per_s)),
        sources=(f"measured here on {calibration.date} with {software}",),
        notes="Rates that were reached in matrix products and reads of memory, not peaks.",
        kind="measured",
    )


def this_machine_if_readable() -> HardwareSpec | None:
    """Like ``this_machine``, but a broken file is logged: it must not hide the whole catalogue."""
    try:
        return this_machine()
    except (FileFormatError, OSError) as error:
        _log.warning("this machine is left out of the hardware list: %s", error)
        return None
