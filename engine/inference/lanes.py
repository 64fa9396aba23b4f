"""Opening lanes: weights in one format, a KV cache in one format, and an executor that has both.

Weights are loaded once for all lanes that share their format, however their caches differ.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import dataclass
from weakref import WeakValueDictionary

from engine.inference.device import DTYPES, Device
from engine.inference.executor import TorchExecutor
from engine.inference.lane_memory import require_room
from engine.inference.lane_settings import (
    KVLayout,
    KVSettings,
    LaneSettings,
    WeightFormat,
    WeightSettings,
)
from engine.inference.model.load import load_transformer
from engine.inference.model.transformer import Transformer
from engine.inference.quantization.stored import quantize_once
from engine.inference.sampling_params import SamplingParams
from engine.inference.weights.checkpoint import Checkpoint
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE, blocks_for
from engine.scheduling.plan import Phase, ScheduledSequence, StepPlan

log = logging.getLogger(__name__)

_WARM_UP = "warm-up"
# A prompt that runs as native steps do, and one that is long enough for torch's own kernels.
_WARM_UP_TOKENS = (64, 160)


@dataclass(frozen=True, slots=True)
class OpenedLane:
    """A lane that is ready to run, and the seconds that opening it took.

    ``bits_per_weight``: of a weight that is multiplied, its share of scales and offsets included.
    ``kv_numbers_per_token``: numbers that a position has in the KV cache, in all layers.
    """

    settings: LaneSettings
    executor: TorchExecutor
    seconds: float
    bits_per_weight: float
    kv_numbers_per_token: int


class LaneOpener:
    """Opens lanes of one checkpoint on one device, one at a time; any thread may ask."""

    def __init__(self, checkpoint: Checkpoint, device: Device, kv_tokens: int) -> None:
        self._checkpoint = checkpoint
        self._device = device
        self._num_blocks = blocks_for(kv_tokens, DEFAULT_BLOCK_SIZE)
        self._lock = threading.Lock()
        # Weights live as long as a lane has them.
        self._transformers: WeakValueDictionary[str, Transformer] = WeakValueDictionary()
        self._bits: dict[str, float] = {}

    def open(self, settings: LaneSettings, *, on_demand: bool = False) -> OpenedLane:
        """Load or quantise the weights, take the KV cache's memory, warm up.

        ``on_demand``: only if the memory for it is free; what is asked for at the start is opened.

        Raises:
            CapacityError: there is too little free memory (field "weights").
            UnsupportedModel, FileFormatError: the checkpoint cannot be had in that format.
        """
        config = self._checkpoint.config
        with self._lock:
            if on_demand:
                require_room(
                    self._checkpoint,
                    settings,
                    self._device,
                    num_positions=math.prod(self._blocks(settings.kv)),
                    weights_are_there=settings.weights.name in self._transformers,
                )
            started = time.perf_counter()
            executor = self._executor(settings)
            _warm_up(executor)
            opened = OpenedLane(
                settings=settings,
                executor=executor,
                seconds=time.perf_counter() - started,
                bits_per_weight=self._bits[settings.weights.name],
                kv_numbers_per_token=2 * config.num_layers * config.kv_size,
            )
        log.info(
            "%s in %s: %.0f MB of weights, %d KV blocks (%d bytes a token), opened in %.1f s",
            config.name,
            settings.name,
            executor.weight_bytes / 1e6,
            executor.num_blocks,
            executor.kv_bytes_per_token,
            opened.seconds,
        )
        return opened

    def _executor(self, settings: LaneSettings) -> TorchExecutor:
        tokenizer = self._checkpoint.tokenizer()
        num_blocks, block_size = self._blocks(settings.kv)
        return TorchExecutor(
            self._transformer(settings.weights),
            num_blocks=num_blocks,
            block_size=block_size,
            num_tokens=tokenizer.vocab_size,
            unknown_ids=tokenizer.unknown_ids(tokenizer.vocab_size),
            kv=settings.kv,
        )

    def _blocks(self, kv: KVSettings) -> tuple[int, int]:
        """How many blocks of how many positions hold ``kv_tokens``: a contiguous cache has one slab
        for each sequence, as long as a sequence can be."""
        if kv.layout is not KVLayout.CONTIGUOUS:
            return self._num_blocks, DEFAULT_BLOCK_SIZE
        longest = blocks_for(self._checkpoint.config.max_context, DEFAULT_BLOCK_SIZE)
        slab = min(longest, self._num_blocks)
        return self._num_blocks // slab, slab * DEFAULT_BLOCK_SIZE

    def _transformer(self, weights: WeightSettings) -> Transformer:
        transformer = self._transformers.get(weights.name)
        if transformer is None:
            transformer = self._load(weights)
            self._transformers[weights.name] = transformer
        return transformer

    def _load(self, weights: WeightSettings) -> Transformer:
        checkpoint, matrices = self._checkpoint, None
        dtype = weights.format.value
        bits = float(weights.bits or 0)
        if weights.format in (WeightFormat.INT8, WeightFormat.INT4, WeightFormat.FILE):
            quantized = quantize_once(checkpoint, weights)
            checkpoint, matrices = quantized.checkpoint, quantized.matrices
            dtype, bits = self._device.default_dtype, quantized.bits_per_weight
        self._bits[weights.name] = bits
        return load_transformer(
            checkpoint,
            DTYPES[dtype],
            self._device.torch_device,
            max_positions=self._num_blocks * DEFAULT_BLOCK_SIZE,
            matrices=matrices,
        )


def _warm_up(executor: TorchExecutor) -> None:
    """Run a short and a long prefill and a decode step for nobody.

    The first use of each kernel compiles and allocates, and would otherwise be in the first
    person's TTFT. What it leaves in the cache is finite and is written over by the blocks' owners.
    """
    executor.add_request(_WARM_UP, SamplingParams())
    longest = executor.num_blocks * executor.block_size - 1
    for wanted in _WARM_UP_TOKENS:
        num_tokens = min(wanted, longest)
        _run(executor, Phase.PREFILL, 0, num_tokens)
        _run(executor, Phase.DECODE, num_tokens, 1)
    executor.release(_WARM_UP)


def _run(executor: TorchExecutor, phase: Phase, start: int, count: int) -> None:
    table = tuple(range(blocks_for(start + count, executor.block_size)))
    sequence = ScheduledSequence(_WARM_UP, phase, start, (0,) * count, table, samples=True)
    executor.execute(StepPlan(0, (sequence,)))
