"""One model over one KV cache: from a step's plan to logits, natively where that is possible."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from engine.inference.kv_cache.vocabulary import KVCache
from engine.inference.model.batch import build_batch
from engine.inference.model.transformer import Transformer, first_layers
from engine.inference.native.switch import NativeSteps
from engine.inference.sampling import LogitSummary
from engine.scheduling.plan import ScheduledSequence, StepPlan


@dataclass(frozen=True, slots=True)
class StepLogits:
    """``logits_nv`` in float32, ``num_sampled`` rows of each of ``sampled``; they may lie in memory
    that the next step uses again.

    ``summary``: what is known of them already. ``stages``: seconds of embed, layers and logits.
    """

    logits_nv: Tensor
    sampled: tuple[ScheduledSequence, ...]
    summary: LogitSummary | None
    stages: dict[str, float]


class ModelSteps:
    """A transformer with the KV cache that its steps write and read."""

    def __init__(
        self,
        transformer: Transformer,
        cache: KVCache,
        *,
        num_tokens: int,
        unknown_ids: Iterable[int] = (),
    ) -> None:
        """``num_tokens``, ``unknown_ids``: which ids can be sampled, see ``Sampler``."""
        self.transformer = transformer
        self.cache = cache
        self._native = NativeSteps(
            transformer, cache, num_tokens=num_tokens, unknown_ids=unknown_ids
        )
        self._shallow: dict[int, Transformer] = {}

    @property
    def weight_bytes(self) -> int:
        """Bytes that the weights take in memory, in all forms in which they are there."""
        return self.transformer.weights.nbytes + self._native.nbytes

    @property
    def native_rows(self) -> int:
        """Tokens of a step up to which it runs natively; 0 as long as none does."""
        return self._native.max_rows

    def logits(self, plan: StepPlan, num_layers: int | None = None) -> StepLogits:
        """Run a step: store its keys and values, and give the logits of the rows that sample.

        ``num_layers``: so many of the first layers, then the final norm and the head; all if None.
        The keys and values of the later ones are not touched.

        Raises:
            ValueError: the plan makes no sense, or the model has not so many layers.
        """
        native = self._native.taking(plan)
        if native is not None:
            result = native.logits(plan, num_layers)
            return StepLogits(result.logits_nv, result.sampled, result.summary, result.stages)
        watch = StopWatch()
        batch = build_batch(plan, self.cache)
        logits_nv = self._layers(num_layers).logits(batch, self.cache, watch.stage_done)
        return StepLogits(logits_nv, batch.sampled, None, watch.seconds)

    def _layers(self, count: int | None) -> Transformer:
        if count is None:
            return self.transformer
        shallow = self._shallow.get(count)
        if shallow is None:
            shallow = self._shallow[count] = first_layers(self.transformer, count)
        return shallow


class StopWatch:
    """Seconds between one stage's end and the next one's."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def stage_done(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now

    def stages_done(self, seconds: dict[str, float]) -> None:
        """Stages that were timed elsewhere and have just ended."""
        self.seconds.update(seconds)
        self._last = time.perf_counter()
