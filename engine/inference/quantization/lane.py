"""A model in the format of one lane: loaded, run over whole windows, left to go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from engine.inference.executor import TorchExecutor
from engine.inference.kv_cache.make import make_cache
from engine.inference.lane_orders import OpeningStage, Report, no_report
from engine.inference.lane_settings import KVSettings, WeightFormat, WeightSettings
from engine.inference.model.batch import build_batch
from engine.inference.model.load import load_transformer
from engine.inference.model.transformer import Transformer
from engine.inference.native.matrix import MatrixPacker
from engine.inference.quantization.quality import LogitsOf
from engine.inference.quantization.stored import quantize_once
from engine.inference.quantization.tensor import QuantizedTensor
from engine.inference.sampling import SamplingParams
from engine.inference.weights.checkpoint import Checkpoint
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE, blocks_for
from engine.scheduling.plan import Phase, ScheduledSequence, StepPlan

_FLOATS = {WeightFormat.FLOAT32: torch.float32, WeightFormat.BFLOAT16: torch.bfloat16}
_REQUEST = "lane"


@dataclass(frozen=True, slots=True)
class Lane:
    """A loaded transformer. ``bits_per_weight``: of its matrices, scales and offsets included."""

    transformer: Transformer
    bits_per_weight: float

    @property
    def weight_bytes(self) -> int:
        """All weights in memory, those left in float included."""
        return self.transformer.weights.nbytes


@dataclass(frozen=True, slots=True)
class GreedyRun:
    """``token_ids`` without the prompt; ``step_seconds`` of each decode step, measured."""

    token_ids: tuple[int, ...]
    step_seconds: tuple[float, ...]


def open_lane(
    checkpoint: Checkpoint,
    settings: WeightSettings,
    *,
    activations: torch.dtype,
    device: torch.device,
    max_positions: int | None = None,
    packer: MatrixPacker | None = None,
    report: Report = no_report,
) -> Lane:
    """The model with its weights as the settings say. A float format is that of the activations
    too; else they are in ``activations``. ``packer``: see ``load_transformer``. ``report`` is
    called before each layer, and each matrix that is quantised.

    Raises:
        InvalidRequest: the file's blocks cannot be used (field "weights").
        UnsupportedModel: weights that cannot be quantised.
    """

    def load(
        source: Checkpoint, dtype: torch.dtype, matrices: Mapping[str, QuantizedTensor] | None
    ) -> Transformer:
        num_layers = source.config.num_layers
        return load_transformer(
            source,
            dtype,
            device,
            max_positions=max_positions,
            matrices=matrices,
            packer=packer,
            before_layer=lambda index: report(
                OpeningStage.LOADING, index / num_layers, f"layers.{index}"
            ),
        )

    dtype = _FLOATS.get(settings.format)
    if dtype is not None:
        return Lane(load(checkpoint, dtype, None), 8 * dtype.itemsize)
    weights = quantize_once(checkpoint, settings, partial(report, OpeningStage.QUANTIZING))
    return Lane(load(weights.checkpoint, activations, weights.matrices), weights.bits_per_weight)


def logits_through_cache(
    transformer: Transformer, kv: KVSettings, *, longest: int, chunk: int | None = None
) -> LogitsOf:
    """Logits of all positions of a window of at most ``longest`` tokens, keys and values going
    through a cache of that kind. ``chunk``: tokens of a step, all at once if None; what a step
    writes, it reads back from the cache."""
    in_chunks = chunks_through_cache(transformer, kv, longest=longest, chunk=chunk)
    return lambda token_ids: torch.cat(list(in_chunks(token_ids)))


def chunks_through_cache(
    transformer: Transformer, kv: KVSettings, *, longest: int, chunk: int | None = None
) -> Callable[[Sequence[int]], Iterator[Tensor]]:
    """``logits_through_cache`` step by step, ``[chunk, v]`` each: for texts whose logits are too
    many to hold at once."""
    blocks = blocks_for(longest, DEFAULT_BLOCK_SIZE)
    cache = make_cache(
        transformer.config,
        kv,
        num_blocks=blocks,
        dtype=transformer.dtype,
        device=transformer.device,
    )
    table = tuple(range(blocks))

    def logits_of(token_ids: Sequence[int]) -> Iterator[Tensor]:
        step = chunk or len(token_ids)
        for start in range(0, len(token_ids), step):
            part = token_ids[start : start + step]
            sequence = ScheduledSequence(_REQUEST, Phase.PREFILL, start, part, table, samples=True)
            # Entered anew each time: between two steps, the mode would be the caller's.
            with torch.inference_mode():
                batch = build_batch(StepPlan(0, (sequence,)), cache)
                # A step scores only rows that sample; here every row does.
                logits = transformer.logits(replace(batch, sample_rows=None), cache)
            yield logits

    return logits_of


def go_on(
    executor: TorchExecutor, prompt: Sequence[int], max_tokens: int, stop: frozenset[int]
) -> GreedyRun:
    """Likeliest tokens one after the other, a stop token included: the way of every request."""
    executor.add_request(_REQUEST, SamplingParams())
    table = tuple(range(blocks_for(len(prompt) + max_tokens, executor.block_size)))
    step = ScheduledSequence(_REQUEST, Phase.PREFILL, 0, list(prompt), table, samples=True)
    output: list[int] = []
    seconds: list[float] = []
    while True:
        began = time.perf_counter()
        result = executor.execute(StepPlan(0, (step,)))
        seconds.append(time.perf_counter() - began)
        token_id = result.samples[0].token_id
        output.append(token_id)
        if len(output) == max_tokens or token_id in stop:
            break
        start = len(prompt) + len(output) - 1
        step = ScheduledSequence(_REQUEST, Phase.DECODE, start, [token_id], table, samples=True)
    executor.release(_REQUEST)
    return GreedyRun(tuple(output), tuple(seconds[1:]))
