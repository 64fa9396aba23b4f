"""What a model's weights take in each number format, by its parameters and the bits that are true.

Computed: parameters × bits / 8. The bits count scales and zeros; "7B at 4 bits" counts neither
those nor the parameters exactly. Norms, which stay in 16 or 32 bits, are too few to see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.catalog.models import ModelSpec, all_models, get_model
from engine.catalog.precision import get_format
from engine.catalog.units import bytes_label
from webapp.i18n import N_
from webapp.pages.query import Knobs

DEFAULT_MODEL = "llama-2-7b"
FORMATS: tuple[tuple[str, str], ...] = (
    ("fp32", N_("FP32")),
    ("fp16", N_("FP16 or BF16")),
    ("int8", N_("INT8, a scale a channel")),
    ("q8_0", N_("Q8_0, a scale for 32")),
    ("int4", N_("INT4 without scales")),
    ("int4-g128", N_("INT4, scale and zero for 128 (AWQ, GPTQ)")),
    ("q4_0", N_("Q4_0, a scale for 32")),
    ("q4_1", N_("Q4_1, scale and offset for 32 (the model here)")),
)


@dataclass(frozen=True, slots=True)
class Size:
    """One format. ``name`` is English (``N_``); ``share`` of what float32 takes."""

    format: str
    name: str
    bits: float
    exact: float
    share: float

    @property
    def bits_label(self) -> str:
        return f"{self.bits:g}"

    @property
    def label(self) -> str:
        return bytes_label(self.exact)


@dataclass(frozen=True, slots=True)
class SizesView:
    """The fragment: one model in each format."""

    model: ModelSpec
    sizes: tuple[Size, ...]

    @property
    def parameters(self) -> str:
        return f"{self.model.num_parameters:,}"

    @property
    def billions(self) -> str:
        return f"{self.model.num_parameters / 1e9:.2f}"


def model_names() -> tuple[str, ...]:
    """Every model of the catalogue."""
    return tuple(spec.id for spec in all_models())


def sizes_view(query: Mapping[str, str]) -> SizesView:
    """The sizes of the query's model; one that is not known becomes the default."""
    spec = get_model(Knobs(query).choice("model", DEFAULT_MODEL, model_names()))
    return SizesView(spec, sizes_of(spec))


def sizes_of(spec: ModelSpec) -> tuple[Size, ...]:
    """Bytes of all parameters in each format."""
    count = spec.num_parameters
    sizes: list[Size] = []
    for id, name in FORMATS:
        found = get_format(id)
        exact = float(found.bytes_for(count))
        sizes.append(Size(id, name, found.bits, exact, exact / (4 * count)))
    return tuple(sizes)
