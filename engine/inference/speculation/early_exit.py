"""Early exit: the model's own first layers, then its final norm and head, as the drafter.

It takes no weights and no cache of its own: keys and values of the first layers are the same
numbers whoever computes them, so drafts write them into the request's own blocks, and verifying
writes them again, with those of the other layers. Drafting with a part of the model is studied in
Draft & Verify (arXiv 2309.08168) and LayerSkip (arXiv 2404.16710); the model here was not trained
for it, so how often it is right is a property of its layers.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.inference.model_steps import ModelSteps
from engine.inference.speculation.in_step import SampleNext, draft_with
from engine.scheduling.plan import ScheduledSequence


class EarlyExitDrafter:
    """Drafts for requests that run on this model and its cache."""

    def __init__(self, model: ModelSteps) -> None:
        self._model = model

    def draft(self, sequences: Sequence[ScheduledSequence], sample: SampleNext) -> list[list[int]]:
        drafts: dict[str, list[int]] = {}
        by_exit: dict[int, list[ScheduledSequence]] = {}
        for sequence in sequences:
            by_exit.setdefault(self._exit_of(sequence), []).append(sequence)
        for exit_layer, members in by_exit.items():
            feeds = [member.with_drafts(()) for member in members]
            made = draft_with(self._model, feeds, members, sample, num_layers=exit_layer)
            drafts |= {m.request_id: tokens for m, tokens in zip(members, made, strict=True)}
        return [drafts[sequence.request_id] for sequence in sequences]

    def release(self, request_id: str) -> None:
        """Nothing is kept of a request."""

    def _exit_of(self, sequence: ScheduledSequence) -> int:
        settings = sequence.speculation
        chosen = None if settings is None else settings.exit_layer
        return chosen or max(1, self._model.transformer.config.num_layers // 2)
