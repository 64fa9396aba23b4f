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
from engine.inference.model.architecture import architecture_of
from engine.inference.model.config import ModelConfig
from engine.inference.model.load import load_transformer
from engine.inference.options import EngineOptions
from engine.inference.sampling import SamplingParams
from engine.inference.tokenizer import Tokenizer
from engine.inference.weights.checkpoint import Checkpoint
from engine.inference.weights.default import ModelSource, find_default_model
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE, blocks_for
from engine.scheduling.plan import Phase, ScheduledSequence, StepPlan

log = logging.getLogger(__name__)

# A second lane is a convenience, so it may take only this share of the memory.
_SECOND_LANE_SHARE = 0.25

_WARM_UP = "warm-up"
_WARM_UP_TOKENS = 64


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory, in one or more dtypes, the default one first."""

    config: ModelConfig
    tokenizer: Tokenizer
    executors: dict[str, TorchExecutor]
    default_dtype: str
    provenance: str
    source_format: str
    random_weights: bool
    device: str
    device_name: str
    torch_version: str
    threads: int
    load_seconds: float

    @property
    def architecture(self) -> dict[str, Any]:
        """The model's numbers under the names of the catalogue's ``ModelSpec``."""
        return architecture_of(self.config)


def load_model(options: EngineOptions) -> LoadedModel:
    """Find, open and load the model that the options name.

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
    executors = {
        dtype: _load_lane(checkpoint, dtype, device, options) for dtype in [default, *others]
    }
    loaded = LoadedModel(
        config=checkpoint.config,
        tokenizer=checkpoint.tokenizer(),
        executors=executors,
        default_dtype=default,
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
    """The dtypes to load, the default one first."""
    if options.dtypes != "auto":
        chosen = options.dtypes.split(",")
        if any(dtype not in DTYPES for dtype in chosen):
            raise InvalidRequest(f"choose one of auto, {', '.join(DTYPES)}", field="dtype")
        return chosen
    default = device.default_dtype
    memory = memory_bytes(device.torch_device)
    rest = [
        dtype
        for dtype in DTYPES
        if dtype != default
        and config.num_parameters * DTYPES[dtype].itemsize < memory * _SECOND_LANE_SHARE
    ]
    return [default, *rest]


def _load_lane(
    checkpoint: Checkpoint, dtype: str, device: Device, options: EngineOptions
) -> TorchExecutor:
    tokenizer = checkpoint.tokenizer()
    num_blocks = blocks_for(options.kv_tokens, DEFAULT_BLOCK_SIZE)
    transformer = load_transformer(
        checkpoint,
        DTYPES[dtype],
        device.torch_device,
        max_positions=num_blocks * DEFAULT_BLOCK_SIZE,
    )
    executor = TorchExecutor(
        transformer,
        num_blocks=num_blocks,
        num_tokens=tokenizer.vocab_size,
        unknown_ids=tokenizer.unknown_ids(tokenizer.vocab_size),
    )
    log.info(
        "%s in %s: %.0f MB of weights, %d tokens of KV cache (%d bytes each)",
        checkpoint.config.name,
        dtype,
        executor.weight_bytes / 1e6,
        options.kv_tokens,
        executor.kv_bytes_per_token,
    )
    _warm_up(executor)
    return executor


def _warm_up(executor: TorchExecutor) -> None:
    """Run one prefill and one decode step for nobody.

    The first use of each kernel compiles and allocates, and would otherwise be in the first
    person's TTFT. What it leaves in the cache is finite and is written over by the blocks' owners.
    """
    executor.add_request(_WARM_UP, SamplingParams())
    num_tokens = min(_WARM_UP_TOKENS, executor.num_blocks * executor.block_size - 1)
    table = tuple(range(blocks_for(num_tokens + 1, executor.block_size)))
    for phase, start, count in ((Phase.PREFILL, 0, num_tokens), (Phase.DECODE, num_tokens, 1)):
        sequence = ScheduledSequence(_WARM_UP, phase, start, (0,) * count, table, samples=True)
        executor.execute(StepPlan(0, (sequence,)))
    executor.release(_WARM_UP)


def _calibrate(device: str) -> None:
    """Measure this machine if it has not been measured. Without a place to keep the result, or
    without the memory to measure on a GPU that others use too (torch's OutOfMemoryError is a
    RuntimeError), the engine runs all the same, and pages show no prediction and say why."""
    try:
        ensure_calibrated(device)
    except (OSError, RuntimeError) as error:
        log.warning("this machine is not calibrated, so nothing is predicted for it: %s", error)
