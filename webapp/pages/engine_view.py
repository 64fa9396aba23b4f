"""What the page says about the engine: its state in words, and facts for the scripts."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from engine.catalog.models import all_models
from engine.inference.messages import EngineInfo, LaneInfo
from webapp.live.engine_port import READY, EnginePort
from webapp.prediction import NUMBER_FORMATS, StepPredictor

_GEOMETRY = (
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_kv_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "tied_embeddings",
)


@dataclass(frozen=True, slots=True)
class Lane:
    """A dtype on offer, with the bytes that its weights and one token of its KV cache take.

    ``number_format`` is the catalogue's name of the dtype.
    """

    dtype: str
    number_format: str
    weight_bytes: int
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class Facts:
    """The running model in numbers, as ``data-engine`` for the scripts and for the templates.

    ``catalogue_model`` is the catalogue's model of the same make, None where it has none.
    ``default_dtype`` is what the default lane computes in. ``lanes`` are those to choose a
    precision from: none if the engine was started with other formats of weights alone.
    """

    model_name: str
    catalogue_model: str | None
    device: str
    device_name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    max_context: int
    random_weights: bool
    source_format: str
    chat: bool
    default_dtype: str
    lanes: tuple[Lane, ...]

    def document(self) -> dict[str, object]:
        """These facts as JSON-ready values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EngineView:
    """State of the engine. ``mark`` changes whenever what the page shows about it changes.

    ``calibrated``: this very device was measured, so its steps can be predicted.
    """

    state: str
    restarts: int
    facts: Facts | None
    calibrated: bool

    @property
    def ready(self) -> bool:
        return self.state == READY and self.facts is not None

    @property
    def mark(self) -> str:
        known = "known" if self.facts else "unknown"
        return f"{self.state}-{self.restarts}-{known}-{'roof' if self.calibrated else 'bare'}"


def _integer(info: EngineInfo, name: str) -> int:
    value = info.model[name]
    if not isinstance(value, int):
        raise TypeError(f"the engine's {name} is not an integer")
    return value


def _catalogue_model(info: EngineInfo) -> str | None:
    """The dense model of the catalogue with the running one's sizes: both do the same work."""
    sizes = [info.model.get(name) for name in _GEOMETRY]
    for spec in all_models():
        dense = spec.moe is None and spec.mla is None
        if dense and [getattr(spec, name) for name in _GEOMETRY] == sizes:
            return spec.id
    return None


def _default_dtype(info: EngineInfo) -> str:
    default = (lane.dtype for lane in info.lanes if lane.weights == info.default_dtype)
    return next(default, info.lanes[0].dtype)


def _is_plain(lane: LaneInfo) -> bool:
    """A precision of the engine's own: one that a request had opened may be closed at any time."""
    plain = lane.weights in NUMBER_FORMATS and lane.kv_cache == "paged"
    return plain and not lane.prefix_cache and not lane.on_demand


def _facts(info: EngineInfo) -> Facts:
    return Facts(
        model_name=info.model_name,
        catalogue_model=_catalogue_model(info),
        device=info.device,
        device_name=info.device_name,
        layers=_integer(info, "num_layers"),
        hidden=_integer(info, "hidden_size"),
        heads=_integer(info, "num_attention_heads"),
        kv_heads=_integer(info, "num_kv_heads"),
        head_dim=_integer(info, "head_dim"),
        intermediate=_integer(info, "intermediate_size"),
        vocabulary=_integer(info, "vocab_size"),
        max_context=info.max_context,
        random_weights=info.random_weights,
        source_format=info.source_format,
        chat=info.has_chat_template,
        default_dtype=_default_dtype(info),
        lanes=tuple(
            Lane(
                lane.dtype,
                NUMBER_FORMATS.get(lane.dtype, lane.dtype),
                lane.weight_bytes,
                lane.kv_bytes_per_token,
            )
            for lane in info.lanes
            if _is_plain(lane)
        ),
    )


def engine_view(engine: EnginePort, predictor: StepPredictor) -> EngineView:
    """The view of ``engine`` as it is now."""
    info = engine.info
    facts = None if info is None else _facts(info)
    return EngineView(str(engine.state), engine.restarts, facts, predictor.calibrated(info))
