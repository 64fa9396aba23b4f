"""What a KV cache allows other features to do. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.inference.lane_settings import KVFormat, KVLayout, KVSettings
from engine.refusals import refused

SharedBlocks = Literal["prefix_cache", "samples"]
"""What needs blocks that several sequences hold: a prefix found again, samples of one prompt."""


@dataclass(frozen=True, slots=True)
class CacheCapabilities:
    """Features ask these, not which variant a cache is.

    ``name``: of the settings, for messages. ``keeps_computed``: what a step computed is there in
    the next one. ``shares_blocks``: several sequences may hold the same block. ``sees_everything``:
    no position is ever hidden by the cache. ``exact``: what is read is what was written.
    """

    name: str
    keeps_computed: bool
    shares_blocks: bool
    sees_everything: bool
    exact: bool

    @classmethod
    def of(cls, settings: KVSettings) -> CacheCapabilities:
        """What a cache of these settings can do."""
        return cls(
            name=settings.name,
            keeps_computed=settings.layout is not KVLayout.OFF,
            shares_blocks=settings.layout is KVLayout.PAGED,
            sees_everything=settings.window is None,
            exact=settings.format is KVFormat.SAME,
        )

    def require_shared_blocks(self, feature: SharedBlocks) -> None:
        """Refuse a feature where sequences can not share blocks.

        Raises:
            InvalidRequest: they can not (field "kv_cache").
        """
        if not self.shares_blocks:
            kind = "contiguous" if self.keeps_computed else "off"
            raise refused(f"{feature}_{kind}", field="kv_cache")
