"""The cells that are scored. None is a step that lanes are calibrated with."""

from __future__ import annotations

from dataclasses import dataclass

PROMPTS = (64, 128, 256, 512, 1_024, 2_048)
CONTEXTS = (64, 256, 1_024, 4_096)
BATCHES = (1, 3, 6, 12, 20, 32)
MAX_STEP_TOKENS = 1_024  # the engine's default: a longer prompt takes several steps


@dataclass(frozen=True, slots=True)
class Cell:
    """A prompt of so many tokens, or decode steps of ``batch`` sequences over a context."""

    kind: str
    batch: int
    tokens: int

    @property
    def name(self) -> str:
        if self.kind == "prefill":
            return f"prefill {self.tokens:,}"
        return f"decode, batch {self.batch}, context {self.tokens:,}"


CELLS = (
    *(Cell("prefill", 1, prompt) for prompt in PROMPTS),
    *(Cell("decode", batch, context) for batch in BATCHES for context in CONTEXTS),
)
QUICK_CELLS = (Cell("prefill", 1, 20), Cell("decode", 1, 40), Cell("decode", 3, 24))
