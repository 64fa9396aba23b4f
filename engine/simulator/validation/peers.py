"""Other tools' predictions and ours on the same measured rows.

The tools were run for prompts of 512 and 2,048 tokens with 128 output tokens. Measured rows of the
same structure, device, number of devices, 16-bit formats and batch are compared where their
lengths lie between: a peer's TTFT is interpolated over the prompt, its TPOT over the mean context.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.simulator.validation.measurement import data_folder
from engine.simulator.validation.plans import Plan
from engine.simulator.validation.scoring import Scores

_MODELS = {
    "Llama-2-7b": ("llama-2-7b",),
    "Llama-3.1-8B": ("llama-3.1-8b",),
    # But for the vocabulary, Llama 2 70B is the same.
    "Llama-3.1-70B": ("llama-3.1-70b", "llama-2-70b"),
}
_DEVICES = {"A100-80GB-SXM": "a100-80-sxm", "H100-80GB-SXM": "h100-sxm"}
_PROMPTS = (512, 2048)
_OUTPUT = 128


@dataclass(frozen=True, slots=True)
class Peer:
    """TTFT and TPOT [ms] of one tool and setting at one point."""

    tool: str
    model: str
    device: str
    devices: int
    batch: int
    prompt: int
    ttft: float | None
    tpot: float | None


@dataclass(frozen=True, slots=True)
class PeerScore:
    """Median absolute error of a tool and ours over the rows that the tool covers."""

    tool: str
    rows: int
    error: float
    ours_unseen: float
    ours_shipped: float

    @property
    def closer(self) -> bool:
        """We are closer, by values that never saw the rows' device."""
        return self.ours_unseen < self.error


def read_peers() -> tuple[Peer, ...]:
    """The stored predictions; settings that do not model the case are left out."""
    with (data_folder() / "peers.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return tuple(
        Peer(
            tool=_tool(row["tool"], row["version"], row["setting"]),
            model=row["model"],
            device=_DEVICES[row["gpu"]],
            devices=int(row["tp"]),
            batch=int(row["batch"]),
            prompt=int(row["prompt"]),
            ttft=float(row["ttft_ms"]) if row["ttft_ms"] else None,
            tpot=float(row["tpot_ms"]) if row["tpot_ms"] else None,
        )
        for row in rows
        if not row["err"]
    )


def _tool(name: str, version: str, setting: str) -> str:
    """A tool with its setting; versions of the engine it models are one tool."""
    if name == "aiconfigurator":
        engine = "TensorRT-LLM" if "trtllm" in setting else "vLLM"
        base = "roofline" if "db=SOL" in setting else "measured kernels"
        return f"{name} {version} ({engine}, {base})"
    detail = {"genz-llm": setting, "llm-analysis": setting}.get(name, "")
    return f"{name} {version}" + (f" ({detail})" if detail else "")


def compare(scores: Scores) -> tuple[tuple[PeerScore, ...], int]:
    """Every tool's score, best first, and how many rows could be compared at all."""
    table: dict[tuple[str, str, str, int, int, int], Peer] = {
        (item.tool, item.model, item.device, item.devices, item.batch, item.prompt): item
        for item in read_peers()
    }
    tools = sorted({key[0] for key in table})
    errors: dict[str, list[tuple[float, float, float]]] = {tool: [] for tool in tools}
    used: set[int] = set()
    for index, plan in enumerate(scores.plans):
        model = _comparable(plan)
        if model is None:
            continue
        case, measured = plan.case, float(scores.measured[index])
        key = (model, case.hardware.id, case.layout.tensor, case.batch or 1)
        for tool in tools:
            ends = [table.get((tool, *key, prompt)) for prompt in _PROMPTS]
            predicted = _predicted(plan, ends)
            if predicted is not None:
                used.add(index)
                ours = (float(scores.unseen[index]), float(scores.shipped[index]))
                found = [abs(value / measured - 1) for value in (predicted, *ours)]
                errors[tool].append((found[0], found[1], found[2]))
    found = [
        PeerScore(
            tool, len(rows), *(float(np.median(column)) for column in zip(*rows, strict=True))
        )
        for tool, rows in errors.items()
        if rows
    ]
    return tuple(sorted(found, key=lambda item: item.error)), len(used)


def _comparable(plan: Plan) -> str | None:
    """The peers' name of the row's model, where row and peers speak of the same thing."""
    case = plan.case
    row = case.measurement
    plain = case.formats.weights.bits == 16 and case.formats.activations.bits == 16
    if not plain or case.layout.devices != case.layout.tensor or row.batch_kind != "static":
        return None
    if case.engine.startswith("llama.cpp") or "ubatch" in "".join(row.flags):
        return None
    return next((name for name, ids in _MODELS.items() if case.model.id in ids), None)


def _predicted(plan: Plan, ends: Sequence[Peer | None]) -> float | None:
    """The row's metric by a tool's two points, or None where they do not span it."""
    case, metric = plan.case, plan.case.measurement.metric
    low, high = ends
    if low is None or high is None:
        return None
    context = case.prompt + case.output / 2
    ttft = _between(case.prompt, _PROMPTS, (low.ttft, high.ttft))
    middles = tuple(prompt + _OUTPUT / 2 for prompt in _PROMPTS)
    tpot = _between(context, middles, (low.tpot, high.tpot))
    if metric == "ttft_ms":
        return ttft
    if metric == "tpot_ms":
        return tpot
    if metric == "e2e_latency_ms" and ttft is not None and tpot is not None:
        return ttft + (case.output - 1) * tpot
    return None


def _between(
    point: float, ends: Sequence[float], values: tuple[float | None, float | None]
) -> float | None:
    if values[0] is None or values[1] is None or not ends[0] <= point <= ends[1]:
        return None
    share = (point - ends[0]) / (ends[1] - ends[0])
    return values[0] + share * (values[1] - values[0])
