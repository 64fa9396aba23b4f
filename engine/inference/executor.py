"""Runs plans on the real model: batch tensors → layers → logits → sampled tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from engine.errors import StepFailed
from engine.inference.kv_cache.make import make_cache
from engine.inference.lane_settings import KVSettings
from engine.inference.model.transformer import Transformer
from engine.inference.model_steps import ModelSteps, StepLogits, StopWatch
from engine.inference.sampling import Choice, Sampler, SamplingParams
from engine.inference.speculation.draft_model import DraftModel
from engine.inference.speculation.early_exit import EarlyExitDrafter
from engine.inference.speculation.in_step import StepDrafter, fill_in_drafts
from engine.inference.speculation.ngram import NgramDrafter
from engine.inference.speculation.verify import accept, sample_row, sample_rows
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE
from engine.scheduling.drafting import Drafter, InStepDrafter
from engine.scheduling.plan import Sample, ScheduledSequence, StepPlan, StepResult
from engine.scheduling.speculation import SpeculationMethod

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
        draft_model: DraftModel | None = None,
    ) -> None:
        """``num_tokens``: the tokenizer's ids are below it, all of the vocabulary if None.
        ``unknown_ids``: ids that no text has, as ``Tokenizer.unknown_ids`` gives them. ``kv``:
        how keys and values are kept. ``draft_model``: drafts for requests that ask for one.

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
        self._model = ModelSteps(
            transformer, self._cache, num_tokens=num_tokens, unknown_ids=unknown_ids
        )
        self._params: dict[str, SamplingParams] = {}
        self._step_drafters: dict[SpeculationMethod, StepDrafter] = {
            SpeculationMethod.EARLY_EXIT: EarlyExitDrafter(self._model)
        }
        if draft_model is not None:
            self._step_drafters[SpeculationMethod.DRAFT] = draft_model

    def make_drafters(self) -> dict[SpeculationMethod, Drafter]:
        """Who drafts here, for a loop: the text itself before a step, this executor within it."""
        layers = self._transformer.config.num_layers
        in_step = dict.fromkeys(self._step_drafters, InStepDrafter(layers))
        return {SpeculationMethod.NGRAM: NgramDrafter(), **in_step}

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
        return self._model.weight_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV cache that one position takes in all layers."""
        return self._cache.bytes_per_token

    @property
    def native_rows(self) -> int:
        """Tokens of a step up to which it runs natively; 0 as long as none does."""
        return self._model.native_rows

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
        for drafter in self._step_drafters.values():
            drafter.release(request_id)

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        """Run one step. ``stages``: seconds of draft (where drafts were made here), embed, layers,
        logits, sample; empty on CUDA, where the parts run on after the call that started them.

        Raises:
            StepFailed: the model's numbers overflowed. The KV blocks of the plan that hold such
                numbers are cleared, so that their next owners do not inherit NaN. Blocks that a
                request shares with others are finite, and keep their contents.
        """
        watch = StopWatch()
        self._cache.copy_blocks(plan.copies)
        try:
            plan, drafts = fill_in_drafts(plan, self._step_drafters, self._draft_next)
            if drafts:
                watch.stage_done("draft")
            step = self._model.logits(plan)
            watch.stages_done(step.stages)
            rows = [r for s in step.sampled for r in sample_rows(s, self._params[s.request_id])]
            choices = self._sampler.sample(step.logits_nv, rows, step.summary)
        except StepFailed:
            blocks = (block for s in plan.sequences for block in s.block_table)
            self._cache.zero(self._cache.not_finite(blocks))
            raise
        if not choices and self.device == "cuda":
            # Reading the choices waits for the GPU; with none to read, the step would seem to end
            # when its last kernel was started.
            torch.cuda.synchronize(self._transformer.device)
        watch.stage_done("sample")
        stages = {} if self.device == "cuda" else watch.seconds
        return StepResult(_samples(plan, step.sampled, choices), stages=stages, drafts=drafts)

    def _draft_next(self, step: StepLogits, sequences: Sequence[ScheduledSequence]) -> list[int]:
        """What each sequence would say after its drafts so far, by a drafter's logits."""
        rows = [sample_row(s, self._params[s.request_id], s.num_drafts) for s in sequences]
        choices = self._sampler.sample(step.logits_nv, rows, step.summary)
        return [choice.token_id for choice in choices]


def _samples(
    plan: StepPlan, sampled: Sequence[ScheduledSequence], choices: Sequence[Choice]
) -> tuple[Sample, ...]:
    """The samples that count, in the order of the plan; ``choices`` are one for each row."""
    samples: dict[str, list[Sample]] = {}
    first = 0
    for sequence in sampled:
        last = first + sequence.num_sampled
        samples[sequence.request_id] = list(accept(sequence, choices[first:last]))
        first = last
    return tuple(sample for s in plan.sequences if s.samples for sample in samples[s.request_id])
