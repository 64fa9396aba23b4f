"""A lane whose steps take exactly what a formula says: what a fit to them has to find again."""

from __future__ import annotations

from collections.abc import Mapping

from engine.catalog.lane_calibration import LaneCalibration, MeasuredStep, Overheads
from engine.catalog.this_machine import Calibration, calibrated_hardware
from engine.simulator.machine.curves import shapes_of
from engine.simulator.machine.ideal import LaneFormats, LaneRoofline
from engine.simulator.machine.typical import dense_spec
from engine.simulator.step_price import Terms
from engine.simulator.step_terms import StepTerms

ARCHITECTURE: Mapping[str, object] = {
    "id": "made-up",
    "num_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_kv_heads": 3,
    "head_dim": 64,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "tied_embeddings": True,
    "max_context": 8192,
}
NATIVE, TORCH = Overheads(3e-5, 4e-6), Overheads(2e-4, 5e-4)
FLOP_S, BYTE_S = 1e-11, 5e-11
HEAD_S, SAMPLE_S = 6e-11, 2e-4
POINTS = (
    *((batch, 32, 1) for batch in (1, 2, 4, 8, 16, 48)),
    (1, 3_000, 1),
    (8, 1_500, 1),
    (1, 0, 96),
    (1, 1_200, 96),
)
PROMPTS = ((1, 0, 128), (1, 0, 400), (1, 1_600, 400), (1, 0, 1_024), (1, 400, 1_024))
CHECKS = ((3, 500, 1), (1, 0, 320))
FORMATS = LaneFormats("mixed-8.5", "bf16", "bf16", native_rows=96)
BARE = Calibration(
    bandwidth_bytes_per_s=30e9,
    flops_per_s={"fp32": 1.5e11, "bf16": 4e11, "int8": 8e11},
    memory_bytes=16 * 10**9,
    device_name="made up",
    device_kind="cpu",
    torch_version="0",
    threads=2,
    date="2026-11-30T09:00:00+00:00",
)


def product_seconds(rows: float) -> float:
    """For a weight: memory up to 8 rows, then arithmetic."""
    return 6e-11 if rows <= 8 else 6e-11 * rows / 8


def terms_of(step: MeasuredStep) -> Terms[float]:
    """What such a step asks for."""
    roofline = LaneRoofline(dense_spec(ARCHITECTURE), calibrated_hardware(BARE), FORMATS)
    return StepTerms(roofline.step).of(roofline.step.measure(shapes_of(step)))


def step_seconds(step: MeasuredStep) -> dict[str, float]:
    """Its seconds by part."""
    terms = terms_of(step)
    launch = NATIVE if step.rows <= FORMATS.native_rows else TORCH
    weights = terms.gemm_flops / (2 * terms.gemm_rows)
    head_weights = terms.head_flops / (2 * terms.head_rows)
    return {
        "embed": launch.step_s,
        "layers": terms.layers * launch.layer_s
        + weights * product_seconds(step.rows)
        + terms.core_flops * FLOP_S
        + terms.core_bytes * BYTE_S,
        "logits": head_weights * HEAD_S,
        "sample": SAMPLE_S,
    }


def measured(
    sequences: int, prefix: int, new: int, factors: tuple[float, ...] = (1.0,), checks: bool = False
) -> MeasuredStep:
    """A step whose runs took these multiples of what the formula says."""
    bare = MeasuredStep(sequences, prefix, new, (1.0,), {}, checks)
    stages = step_seconds(bare)
    seconds = tuple(sum(stages.values()) * factor for factor in factors)
    return MeasuredStep(sequences, prefix, new, seconds, stages, checks)


def made_up_lane(check_factors: tuple[float, ...] = (1.0,)) -> LaneCalibration:
    """All steps of the formula, and checks that took these multiples of it."""
    return LaneCalibration(
        lane="int8-g32-rtn",
        model=ARCHITECTURE,
        dtype="bfloat16",
        weight_format=FORMATS.weights,
        kv_format=FORMATS.kv,
        native_rows=FORMATS.native_rows,
        native_library="step-0.so",
        launch={"native": NATIVE, "torch": TORCH},
        between_steps={1: 4e-4, 9: 12e-4},
        steps=(
            *(measured(*point) for point in (*POINTS, *PROMPTS)),
            *(measured(*point, check_factors, checks=True) for point in CHECKS),
        ),
        date="2026-11-30T09:00:00+00:00",
    )
