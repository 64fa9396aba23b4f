"""What a prediction takes for granted, in words: printed with every result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.catalog.device import ComputeRate
from engine.catalog.kv_cache import kv_groups
from engine.catalog.units import bytes_label, count, si_label
from engine.simulator.layout import Route
from engine.simulator.links import link_of
from engine.simulator.model_assumptions import model_assumptions
from engine.simulator.run_assumptions import run_assumptions
from engine.simulator.step_cost import StepCostModel

if TYPE_CHECKING:
    from engine.simulator.report import SimulationReport

_ROOFLINE = (
    "Ideal roofline: an operator takes the longer of its arithmetic at the dense peak rate and its "
    "memory traffic at the full bandwidth; operators run one after the other. Launches, "
    "scheduling, sampling and the host take no time."
)
_TRAFFIC = (
    "Each operator reads its inputs from memory and writes its outputs there; the attention core "
    "keeps its scores on the chip and reads each cached position once a step."
)
_FLOPS = "Norms, rotations, activation functions and softmax move bytes and are given no FLOPs."


def assumptions(report: SimulationReport) -> list[str]:
    """Every assumption behind the report, the general ones first."""
    return [
        _ROOFLINE,
        _TRAFFIC,
        _FLOPS,
        *_workload(report),
        *_formats(report.cost_model),
        *model_assumptions(report.cost_model.model),
        *_memory(report),
        *_devices(report.cost_model),
        *_limits(report),
    ]


def _workload(report: SimulationReport) -> list[str]:
    scenario = report.scenario
    if not scenario.is_plain:
        return run_assumptions(report.ideal)
    shown = (
        f"The decode section shows decode step {scenario.shown_decode_step} of "
        f"{scenario.decode_steps}, the middle one"
        if scenario.decode_steps
        else "One output token needs no decode step: the decode section shows the one that would "
        "follow"
    )
    return [
        f"{count(scenario.batch, 'request')}, all there from the start; the scheduler runs all "
        "prompts in one step (no chunks) and then one token of each request a step, to the end.",
        f"{shown}.",
    ]


def _formats(model: StepCostModel) -> list[str]:
    formats = model.formats
    stored = formats.stored_activations
    lines = [
        f"All weights, embeddings and norms too, take {formats.weights.bits:g} bits "
        f"({formats.weights.name}, scales included); the KV cache takes {formats.kv.bits:g} bits a "
        f"number ({formats.kv.name}); activations are kept in {stored.name}.",
        "The rate of arithmetic follows the activations: products with weights in "
        f"{_rate(formats.matmul)}, the attention core in {_rate(formats.attention)}.",
    ]
    if formats.matmul.fell_back:
        lines.append(
            f"{model.hardware.name} has no {formats.matmul.requested} rate: it multiplies in "
            f"{formats.matmul.used} instead, and only the bytes of the smaller format are saved."
            if formats.activations.bits < 16
            else f"{model.hardware.name} has no {formats.matmul.requested} rate: it multiplies in "
            f"{formats.matmul.used} instead."
        )
    return lines


def _rate(rate: ComputeRate) -> str:
    return f"{rate.used} at {si_label(rate.flops, 'FLOP/s')}"


def _memory(report: SimulationReport) -> list[str]:
    paged = report.memory.paged
    windowed = any(group.window is not None for group in kv_groups(report.cost_model.model))
    lines = [
        f"The KV cache is paged in blocks of {paged.block_size}; the last sampled token is never "
        "fed back, so its K and V are not stored.",
        "Activations at their peak: the residual stream and the largest operator's inputs and "
        "outputs for all tokens of the prompt step, or the fp32 logits at its end.",
    ]
    if windowed:
        lines.append("Layers with a window keep the K and V of the last window only.")
    return lines


def _devices(model: StepCostModel) -> list[str]:
    devices = model.group.devices
    if devices == 1:
        return []
    lines = [
        f"Ideal tensor parallelism over {devices} devices: heads and matrices are divided evenly, "
        "norms are done on each. FLOPs and bytes of a step are of all devices together, its "
        "operators of one."
    ]
    lines += _copies(model)
    link = link_of(Route.GROUP, model.layout, model.hardware, model.network)
    if link is None:
        lines.append(
            "No link is known for this device: adding up the devices' results takes no time here, "
            "which is too optimistic."
        )
    else:
        lines.append(
            f"Two ring all-reduces a layer and one gather of the logits over {link.type} at "
            f"{si_label(link.bandwidth, 'B/s')} in one direction, the same between all devices, "
            "without latency and without overlap."
        )
    return lines


def _copies(model: StepCostModel) -> list[str]:
    """What is done or kept on more than one device."""
    spec, devices = model.model, model.group.devices
    lines: list[str] = []
    names = [item.name for item in model.step.sequence if item.replicated]
    if names:
        lines.append(f"Done whole on each device: {', '.join(names)}.")
    if spec.mla is not None:
        lines.append("Each device keeps the latents of all tokens: they serve all heads.")
    elif devices * model.group.kv_heads(spec.num_kv_heads) > spec.num_kv_heads:
        lines.append(
            f"{spec.num_kv_heads} key-value heads do not divide over {devices} devices: some are "
            "kept more than once."
        )
    return lines


def _limits(report: SimulationReport) -> list[str]:
    scenario, model = report.scenario, report.cost_model.model
    hardware = report.cost_model.hardware
    lines: list[str] = []
    if scenario.cached_tokens > model.max_context:
        lines.append(
            f"{scenario.cached_tokens:,} positions are more than the model's context of "
            f"{model.max_context:,}."
        )
    if not report.capacity.fits:
        placement = report.capacity.placement
        needed = bytes_label(float(placement.needed(report.capacity.load)))
        lines.append(
            f"A device may fill {bytes_label(float(placement.usable))} of its memory and needs "
            f"{needed}: the times are those of devices with more memory."
        )
    if hardware.kind == "measured":
        lines.append("Rates and bandwidth are what was measured on this machine, not peaks.")
    elif hardware.unverified:
        lines.append(
            f"Not confirmed by a vendor's source: {', '.join(hardware.unverified)} "
            f"({hardware.name})."
        )
    return lines
