"""What the simulator's page asks: one deployment and its load, and perhaps a second beside it.

The query string is the scenario: it reads like the form, so that a link is a saved scenario.
Numbers are brought into range; names are checked by the simulator, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar
from urllib.parse import urlencode

from engine.catalog.device import Interconnect
from engine.catalog.units import GB
from engine.simulator.deployment import Deployment, Times
from engine.simulator.energy import IDLE_SHARE
from engine.simulator.features import (
    TRANSFER_LINK_GB_S,
    Disaggregation,
    Features,
    Offload,
    Speculation,
)
from engine.simulator.layout import Layout
from engine.simulator.links import DEFAULT_NETWORK
from engine.simulator.run import Batch
from webapp.pages.own import NO_DEVICE, Described, OwnDevice, read_described
from webapp.pages.query import Knobs, Moved, moved_knobs

WEIGHTS = (
    "fp32", "bf16", "fp16", "fp8", "fp8-b128", "int8", "int8-g128", "int4-g128", "int4-g32",
    "mxfp4", "nvfp4", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0",
)  # fmt: skip
CACHES = ("fp32", "bf16", "fp16", "fp8", "int8", "int4-g32")
ACTIVATIONS = ("", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "nvfp4")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two scenarios, as its knobs stand. Empty text: what the simulator takes itself.

    Shares are percentages. ``config`` and ``device`` count where ``model`` and ``hardware`` are
    ``OWN``. Zero turns a feature off: ``chunk``, ``drafts``, ``offload`` (GB/s of the link to the
    host, where cached prefixes lie), ``split`` (devices of a prefill group of its own, whose
    caches travel at ``split_link`` GB/s), ``per_node`` (all devices are one node) and ``network``
    (GB/s; 0 takes the usual one).
    """

    model: str = "llama-3.1-8b"
    hardware: str = "h100-sxm"
    config: str = ""
    device: OwnDevice = NO_DEVICE
    tensor: int = 1
    data: int = 1
    stages: int = 1
    experts: bool = False
    imbalance: float = 1.0
    per_node: int = 0
    network: float = 0.0
    weights: str = "bf16"
    kv: str = "bf16"
    activations: str = ""
    engine: str = ""
    utilization: int = 90
    usd: float | None = None
    batch: int = 1
    prompt: int = 1024
    output: int = 256
    chunk: int = 0
    hit: int = 0
    offload: float = 0.0
    split: int = 0
    split_link: float = TRANSFER_LINK_GB_S
    drafts: int = 0
    acceptance: int = 70
    draft_model: str = ""
    draft_cost: int = 0
    idle: int = round(100 * IDLE_SHARE)

    WHOLE: ClassVar[dict[str, tuple[int, int]]] = {
        "tensor": (1, 64), "data": (1, 64), "stages": (1, 64), "per_node": (0, 1024),
        "utilization": (1, 100), "batch": (1, 4096), "prompt": (1, 1_048_576),
        "output": (1, 131_072), "chunk": (0, 65_536), "hit": (0, 100), "split": (0, 1024),
        "drafts": (0, 16), "acceptance": (0, 100), "draft_cost": (0, 1000), "idle": (0, 100),
    }  # fmt: skip
    REAL: ClassVar[dict[str, tuple[float, float]]] = {
        "imbalance": (1, 1000), "network": (0, 100_000), "offload": (0, 100_000),
        "split_link": (0.01, 100_000),
    }  # fmt: skip
    TEXTS: ClassVar[tuple[str, ...]] = ("weights", "kv", "activations", "engine", "draft_model")
    MOST_USD: ClassVar[float] = 10_000

    def deployment(self, times: Times) -> Deployment:
        """The model on its devices.

        Raises:
            InvalidRequest, UnsupportedModel: the layout or what describes the model or the device
                is wrong (names the field).
        """
        network = Interconnect("network", self.network * GB) if self.network else DEFAULT_NETWORK
        return Deployment(
            self.described.chosen_model(),
            self.described.chosen_hardware(),
            self.layout,
            self.weights,
            self.kv,
            self.activations or None,
            times,
            self.engine or None,
            self.utilization / 100,
            network=network,
        )

    @property
    def described(self) -> Described:
        """The model and the device."""
        return Described(self.model, self.hardware, self.config, self.device)

    @property
    def layout(self) -> Layout:
        """How the devices share the work."""
        return Layout(
            self.tensor, self.data, self.experts, self.stages, self.imbalance, self.per_node or None
        )

    @property
    def query(self) -> str:
        """The query string that asks for this side alone."""
        plain = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.name not in ("model", "hardware", "config", "device", "experts", "usd")
        }
        given = {**self.described.fields(), **plain}
        if self.usd is not None:
            given["usd"] = self.usd
        return urlencode({**given, **({"experts": "on"} if self.experts else {})})

    @property
    def load(self) -> Batch:
        return Batch(self.batch, self.prompt, self.output)

    @property
    def features(self) -> Features:
        return Features(
            self.chunk or None,
            self.hit / 100,
            self.speculation,
            Offload(self.offload) if self.offload else None,
            Disaggregation(self.split, self.split_link) if self.split else None,
        )

    @property
    def speculation(self) -> Speculation | None:
        if not self.drafts:
            return None
        return Speculation(
            self.drafts, self.acceptance / 100, self.draft_model or None, self.draft_cost / 100
        )

    @property
    def devices(self) -> int:
        return self.layout.devices

    @property
    def has_more(self) -> bool:
        """Whether a knob of the form's folded part is not as usual."""
        usual = Side()
        return any(getattr(self, name) != getattr(usual, name) for name in FOLDED)


