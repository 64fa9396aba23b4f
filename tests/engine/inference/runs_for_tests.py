"""Small models, plans by hand and runs through the real loop: shared by tests of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

from engine.inference.executor import TorchExecutor
from engine.inference.kv_cache.make import make_cache
from engine.inference.kv_cache.paged import PagedKVCache
from engine.inference.kv_cache.vocabulary import KVCache
from engine.inference.lane_settings import KVSettings
from engine.inference.model.batch import build_batch
from engine.inference.model.load import load_transformer
from engine.inference.model.reference import ReferenceModel
from engine.inference.model.transformer import Transformer
from engine.inference.sampling import SamplingParams
from engine.inference.weights.tiny import tiny_random_checkpoint
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE, BlockPool
from engine.scheduling.events import Event, TokenProduced
from engine.scheduling.loop import SchedulingLoop, WallClock
from engine.scheduling.plan import Phase, ScheduledSequence, StepPlan
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler, SchedulerLimits

CPU = torch.device("cpu")
VOCABULARY = 512
GREEDY = SamplingParams()
PAGED = KVSettings()


@cache
def tiny(dtype: torch.dtype = torch.float32, seed: int = 0) -> Transformer:
    return load_transformer(tiny_random_checkpoint(seed), dtype, CPU)


@cache
def tiny_reference(seed: int = 0) -> ReferenceModel:
    return ReferenceModel(tiny_random_checkpoint(seed))


def tiny_executor(num_blocks: int = 64, dtype: torch.dtype = torch.float32) -> TorchExecutor:
    return TorchExecutor(tiny(dtype), num_blocks=num_blocks)


def new_cache(
    transformer: Transformer,
    num_blocks: int = 64,
    settings: KVSettings = PAGED,
    block_size: int = DEFAULT_BLOCK_SIZE,
) -> PagedKVCache:
    return make_cache(
        transformer.config,
        settings,
        num_blocks=num_blocks,
        dtype=transformer.dtype,
        device=transformer.device,
        block_size=block_size,
    )


def sequence(
    token_ids: Sequence[int],
    *,
    table: Sequence[int],
    start: int = 0,
    samples: bool = True,
    request_id: str = "a",
) -> ScheduledSequence:
    phase = Phase.DECODE if start and len(token_ids) == 1 else Phase.PREFILL
    return ScheduledSequence(request_id, phase, start, list(token_ids), tuple(table), samples)


def plan(*sequences: ScheduledSequence) -> StepPlan:
    return StepPlan(1, sequences)


@torch.inference_mode()
def logits(
    transformer: Transformer, kv_cache: KVCache, *sequences: ScheduledSequence
) -> dict[str, torch.Tensor]:
    """Run one step; the float32 logits of each sequence that samples, by request id."""
    batch = build_batch(plan(*sequences), kv_cache)
    rows = transformer.logits(batch, kv_cache)
    return {s.request_id: row for s, row in zip(batch.sampled, rows, strict=True)}


class Run:
    """A loop over an executor that keeps what it told."""

    def __init__(
        self,
        executor: TorchExecutor,
        limits: SchedulerLimits | None = None,
        prefix_cache: PrefixCache | None = None,
    ) -> None:
        pool = BlockPool(executor.num_blocks, executor.block_size, prefix_cache=prefix_cache)
        self.events: list[Event] = []
        self.executor = executor
        self.scheduler = Scheduler(pool, limits or SchedulerLimits())
        self.loop = SchedulingLoop(
            self.scheduler, executor, WallClock(), self.events.append, executor.make_drafters()
        )

    def add(
        self,
        request_id: str,
        prompt: Sequence[int],
        max_tokens: int,
        params: SamplingParams = GREEDY,
        stop: frozenset[int] = frozenset(),
        samples: Mapping[str, SamplingParams] | None = None,
        **options: Any,
    ) -> None:
        """``samples``: how further samples of the same prompt are to be drawn, by their ids.
        ``options``: further ones of the request."""
        self.executor.add_request(request_id, params)
        for sample_id, sample_params in (samples or {}).items():
            self.executor.add_request(sample_id, sample_params)
        request = Request(request_id, list(prompt), max_tokens, stop, **options)
        self.loop.add(request, list(samples or {}))

    def finish(self) -> None:
        while self.loop.step():
            pass

    def tokens(self, request_id: str) -> list[int]:
        return [t.token_id for t in self.produced(request_id)]

    def produced(self, request_id: str) -> list[TokenProduced]:
        return [
            event
            for event in self.events
            if isinstance(event, TokenProduced) and event.request_id == request_id
        ]


def alone(
    executor: TorchExecutor,
    prompt: Sequence[int],
    max_tokens: int,
    params: SamplingParams = GREEDY,
    stop: frozenset[int] = frozenset(),
    **options: Any,
) -> list[int]:
    """The tokens of one request that has the engine for itself."""
    run = Run(executor)
    run.add("alone", prompt, max_tokens, params, stop, **options)
    run.finish()
    return run.tokens("alone")


def random_ids(count: int, seed: int, vocabulary: int = VOCABULARY) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocabulary, (count,), generator=generator).tolist()
