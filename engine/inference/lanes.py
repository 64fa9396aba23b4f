"""Opening lanes: weights in one format, a KV cache in one format, and an executor that has both.

Weights are loaded once for all lanes that share their format, however their caches differ.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from weakref import WeakValueDictionary

from engine.inference.device import DTYPES, Device
from engine.inference.executor import TorchExecutor
from engine.inference.lane_memory import require_room
from engine.inference.lane_orders import OpeningStage, Report, no_report
from engine.inference.lane_settings import (
    KVLayout,
    KVSettings,
    LaneSettings,
    QuantizationMethod,
    WeightSettings,
)
from engine.inference.model.transformer import Transformer
from engine.inference.native.matrix import MatrixPacker
from engine.inference.native.switch import library_for_all_steps
from engine.inference.quantization.lane import Lane, open_lane
from engine.inference.quantization.stored import is_kept
from engine.inference.sampling_params import SamplingParams
from engine.inference.weights.checkpoint import Checkpoint
from engine.refusals import refused
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
    """Opens lanes of one checkpoint on one device; any thread may ask.

    Different weights are quantised and loaded side by side, so that what takes seconds need not
    wait for what takes minutes.
    """

    def __init__(self, checkpoint: Checkpoint, device: Device, kv_tokens: int) -> None:
        self._checkpoint = checkpoint
        self._device = device
        self._num_blocks = blocks_for(kv_tokens, DEFAULT_BLOCK_SIZE)
        self._lock = threading.Lock()
        self._locks_of_weights: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        # Weights live as long as a lane has them.
        self._transformers: WeakValueDictionary[str, Transformer] = WeakValueDictionary()
        self._bits: dict[str, float] = {}
        # Bytes that lanes on demand need while they are being opened.
        self._taken: Counter[LaneSettings] = Counter()

    def takes_long(self, settings: LaneSettings) -> bool:
        """Whether opening may take minutes: AWQ and GPTQ run the model over a text first."""
        weights = settings.weights
        calibrated = weights.quantized and weights.method is not QuantizationMethod.RTN
        return calibrated and weights.name not in self._transformers

    def weights(self, settings: WeightSettings) -> Lane:
        """The model with weights of that format: those of an open lane, or loaded for the caller,
        who drops them. Only what takes seconds.

        Raises:
            InvalidRequest: AWQ or GPTQ that were never made here (field "weights").
            CapacityError, UnsupportedModel, FileFormatError: as ``open``.
        """
        there = self._transformers.get(settings.name)
        if there is not None:
            return Lane(there, self._bits[settings.name])
        lane = LaneSettings(settings)
        if self.takes_long(lane) and not is_kept(self._checkpoint, settings):
            raise refused("weights_not_made", field="weights")
        with self._room_for(lane, num_positions=0):
            with self._lock:
                lock = self._locks_of_weights[settings.name]
            with lock:
                transformer = self._transformer(settings, no_report)
                return Lane(transformer, self._bits[settings.name])

    def open(
        self, settings: LaneSettings, *, on_demand: bool = False, report: Report = no_report
    ) -> OpenedLane:
        """Load or quantise the weights, take the KV cache's memory, warm up.

        ``on_demand``: only if the memory for it is free; what is asked for at the start is opened.
        What ``report`` raises ends the opening.

        Raises:
            CapacityError: there is too little free memory (field "weights").
            UnsupportedModel, FileFormatError: the checkpoint cannot be had in that format.
        """
        config = self._checkpoint.config
        name = settings.weights.name
        num_positions = math.prod(self._blocks(settings.kv))
        room = self._room_for(settings, num_positions) if on_demand else nullcontext()
        with room:
            started = time.perf_counter()
            with self._lock:
                lock = self._locks_of_weights[name]
            with lock:
                transformer = self._transformer(settings.weights, report)
            with self._lock:
                report(OpeningStage.WARMING_UP, 0.0, "")
                executor = self._executor(transformer, settings.kv)
                _warm_up(executor)
            opened = OpenedLane(
                settings=settings,
                executor=executor,
                seconds=time.perf_counter() - started,
                bits_per_weight=self._bits[name],
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

    @contextmanager
    def _room_for(self, settings: LaneSettings, num_positions: int) -> Iterator[None]:
        """Hold a lane's bytes against others that are opened meanwhile."""
        with self._lock:
            needed = require_room(
                self._checkpoint,
                settings,
                self._device,
                num_positions=num_positions,
                weights_are_there=settings.weights.name in self._transformers,
                taken=self._taken.total(),
            )
            self._taken[settings] += needed
        try:
            yield
        finally:
            with self._lock:
                self._taken[settings] -= needed

    def _executor(self, transformer: Transformer, kv: KVSettings) -> TorchExecutor:
        tokenizer = self._checkpoint.tokenizer()
        num_blocks, block_size = self._blocks(kv)
        return TorchExecutor(
            transformer,
            num_blocks=num_blocks,
            block_size=block_size,
            num_tokens=tokenizer.vocab_size,
            unknown_ids=tokenizer.unknown_ids(tokenizer.vocab_size),
            kv=kv,
        )

    def _blocks(self, kv: KVSettings) -> tuple[int, int]:
        """How many blocks of how many positions hold ``kv_tokens``: a contiguous cache has one slab
        for each sequence, as long as a sequence can be."""
        if kv.layout is not KVLayout.CONTIGUOUS:
            return self._num_blocks, DEFAULT_BLOCK_SIZE
        longest = blocks_for(self._checkpoint.config.max_context, DEFAULT_BLOCK_SIZE)
        slab = min(longest, self._num_blocks)
        return self._num_blocks // slab, slab * DEFAULT_BLOCK_SIZE

    def _transformer(self, weights: WeightSettings, report: Report) -> Transformer:
        transformer = self._transformers.get(weights.name)
        if transformer is None:
            config, device = self._checkpoint.config, self._device.torch_device
            library = library_for_all_steps(config, device)
            lane = open_lane(
                self._checkpoint,
                weights,
                activations=DTYPES[self._device.default_dtype],
                device=device,
                max_positions=self._num_blocks * DEFAULT_BLOCK_SIZE,
                packer=None if library is None else MatrixPacker(library),
                report=report,
            )
            transformer = lane.transformer
            self._bits[weights.name] = lane.bits_per_weight
            self._transformers[weights.name] = transformer
        return transformer


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