SHARED = (
    "prompt", "output", "chunk", "hit", "offload", "split", "split_link", "drafts", "acceptance",
    "draft_model", "draft_cost", "idle",
)  # fmt: skip
"""Knobs that both sides have in common: the load is the same, the deployment differs."""
FOLDED = (
    "activations", "data", "stages", "experts", "imbalance", "per_node", "network", "engine",
    "utilization", "usd", "chunk", "hit", "offload", "split", "drafts", "idle",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SimulatorQuestion:
    """The page's question: a scenario, and the one it is compared with, if any."""

    a: Side = Side()
    b: Side | None = None

    @property
    def sides(self) -> tuple[tuple[str, Side], ...]:
        """The scenarios with their letters."""
        return (("A", self.a),) if self.b is None else (("A", self.a), ("B", self.b))


def read_simulator_question(query: Mapping[str, str]) -> SimulatorQuestion:
    """The question in a query string."""
    a = _side(query, "", Side())
    if query.get("compare") != "on":
        return SimulatorQuestion(a)
    b = _side(query, "b_", a)
    return SimulatorQuestion(a, replace(b, **{name: getattr(a, name) for name in SHARED}))


def moved_in_sides(query: Mapping[str, str], question: SimulatorQuestion) -> tuple[Moved, ...]:
    """The numbers of a query that stand otherwise in the question read from it."""
    names = (*Side.WHOLE, *Side.REAL)
    found = moved_knobs(query, names, question.a)
    if question.b is None:
        return found
    own = [name for name in names if name not in SHARED]
    return found + moved_knobs(query, own, question.b, "b_")


def _side(query: Mapping[str, str], prefix: str, default: Side) -> Side:
    knobs = Knobs(query, prefix)
    described = read_described(knobs, default.described)
    values: dict[str, Any] = {
        **{name: knobs.text(name, getattr(default, name)) for name in Side.TEXTS},
        **{
            name: knobs.whole(name, getattr(default, name), *ends)
            for name, ends in Side.WHOLE.items()
        },
        **{
            name: knobs.real(name, getattr(default, name), *ends)
            for name, ends in Side.REAL.items()
        },
    }
    return Side(
        model=described.model,
        hardware=described.hardware,
        config=described.config,
        device=described.device,
        experts=knobs.flag("experts"),
        usd=knobs.optional("usd", 0, Side.MOST_USD),  # another device has a price of its own
        **values,
    )
