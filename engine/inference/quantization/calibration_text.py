"""The two texts beside this file: one that methods calibrate on, one that they are judged on.

Where the texts come from is in ``texts/SOURCES.md``.
"""

from __future__ import annotations

from importlib.resources import files

from engine.inference import quantization
from engine.inference.model.config import ModelConfig
from engine.inference.tokenizer import Tokenizer

CALIBRATION = "calibration"
HELD_OUT = "held_out"

WINDOW_TOKENS = 512


def text_of(name: str) -> str:
    """``CALIBRATION`` or ``HELD_OUT``: English prose in the public domain."""
    return files(quantization).joinpath("texts", f"{name}.txt").read_text(encoding="utf-8")


def token_windows(
    name: str,
    tokenizer: Tokenizer,
    config: ModelConfig,
    num_tokens: int,
    length: int = WINDOW_TOKENS,
) -> list[list[int]]:
    """A text's first ``num_tokens`` tokens, or all it has, in windows that do not overlap.

    Each begins with the begin token where the model wants one; the last may be shorter. A window
    is at most ``length`` tokens, and never longer than the model's context.
    """
    begin = [] if config.bos_token_id is None else [config.bos_token_id]
    step = min(length, config.max_context) - len(begin)
    ids = tokenizer.encode(text_of(name))[:num_tokens]
    return [begin + ids[first : first + step] for first in range(0, len(ids), step)]
