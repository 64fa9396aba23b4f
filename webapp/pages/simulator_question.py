"""What the simulator's page asks: one deployment and its load, and perhaps a second beside it.

The query string is the scenario: it reads like the form, so that a link is a saved scenario.
Numbers are brought into range; names are checked by the simulator, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import ClassVar
from urllib.parse import urlencode

from engine.simulator.deployment import Deployment, Times
from engine.simulator.features import Features, Speculation
from engine.simulator.layout import Layout
from engine.simulator.run import Batch

WEIGHTS = (
    "fp32", "bf16", "fp16", "fp8", "fp8-b128", "int8", "int8-g128", "int4-g128", "int4-g32",
    "mxfp4", "nvfp4", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0",
)  # fmt: skip
CACHES = ("fp32", "bf16", "fp16", "fp8", "int8", "int4-g32")
ACTIVATIONS = ("", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "nvfp4")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two scenarios, as its knobs stand. Empty text: what the simulator takes itself."""

    model: str = "llama-3.1-8b"
    hardware: str = "h100-sxm"
    tensor: int = 1
    data: int = 1
    stages: int = 1
    experts: bool = False
    weights: str = "bf16"
    kv: str = "bf16"
    activations: str = ""
    engine: str = ""
    batch: int = 1
    prompt: int = 1024
    output: int = 256
    chunk: int = 0
    hit: int = 0
    drafts: int = 0
    acceptance: int = 70

    RANGES: ClassVar[dict[str, tuple[int, int]]] = {
        "tensor": (1, 64), "data": (1, 64), "stages": (1, 64), "batch": (1, 4096),
        "prompt": (1, 1_048_576), "output": (1, 131_072), "chunk": (0, 65_536), "hit": (0, 100),
        "drafts": (0, 16), "acceptance": (0, 100),
    }  # fmt: skip

    def deployment(self, times: Times) -> Deployment:
        """The model on its devices.

        Raises:
            InvalidRequest: the layout is wrong (names the field).
        """
        return Deployment(
            self.model,
            self.hardware,
            Layout(self.tensor, self.data, self.experts, self.stages),
            self.weights,
            self.kv,
            self.activations or None,
            times,
            self.engine or None,
        )

    @property
    def query(self) -> str:
        """The query string that asks for this side alone."""
        given = {name: value for name, value in asdict(self).items() if name != "experts"}
        return urlencode({**given, **({"experts": "on"} if self.experts else {})})

    @property
    def load(self) -> Batch:
        return Batch(self.batch, self.prompt, self.output)

    @property
    def features(self) -> Features:
        speculation = Speculation(self.drafts, self.acceptance / 100) if self.drafts else None
        return Features(self.chunk or None, self.hit / 100, speculation)

    @property
    def devices(self) -> int:
        return self.tensor * self.data * self.stages


SHARED = ("prompt", "output", "chunk", "hit", "drafts", "acceptance")
"""Knobs that both sides have in common: the load is the same, the deployment differs."""


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


def _side(query: Mapping[str, str], prefix: str, default: Side) -> Side:
    def text(name: str) -> str:
        return query.get(prefix + name, getattr(default, name))[:100]

    def whole(name: str) -> int:
        low, high = Side.RANGES[name]
        given = query.get(prefix + name, "").strip()
        if not (given.isascii() and given.isdigit()):
            return getattr(default, name)
        return min(max(int(given[:12]), low), high)

    return Side(
        model=text("model"),
        hardware=text("hardware"),
        weights=text("weights"),
        kv=text("kv"),
        activations=text("activations"),
        engine=text("engine"),
        experts=query.get(prefix + "experts", "") == "on",
        tensor=whole("tensor"),
        data=whole("data"),
        stages=whole("stages"),
        batch=whole("batch"),
        prompt=whole("prompt"),
        output=whole("output"),
        chunk=whole("chunk"),
        hit=whole("hit"),
        drafts=whole("drafts"),
        acceptance=whole("acceptance"),
    )
