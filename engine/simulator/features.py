"""What an engine may do beside plain batching, as far as it changes the time of a request."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.refusals import refused

MAX_DRAFTS = 64
MAX_CHUNK = 2**24
HOST_LINK_GB_S = 63.0
"""A device's way to its host where nothing else is said: PCIe 5.0 x16, one direction."""
TRANSFER_LINK_GB_S = 50.0
"""A device's way to another group where nothing else is said: a 400 Gb/s port."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """``drafts`` tokens are guessed a step (γ) and verified together, each right by ``acceptance``.

    A guess costs a step of ``draft_model`` (an id of the catalogue, on the same devices), or else
    ``draft_fraction`` of a plain step; 0 is a look-up in the text.

    Raises:
        InvalidRequest: a value is out of its range (names the field).
    """

    drafts: int = 4
    acceptance: float = 0.7
    draft_model: str | None = None
    draft_fraction: float = 0.0

    def __post_init__(self) -> None:
        _check_range(self.drafts, 1, MAX_DRAFTS, "speculation.drafts")
        _check_range(self.acceptance, 0, 1, "speculation.acceptance")
        _check_range(self.draft_fraction, 0, 10, "speculation.draft_fraction")

    @property
    def tokens_per_step(self) -> float:
        """(1 - α^(γ+1)) / (1 - α): Leviathan et al. 2023, arXiv 2211.17192, equation 1."""
        if self.acceptance == 1:
            return self.drafts + 1
        return (1 - self.acceptance ** (self.drafts + 1)) / (1 - self.acceptance)


@dataclass(frozen=True, slots=True)
class Offload:
    """Cached prefixes lie in the host's memory; each device has a link of ``link_gb_s`` to it."""

    link_gb_s: float = HOST_LINK_GB_S

    def __post_init__(self) -> None:
        _check_range(self.link_gb_s, 0.01, 100_000, "offload.link_gb_s")


@dataclass(frozen=True, slots=True)
class Disaggregation:
    """Prompts run on a group of ``devices`` of its own (None: as many as decode).

    Their caches then travel to the decoding group: a device sends ``link_gb_s``.
    """

    devices: int | None = None
    link_gb_s: float = TRANSFER_LINK_GB_S

    def __post_init__(self) -> None:
        if self.devices is not None:
            _check_range(self.devices, 1, 1024, "disaggregation.devices")
        _check_range(self.link_gb_s, 0.01, 100_000, "disaggregation.link_gb_s")


@dataclass(frozen=True, slots=True)
class Features:
    """``chunk_tokens`` run in a step at most (None: whole prompts); ``prefix_hit_rate`` of a prompt
    is found in the cache, in whole blocks.

    Raises:
        InvalidRequest: a value is out of its range, or two do not go together.
    """

    chunk_tokens: int | None = None
    prefix_hit_rate: float = 0.0
    speculation: Speculation | None = None
    offload: Offload | None = None
    disaggregation: Disaggregation | None = None

    def __post_init__(self) -> None:
        if self.chunk_tokens is not None:
            _check_range(self.chunk_tokens, 1, MAX_CHUNK, "chunk_tokens")
        _check_range(self.prefix_hit_rate, 0, 1, "prefix_hit_rate")

    @property
    def any(self) -> bool:
        return self != Features()

    def cached_tokens(self, prompt: int, block_size: int) -> int:
        """Prompt tokens that are not computed: whole blocks, and never the last token."""
        blocks = math.floor(min(prompt * self.prefix_hit_rate, prompt - 1) / block_size)
        return blocks * block_size


def _check_range(value: float, low: float, high: float, field: str) -> None:
    if not low <= value <= high:
        raise refused("choose_number", field=field, low=f"{low:,}", high=f"{high:,}")
