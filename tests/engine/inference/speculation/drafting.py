"""Executors that draft in every way, and texts that are worth drafting."""

from __future__ import annotations

from engine.inference.executor import TorchExecutor
from engine.inference.speculation.draft_model import DraftModel
from engine.scheduling.events import DraftsVerified
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from tests.engine.inference.runs_for_tests import VOCABULARY, Run, random_ids, tiny

NGRAM = SpeculationSettings(SpeculationMethod.NGRAM, draft_tokens=4)
EARLY_EXIT = SpeculationSettings(SpeculationMethod.EARLY_EXIT, draft_tokens=3, exit_layer=1)
DRAFT = SpeculationSettings(SpeculationMethod.DRAFT, draft_tokens=4)
METHODS = {"ngram": NGRAM, "early-exit": EARLY_EXIT, "draft": DRAFT}


def drafting_executor(
    num_blocks: int = 64, *, draft_seed: int = 0, draft_blocks: int = 64
) -> TorchExecutor:
    """The tiny model; ``draft_seed`` 0 is the same model as its draft model, so always right."""
    draft = DraftModel(tiny(seed=draft_seed), vocab_size=VOCABULARY, num_blocks=draft_blocks)
    return TorchExecutor(tiny(), num_blocks=num_blocks, draft_model=draft)


def repetitive(length: int, seed: int) -> list[int]:
    """A prompt that says the same few tokens again and again."""
    return (random_ids(5, seed=seed) * length)[:length]


def drafts_of(run: Run, request_id: str) -> list[DraftsVerified]:
    return [
        event
        for event in run.events
        if isinstance(event, DraftsVerified) and event.request_id == request_id
    ]
