"""A question to the simulator: requests, what they run on, and with which features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import ClassVar, cast

from engine.catalog.device import Interconnect
from engine.catalog.inline import hardware_from, model_from
from engine.catalog.units import GB
from engine.errors import InvalidRequest
from engine.refusals import refused
from engine.simulator.deployment import Deployment, Times
from engine.simulator.energy import IDLE_SHARE
from engine.simulator.features import MAX_CHUNK, Disaggregation, Features, Offload, Speculation
from engine.simulator.layout import MAX_DEVICES, Layout
from engine.simulator.links import DEFAULT_NETWORK
from engine.simulator.run import Batch

_NESTED = {
    "speculation": Speculation,
    "offload": Offload,
    "disaggregation": Disaggregation,
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """``batch`` equal requests that arrive together.

    ``model`` and ``hardware`` are ids of the catalogue, or objects that ``catalog.inline``
    understands; ``weights``, ``kv`` and ``activations`` names of number formats (activations:
    None follows the weights). ``devices`` share every matrix; ``data``, ``stages``, ``experts``,
    ``imbalance`` and ``per_node`` are as for ``Layout``, ``network_gb_s`` is each device's way out
    of a node. ``engine`` is the serving engine of typical times. ``usd_per_hour`` is one device's
    price (None: the catalogue's).

    Raises:
        InvalidRequest: a number is out of its range, or the run would take too long to simulate.
    """

    model: str | Mapping[str, object]
    hardware: str | Mapping[str, object]
    devices: int = 1
    weights: str = "bf16"
    kv: str = "bf16"
    batch: int = 1
    prompt_tokens: int = 512
    output_tokens: int = 128
    activations: str | None = None
    data: int = 1
    stages: int = 1
    experts: bool = False
    imbalance: float = 1.0
    per_node: int | None = None
    network_gb_s: float | None = None
    engine: str | None = None
    memory_utilization: float = 0.9
    chunk_tokens: int | None = None
    prefix_hit_rate: float = 0.0
    speculation: Speculation | None = None
    offload: Offload | None = None
    disaggregation: Disaggregation | None = None
    usd_per_hour: float | None = None
    idle_share: float = IDLE_SHARE

    RANGES: ClassVar[dict[str, tuple[int, int]]] = {
        "devices": (1, MAX_DEVICES),
        "data": (1, MAX_DEVICES),
        "stages": (1, MAX_DEVICES),
        "batch": (1, 4096),
        "prompt_tokens": (1, 2_000_000),
        "output_tokens": (1, 131_072),
    }
    NUMBERS: ClassVar[dict[str, tuple[type | UnionType, float, float]]] = {
        "imbalance": (int | float, 1, 1000),
        "per_node": (int, 1, MAX_DEVICES),
        "network_gb_s": (int | float, 0.01, 100_000),
        "memory_utilization": (int | float, 0.01, 1),
        "chunk_tokens": (int, 1, MAX_CHUNK),
        "prefix_hit_rate": (int | float, 0, 1),
        "usd_per_hour": (int | float, 0, 10_000),
        "idle_share": (int | float, 0, 1),
    }
    FLAGS: ClassVar[tuple[str, ...]] = ("experts",)
    OPTIONAL: ClassVar[tuple[str, ...]] = (
        "per_node",
        "network_gb_s",
        "chunk_tokens",
        "usd_per_hour",
    )
    # The loop is run for real, one sequence and step after the other: two seconds at most.
    MAX_SAMPLED_TOKENS: ClassVar[int] = 2**18
    MAX_CACHED_TOKENS: ClassVar[int] = 2**24

    @classmethod
    def from_document(cls, document: Mapping[str, object]) -> Scenario:
        """The scenario of a JSON object with the names of these fields.

        Raises:
            InvalidRequest: a field is unknown, or as for a scenario.
        """
        known = {item.name for item in fields(cls)}
        for name in document:
            if name not in known:
                raise InvalidRequest("there is no such field; remove it", field=name)
        values = dict(document)
        for name, kind in _NESTED.items():
            value = values.get(name)
            if isinstance(value, Mapping):
                values[name] = _nested(kind, cast("Mapping[str, object]", value), name)
        for name in ("model", "hardware"):
            if name not in values:
                raise InvalidRequest("this field is required", field=name)
        return cls(**values)  # pyright: ignore[reportArgumentType] (checked in __post_init__)

    def __post_init__(self) -> None:
        for name, (low, high) in self.RANGES.items():
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise refused("choose_whole", field=name, low=f"{low:,}", high=f"{high:,}")
        for name in ("model", "hardware"):
            if not isinstance(getattr(self, name), str | Mapping):
                raise InvalidRequest("give an id, or an object", field=name)
        for name in ("weights", "kv", "activations", "engine"):
            value = getattr(self, name)
            optional = name in ("activations", "engine")
            if not isinstance(value, str) and not (optional and value is None):
                raise InvalidRequest("give a name as text", field=name)
        for name, kind in _NESTED.items():
            if not isinstance(getattr(self, name), kind | None):
                raise InvalidRequest("give an object", field=name)
        self._check_numbers()
        self._check_size()

    def _check_numbers(self) -> None:
        """Everything but plain counts. The deployment checks what it is made of once more."""
        for name, (kind, low, high) in self.NUMBERS.items():
            value: object = getattr(self, name)
            if value is None and name in self.OPTIONAL:
                continue
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not isinstance(value, kind)
                or not low <= value <= high
            ):
                raise refused("choose_number", field=name, low=f"{low:g}", high=f"{high:,}")
        for name in self.FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise InvalidRequest("give true or false", field=name)
        self.deployment("ideal")

    def _check_size(self) -> None:
        if self.batch * self.output_tokens > self.MAX_SAMPLED_TOKENS:
            high = f"{self.MAX_SAMPLED_TOKENS:,}"
            raise refused("sampled_tokens", field="output_tokens", high=high)
        if self.batch * (self.prompt_tokens + self.output_tokens) > self.MAX_CACHED_TOKENS:
            high = f"{self.MAX_CACHED_TOKENS:,}"
            raise refused("cached_tokens", field="prompt_tokens", high=high)

    def deployment(self, times: Times) -> Deployment:
        """What the requests run on.

        Raises:
            UnknownName, InvalidRequest, UnsupportedModel: what is given as an object is wrong.
        """
        network = DEFAULT_NETWORK
        if self.network_gb_s is not None:
            network = Interconnect("network", self.network_gb_s * GB)
        return Deployment(
            self.model if isinstance(self.model, str) else model_from(self.model),
            self.hardware if isinstance(self.hardware, str) else hardware_from(self.hardware),
            self.layout,
            self.weights,
            self.kv,
            self.activations,
            times,
            self.engine,
            self.memory_utilization,
            network=network,
        )

    @property
    def layout(self) -> Layout:
        return Layout(
            self.devices, self.data, self.experts, self.stages, self.imbalance, self.per_node
        )

    @property
    def features(self) -> Features:
        return Features(
            self.chunk_tokens,
            self.prefix_hit_rate,
            self.speculation,
            self.offload,
            self.disaggregation,
        )

    @property
    def requests(self) -> Batch:
        return Batch(self.batch, self.prompt_tokens, self.output_tokens)

    @property
    def is_plain(self) -> bool:
        """One group without stages or features: the loop runs it step by step."""
        return not self.features.any and self.data == self.stages == 1

    @property
    def cached_tokens(self) -> int:
        """Positions that each request holds at its end: the last token is never fed back."""
        return self.prompt_tokens + self.output_tokens - 1

    @property
    def decode_steps(self) -> int:
        """Steps after the one that runs the prompts."""
        return self.output_tokens - 1

    @property
    def shown_decode_step(self) -> int:
        """The decode step that a report shows: the middle one, whose context is the mean.

        With one output token no decode step runs: the one that would follow is shown.
        """
        return max(self.output_tokens // 2, 1)


_TYPES: Mapping[str, tuple[type | UnionType, str]] = {
    "int": (int, "a whole number"),
    "float": (int | float, "a number"),
    "str": (str, "text"),
}


def _nested(kind: type, value: Mapping[str, object], path: str) -> object:
    """The group of fields that an object gives.

    Raises:
        InvalidRequest: a field is unknown or of the wrong type.
    """
    known = {item.name: str(item.type).split(" | ") for item in fields(kind)}
    for name, given in value.items():
        if name not in known:
            raise InvalidRequest("there is no such field; remove it", field=f"{path}.{name}")
        wanted, *rest = known[name]
        if given is None and rest:
            continue
        types, words = _TYPES[wanted]
        if isinstance(given, bool) or not isinstance(given, types):
            raise InvalidRequest(f"give {words}", field=f"{path}.{name}")
    return kind(**value)
