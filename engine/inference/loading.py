"""From options to a model that is ready to run: device, weights, one executor for each dtype."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.errors import InvalidRequest
from engine.inference.calibration import ensure_calibrated, memory_bytes
from engine.inference.device import DTYPES, Device, open_device
from engine.inference.executor import TorchExecutor
from engine.inference.lane_orders import Report, no_report
from engine.inference.lane_settings import parse_lane
from engine.inference.lanes import LaneOpener, OpenedLane
from engine.inference.model.architecture import architecture_of
from engine.inference.model.config import ModelConfig
from engine.inference.options import EngineOptions
from engine.inference.tokenizer import Tokenizer
from engine.inference.weights.checkpoint import Checkpoint
from engine.inference.weights.default import ModelSource, find_default_model

log = logging.getLogger(__name__)

# A second lane is a convenience, so it may take only this share of the memory.
_SECOND_LANE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory: the lanes that are open from the start, the default one first, and what
    opens further ones."""

    config: ModelConfig
    tokenizer: Tokenizer
    lanes: tuple[OpenedLane, ...]
    opener: LaneOpener
    checkpoint: Checkpoint
    provenance: str
    source_format: str
    random_weights: bool
    device: str
    device_name: str
    torch_version: str
    threads: int
    load_seconds: float

    @property
    def default_dtype(self) -> str:
        """The weights format of requests that do not choose one."""
        return self.lanes[0].settings.weights.name

    @property
    def executors(self) -> dict[str, TorchExecutor]:
        """Executors of the lanes that are open from the start, by name."""
        return {lane.settings.name: lane.executor for lane in self.lanes}

    @property
    def architecture(self) -> dict[str, Any]:
        """The model's numbers under the names of the catalogue's ``ModelSpec``."""
        return architecture_of(self.config)


def load_model(options: EngineOptions, report: Report = no_report) -> LoadedModel:
    """Find, open and load the model that the options name; ``report`` hears how far its lanes are.

    Raises:
        InvalidRequest: no such dtype, device or model path.
        EngineUnavailable: the device is not there.
        FileFormatError, UnsupportedModel: the file is damaged, or holds what is not run here.
    """
    started = time.perf_counter()
    device = open_device(options.device)
    source = find_model(options.model)
    checkpoint = source.open()
    default, *others = _lanes(options, checkpoint.config, device)
    opener = LaneOpener(checkpoint, device, options.kv_tokens)
    lanes = tuple(opener.open(parse_lane(name), report=report) for name in [default, *others])
    loaded = LoadedModel(
        config=checkpoint.config,
        tokenizer=checkpoint.tokenizer(),
        lanes=lanes,
        opener=opener,
        checkpoint=checkpoint,
        provenance=source.provenance,
        source_format=checkpoint.source_format,
        random_weights=source.random_weights,
        device=device.kind,
        device_name=device.name,
        torch_version=torch.__version__,
        threads=device.threads,
        load_seconds=time.perf_counter() - started,
    )
    if options.calibrate == "auto":
        _calibrate(options.device)
    return loaded


def find_model(model: str) -> ModelSource:
    """Where the weights are that an option names: auto, tiny, or a path.

    Raises:
        InvalidRequest: there is nothing at that path (field "model").
    """
    if model == "auto":
        return find_default_model()
    if model == "tiny":
        return ModelSource(None, "tiny random weights, as asked for")
    path = Path(model)
    if not path.exists():
        raise InvalidRequest(
            "there is no such model; give auto, tiny, a GGUF file or a model folder", field="model"
        )
    return find_default_model(path)


def _lanes(options: EngineOptions, config: ModelConfig, device: Device) -> list[str]:
    """Names of the lanes to open, the default one first."""
    if options.dtypes != "auto":
        return options.dtypes.split(",")
    default = device.default_dtype
    memory = memory_bytes(device.torch_device)
    rest = [
        dtype
        for dtype in DTYPES
        if dtype != default
        and config.num_parameters * DTYPES[dtype].itemsize < memory * _SECOND_LANE_SHARE
    ]
    return [default, *rest]


def _calibrate(device: str) -> None:
    """Measure this machine if it has not been measured. Without a place to keep the result, or
    without the memory to measure on a GPU that others use too (torch's OutOfMemoryError is a
    RuntimeError), the engine runs all the same, and pages show no prediction and say why."""
    try:
        ensure_calibrated(device)
    except (OSError, RuntimeError) as error:
        log.warning("this machine is not calibrated, so nothing is predicted for it: %s", error)
