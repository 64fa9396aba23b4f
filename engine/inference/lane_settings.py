"""How a lane of the engine keeps its weights and its KV cache, each with one name.

A name is all that a request, a command line or a page has to say: ``int4-g32-awq`` or
``paged-int8-window-256-sinks-4``. Torch-free, so that the web process can read them too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from engine.refusals import refused

GROUP_SIZES = (32, 64, 128)
DEFAULT_GROUP_SIZE = 32
MAX_WINDOW = 1_048_576


class WeightFormat(StrEnum):
    """``FILE``: the quantised blocks of the weights file itself, never expanded."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT4 = "int4"
    FILE = "file"


class QuantizationMethod(StrEnum):
    """Round to nearest; AWQ (Lin et al. 2023, arXiv 2306.00978); GPTQ (Frantar et al. 2022, arXiv
    2210.17323)."""

    RTN = "rtn"
    AWQ = "awq"
    GPTQ = "gptq"


class Granularity(StrEnum):
    """Which weights share one scale: a whole matrix, a row of it, or a group within a row."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    GROUP = "group"


_WEIGHTS = re.compile(r"(int8|int4)(?:-(tensor|channel|g32|g64|g128))?(?:-(rtn|awq|gptq))?")


@dataclass(frozen=True, slots=True)
class WeightSettings:
    """The format of a lane's weights. The last three count only where ``quantized``.

    ``group_size``: weights that share a scale where ``granularity`` is ``GROUP``.
    """

    format: WeightFormat
    granularity: Granularity = Granularity.GROUP
    group_size: int = DEFAULT_GROUP_SIZE
    method: QuantizationMethod = QuantizationMethod.RTN

    @property
    def quantized(self) -> bool:
        """Whether the engine quantises the weights itself."""
        return self.format in (WeightFormat.INT8, WeightFormat.INT4)

    @property
    def bits(self) -> int | None:
        """Bits of a stored weight without its scales; None for the file's own blocks."""
        widths = {"float32": 32, "bfloat16": 16, "int8": 8, "int4": 4}
        return widths.get(self.format)

    @property
    def name(self) -> str:
        """The canonical name, which ``parse_weights`` reads."""
        if not self.quantized:
            return self.format.value
        shared = (
            f"g{self.group_size}" if self.granularity is Granularity.GROUP else self.granularity
        )
        return f"{self.format}-{shared}-{self.method}"


def parse_weights(name: str) -> WeightSettings:
    """Read ``float32``, ``bfloat16``, ``file`` or ``int8|int4[-tensor|-channel|-gN][-method]``.

    What is left out is ``g32`` and ``rtn``.

    Raises:
        InvalidRequest: no such format (field "weights").
    """
    if name in (WeightFormat.FLOAT32, WeightFormat.BFLOAT16, WeightFormat.FILE):
        return WeightSettings(WeightFormat(name))
    match = _WEIGHTS.fullmatch(name)
    if match is None:
        raise refused("weights_choices", field="weights")
    bits, shared, method = match.groups(default="")
    grouped = shared in ("", "g32", "g64", "g128")
    return WeightSettings(
        WeightFormat(bits),
        Granularity.GROUP if grouped else Granularity(shared),
        int(shared[1:]) if grouped and shared else DEFAULT_GROUP_SIZE,
        QuantizationMethod(method or "rtn"),
    )


class KVLayout(StrEnum):
    """``OFF``: nothing is kept; every step computes the whole text again."""

    PAGED = "paged"
    CONTIGUOUS = "contiguous"
    OFF = "off"


class KVFormat(StrEnum):
    """``SAME``: as the activations. The others have one scale per position and head."""

    SAME = "same"
    INT8 = "int8"
    INT4 = "int4"


_KV = re.compile(
    r"(paged|contiguous|off)(?:-(int8|int4))?(?:-window-([1-9]\d{0,6})(?:-sinks-(\d{1,4}))?)?"
)


@dataclass(frozen=True, slots=True)
class KVSettings:
    """How a lane keeps keys and values.

    ``window``: positions that a token sees, itself included; None for all before it. ``sinks``:
    first positions that stay visible beyond the window (Xiao et al. 2023, arXiv 2309.17453).

    Raises:
        InvalidRequest: a combination that makes no sense (field "kv_cache").
    """

    layout: KVLayout = KVLayout.PAGED
    format: KVFormat = KVFormat.SAME
    window: int | None = None
    sinks: int = 0

    def __post_init__(self) -> None:
        if self.layout is KVLayout.OFF and (
            self.format is not KVFormat.SAME or self.window is not None
        ):
            raise refused("kv_off_keeps_nothing", field="kv_cache")
        if self.window is None and self.sinks:
            raise refused("sinks_need_window", field="kv_cache")
        if self.window is not None and not self.sinks < self.window <= MAX_WINDOW:
            raise refused("window_range", field="kv_cache", high=MAX_WINDOW)

    @property
    def name(self) -> str:
        """The canonical name, which ``parse_kv`` reads."""
        name = self.layout.value
        if self.format is not KVFormat.SAME:
            name += f"-{self.format}"
        if self.window is not None:
            name += f"-window-{self.window}"
        if self.sinks:
            name += f"-sinks-{self.sinks}"
        return name

    def forgotten_blocks(self, next_position: int, block_size: int) -> range:
        """Which blocks of a sequence no token at ``next_position`` or later will read.

        As indexes into its block table. They may be given back for good, unless the sequence
        starts again at a position before ``next_position``.
        """
        if self.window is None:
            return range(0)
        first = -(-self.sinks // block_size)
        return range(first, max(first, (next_position - self.window + 1) // block_size))


def parse_kv(name: str) -> KVSettings:
    """Read ``paged|contiguous|off[-int8|-int4][-window-W[-sinks-S]]``.

    Raises:
        InvalidRequest: no such cache, or one that makes no sense (field "kv_cache").
    """
    match = _KV.fullmatch(name)
    if match is None:
        raise refused("kv_choices", field="kv_cache")
    layout, stored, window, sinks = match.groups()
    return KVSettings(
        KVLayout(layout),
        KVFormat(stored or "same"),
        int(window) if window else None,
        int(sinks or 0),
    )


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """All that makes two requests unable to share a batch: weights, KV cache, prefix caching."""

    weights: WeightSettings
    kv: KVSettings = KVSettings()
    prefix_cache: bool = False

    @property
    def name(self) -> str:
        """``bfloat16``, or with what differs from the plain paged cache ``bfloat16/off``."""
        parts = [self.weights.name]
        if self.kv != KVSettings():
            parts.append(self.kv.name)
        if self.prefix_cache:
            parts.append(_PREFIX_CACHE)
        return "/".join(parts)


_PREFIX_CACHE = "prefix-cache"


def parse_lane(name: str) -> LaneSettings:
    """Read ``LaneSettings.name`` back: ``weights[/kv][/prefix-cache]``.

    Raises:
        InvalidRequest: a part of it is wrong (field "weights" or "kv_cache").
    """
    weights, *rest = name.split("/")
    prefix_cache = rest[-1:] == [_PREFIX_CACHE]
    caches = rest[:-1] if prefix_cache else rest
    if len(caches) > 1:
        raise refused("one_kv_cache", field="kv_cache")
    kv = parse_kv(caches[0]) if caches else KVSettings()
    return LaneSettings(parse_weights(weights), kv, prefix_cache)
