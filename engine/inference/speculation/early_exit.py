"""Early exit: the model's own first layers, then its final norm and head, as the drafter.

It takes no weights and no cache of its own: keys and values of the first layers are the same
numbers whoever computes them, so drafts write them into the request's own blocks, and verifying
writes them again, with those of the other layers. Drafting with a part of the model is studied in
Draft & Verify (arXiv 2309.08168) and LayerSkip (arXiv 2404.16710); the model here was not trained
for it, so how often it is right is a property of its layers.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from engine.inference.kv_cache.vocabulary import KVCache
from engine.inference.model.transformer import Transformer
from engine.inference.speculation.in_step import SampleNext, draft_with
from engine.scheduling.plan import ScheduledSequence


def first_layers(transformer: Transformer, count: int) -> Transformer:
    """The same model without its later layers; all weights are shared.

    Raises:
        ValueError: it has not so many layers, or none is left.
    """
    if not 1 <= count <= transformer.config.num_layers:
        raise ValueError(f"the model has {transformer.config.num_layers} layers")
    shallow = copy.copy(transformer)
    shallow.config = replace(transformer.config, num_layers=count)
    shallow.weights = replace(transformer.weights, layers=transformer.weights.layers[:count])
    return shallow


class EarlyExitDrafter:
    """Drafts for requests that run on this model and this cache."""

    def __init__(self, transformer: Transformer, cache: KVCache) -> None:
        self._transformer = transformer
        self._cache = cache
        self._shallow: dict[int, Transformer] = {}

    def draft(self, sequences: Sequence[ScheduledSequence], sample: SampleNext) -> list[list[int]]:
        drafts: dict[str, list[int]] = {}
        by_exit: dict[int, list[ScheduledSequence]] = {}
        for sequence in sequences:
            by_exit.setdefault(self._exit_of(sequence), []).append(sequence)
        for exit_layer, members in by_exit.items():
            model = self._model(exit_layer)
            feeds = [member.with_drafts(()) for member in members]
            made = draft_with(model, self._cache, feeds, members, sample)
            drafts |= {m.request_id: tokens for m, tokens in zip(members, made, strict=True)}
        return [drafts[sequence.request_id] for sequence in sequences]

    def release(self, request_id: str) -> None:
        """Nothing is kept of a request."""

    def _exit_of(self, sequence: ScheduledSequence) -> int:
        settings = sequence.speculation
        chosen = None if settings is None else settings.exit_layer
        return chosen or max(1, self._transformer.config.num_layers // 2)

    def _model(self, exit_layer: int) -> Transformer:
        model = self._shallow.get(exit_layer)
        if model is None:
            model = self._shallow[exit_layer] = first_layers(self._transformer, exit_layer)
        return model
