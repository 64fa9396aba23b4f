"""Runs plans on the real model: batch tensors → layers → logits → sampled tokens."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from engine.errors import StepFailed
from engine.inference.kv_cache.make import make_cache
from engine.inference.lane_settings import KVSettings
from engine.inference.model.batch import build_batch
from engine.inference.model.transformer import Transformer
from engine.inference.native.switch import NativeSteps
from engine.inference.sampling import LogitSummary, Sampler, SampleRow, SamplingParams
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE
from engine.scheduling.plan import Sample, ScheduledSequence, StepPlan, StepResult

_PAGED = KVSettings()


class TorchExecutor:
    """One model in one dtype with its KV cache. Implements ``engine.scheduling.loop.Executor``.

    Keeps nothing about a request but how to sample it: whatever else a step needs is in its plan,
    so preempting and resuming need no word from the scheduler.
    """

    def __init__(
        self,
        transformer: Transformer,
        *,
        num_blocks: int,
        num_tokens: int | None = None,
        unknown_ids: Iterable[int] = (),
        block_size: int = DEFAULT_BLOCK_SIZE,
        kv: KVSettings = _PAGED,
    ) -> None:
        """``num_tokens``: the tokenizer's ids are below it, all of the vocabulary if None.
        ``unknown_ids``: ids that no text has, as ``Tokenizer.unknown_ids`` gives them. ``kv``:
        how keys and values are kept.

        Raises ``ValueError`` where a sequence could outgrow what the transformer was loaded for.
        """
        longest = min(num_blocks * block_size, transformer.config.max_context)
        if transformer.max_positions < longest:
            raise ValueError("the KV cache holds more positions than the transformer knows")
        self._transformer = transformer
        self._cache = make_cache(
            transformer.config,
            kv,
            num_blocks=num_blocks,
            dtype=transformer.dtype,
            device=transformer.device,
            block_size=block_size,
        )
        num_tokens = num_tokens or transformer.config.vocab_size
        unknown_ids = list(unknown_ids)
        self._sampler = Sampler(num_tokens, unknown_ids=unknown_ids, device=transformer.device)
        self._native = NativeSteps(
            transformer, self._cache, num_tokens=num_tokens, unknown_ids=unknown_ids
        )
        self._params: dict[str, SamplingParams] = {}

    @property
    def num_blocks(self) -> int:
        """Blocks of the KV cache."""
        return self._cache.num_blocks

    @property
    def block_size(self) -> int:
        """Positions in a block."""
        return self._cache.block_size

    @property
    def weight_bytes(self) -> int:
        """Bytes that the weights take in memory, as they are stored here."""
        return self._transformer.weights.nbytes + self._native.nbytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV cache that one position takes in all layers."""
        return self._cache.bytes_per_token

    @property
    def dtype(self) -> str:
        """``float32`` or ``bfloat16``."""
        return str(self._transformer.dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``."""
        return self._transformer.device.type

    def add_request(self, request_id: str, params: SamplingParams) -> None:
        """Say how a request is to be sampled, before its first step.

        Raises:
            InvalidRequest: a parameter is out of range.
        """
        params.validate(self._transformer.config.vocab_size)
        self._params[request_id] = params

    def release(self, request_id: str) -> None:
        """Forget a request; one that is not known is ignored."""
        self._params.pop(request_id, None)

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        """Run one step. ``stages``: seconds of embed, layers, logits, sample; empty on CUDA,
        where the parts run on after the call that started them.

        Raises:
            StepFailed: the model's numbers overflowed. The KV blocks of the plan that hold such
                numbers are cleared, so that their next owners do not inherit NaN. Blocks that a
                request shares with others are finite, and keep their contents.
        """
        watch = _StopWatch()
        self._cache.copy_blocks(plan.copies)
        logits_nv, sampled, summary = self._logits(plan, watch)
        try:
            choices = self._sampler.sample(
                logits_nv,
                [
                    # A new token stands right after the last one that was computed.
                    SampleRow(self._params[s.request_id], position=s.start + s.num_tokens)
                    for s in sampled
                ],
                summary,
            )
        except StepFailed:
            blocks = (block for s in plan.sequences for block in s.block_table)
            self._cache.zero(self._cache.not_finite(blocks))
            raise
        if not choices and self.device == "cuda":
            # Reading the choices waits for the GPU; with none to read, the step would seem to end
            # when its last kernel was started.
            torch.cuda.synchronize(self._transformer.device)
        watch.stage_done("sample")
        samples = {
            sequence.request_id: Sample(sequence.request_id, choice.token_id, choice.logprob)
            for sequence, choice in zip(sampled, choices, strict=True)
        }
        in_plan_order = tuple(samples[s.request_id] for s in plan.sequences if s.samples)
        return StepResult(in_plan_order, stages={} if self.device == "cuda" else watch.seconds)

    def _logits(
        self, plan: StepPlan, watch: _StopWatch
    ) -> tuple[Tensor, tuple[ScheduledSequence, ...], LogitSummary | None]:
        """Logits of the sequences that sample, these sequences, and what is known of the logits."""
        native = self._native.taking(plan)
        if native is not None:
            result = native.logits(plan)
            watch.stages_done(result.stages)
            return result.logits_nv, result.sampled, result.summary
        batch = build_batch(plan, self._cache)
        return self._transformer.logits(batch, self._cache, watch.stage_done), batch.sampled, None


class _StopWatch:
    """Seconds between one stage's end and the next one's."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def stage_done(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now

    def stages_done(self, seconds: Mapping[str, float]) -> None:
        self.seconds.update(seconds)
        self._last = time.perf_counter()
