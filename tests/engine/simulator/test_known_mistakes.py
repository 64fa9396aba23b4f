"""Mistakes that calculators of this kind made: each named, with the wrong number kept apart.

The kinds O30 to O34 are bugs reported to other programs. In every test the wrong formula gives
another number, so that making the mistake fails it.
"""

from __future__ import annotations

from typing import Any

import pytest

from engine.catalog.custom_hardware import read_custom_hardware
from engine.catalog.hardware import get_hardware, published_hardware
from engine.catalog.models import ModelSpec, get_model
from engine.catalog.parts import Mlp
from engine.catalog.precision import get_format
from engine.catalog.units import GIB, bytes_label
from engine.errors import InvalidRequest
from engine.scheduling.plan import SequenceShape
from engine.simulator.layout import Layout
from engine.simulator.memory import PagedTokens, memory_needs
from engine.simulator.operators import Operator
from engine.simulator.scenario import Scenario, simulate
from engine.simulator.step_cost import StepCostModel
from tests.engine.simulator.cases import TINY, device, tiny

PROMPT = SequenceShape(0, 100, samples=True)


def _cost_model(
    model: str | ModelSpec, layout: Layout | None = None, weights: str = "bf16"
) -> StepCostModel:
    spec = get_model(model) if isinstance(model, str) else model
    return StepCostModel(spec, device(), weights, layout=layout or Layout())


def _operators(model: StepCostModel, *shapes: SequenceShape) -> dict[str, Operator]:
    return {item.name: item for item in model.step.operators(model.step.measure(shapes))}


def _decode(context: int) -> SequenceShape:
    return SequenceShape(context, 1, samples=True)


# ── O30 to O34 ───────────────────────────────────────────────────────────────────────────────────


def test_o30_the_cache_is_counted_by_key_value_heads_not_query_heads() -> None:
    spec = get_model("llama-3.1-8b")
    assert (spec.num_attention_heads, spec.num_kv_heads, spec.head_dim) == (32, 8, 128)
    assert spec.kv_bytes_per_token(16) == 131_072
    by_query_heads = 2 * 32 * 32 * 128 * 2
    assert by_query_heads == 4 * spec.kv_bytes_per_token(16)


def test_o31_experts_fit_by_their_total_and_compute_by_the_active_ones() -> None:
    """GLM-4.5-Air: 107 billion in memory, 13 billion in a token's arithmetic."""
    spec = get_model("glm-4.5-air")
    model = _cost_model(spec, weights="mixed-4.5")
    needs = memory_needs(model.step, device(), PagedTokens(1, 1), 1)
    total = spec.num_parameters * 4.5 / 8
    assert needs.weights == pytest.approx(total, rel=1e-6)
    assert spec.num_streamed_parameters * 4.5 / 8 < 10e9 < total
    flops = model.cost([_decode(0)]).flops
    assert flops == pytest.approx(2 * spec.num_streamed_parameters, rel=0.01)
    assert flops < 0.2 * 2 * spec.num_parameters


# Dense 16-bit rates, and what the same data sheets print with 2:4 sparsity.
DENSE_AND_SPARSE = [
    ("h100-sxm", "bf16", 989, 1979),
    ("a100-80-sxm", "bf16", 312, 624),
    ("l40s", "fp8", 733, 1466),
    ("rtx-4090", "bf16", 165, 330),
]


@pytest.mark.parametrize(("hardware", "number_format", "dense", "sparse"), DENSE_AND_SPARSE)
def test_o32_rates_are_dense_and_a_sparse_figure_is_questioned(
    hardware: str, number_format: str, dense: float, sparse: float
) -> None:
    rate = get_hardware(hardware).dense_flops[number_format]
    assert rate == pytest.approx(dense * 1e12, rel=0.01)
    assert sparse == pytest.approx(2 * dense, rel=0.002)
    given: dict[str, Any] = {
        "memory_gb": 80,
        "bandwidth_gb_s": 2000,
        "dense_tflops": {"bf16": 1, number_format: 2 * rate / 1e12},
    }
    with pytest.raises(InvalidRequest, match="sparsity"):
        read_custom_hardware(given)


def test_o32_one_convention_for_all_devices() -> None:
    """8-bit units have twice the rate of 16-bit ones: four times would be a sparse figure.

    GeForce cards are compared with their rate of fp16 accumulation, which is not halved.
    """
    compared = 0
    for spec in published_hardware():
        wide = spec.fp16_accumulate_flops or spec.dense_flops.get("bf16")
        for narrow in ("fp8", "int8"):
            if spec.vendor == "NVIDIA" and wide and narrow in spec.dense_flops:
                assert spec.dense_flops[narrow] <= 2.1 * wide, spec.id
                compared += 1
    assert compared > 20


def test_o33_gb_and_gib_are_both_said() -> None:
    assert bytes_label(48e9) == "48.0 GB / 44.7 GiB"
    assert bytes_label(48 * GIB) == "51.5 GB / 48.0 GiB"


def test_o34_a_tied_head_is_counted_once_and_still_multiplied() -> None:
    tied, untied = tiny(tied=True), tiny(tied=False)
    table = tied.vocab_size * tied.hidden_size
    assert untied.num_parameters - tied.num_parameters == table
    costs = [_cost_model(spec).cost([PROMPT]) for spec in (tied, untied)]
    assert costs[0].flops == costs[1].flops
    assert costs[0].bytes == costs[1].bytes
    head = _operators(_cost_model(tied), PROMPT)["lm head"]
    assert head.flops == 2 * table


# ── mistakes of simulators ───────────────────────────────────────────────────────────────────────


def test_bandwidth_in_gb_per_second_is_not_read_as_gib() -> None:
    spec = get_hardware("a100-80-sxm")
    assert spec.bandwidth == 2_039e9
    model = StepCostModel(get_model("llama-2-7b"), spec)
    time = model.cost([_decode(1)]).time
    streamed = get_model("llama-2-7b").num_streamed_parameters * 2
    assert time == pytest.approx(streamed / 2_039e9, rel=0.02)
    assert time > 1.05 * streamed / (2_039 * GIB)


def test_the_head_multiplies_sampled_positions_only() -> None:
    model = _cost_model("llama-3.1-8b")
    spec = model.model
    head = _operators(model, PROMPT)["lm head"]
    assert head.flops == 2 * spec.hidden_size * spec.vocab_size
    assert 100 * head.flops > 0.07 * model.cost([PROMPT]).flops  # what charging all would add


def test_causal_attention_is_halved() -> None:
    model = _cost_model("llama-2-7b")
    spec = model.model
    core = _operators(model, PROMPT)["attention"]
    pairs = 100 * 101 // 2
    assert core.flops == 4 * spec.query_size * pairs * spec.num_layers
    assert core.flops < 0.51 * 4 * spec.query_size * 100 * 100 * spec.num_layers


def test_gated_blocks_have_three_matrices() -> None:
    model = _cost_model("llama-2-7b")
    spec = model.model
    assert spec.mlp is Mlp.SWIGLU
    operators = _operators(model, PROMPT)
    each = 2 * 100 * spec.hidden_size * spec.intermediate_size * spec.num_layers
    assert operators["gate and up projection"].flops == 2 * each
    assert operators["down projection"].flops == each
    plain = get_model("gpt2")
    assert plain.mlp.matrices == 2
    assert "up projection" in _operators(_cost_model(plain), PROMPT)


def test_the_head_size_is_its_own_number() -> None:
    spec = get_model("qwen3-0.6b")
    quotient = spec.hidden_size // spec.num_attention_heads
    assert (spec.head_dim, quotient) == (128, 64)
    assert spec.kv_bytes_per_token(16) == 2 * 28 * 8 * 128 * 2
    operator = _operators(_cost_model(spec), PROMPT)["output projection"]
    assert operator.flops == 2 * 100 * (16 * 128) * spec.hidden_size * spec.num_layers


def test_a_latent_cache_is_on_every_device_of_a_group() -> None:
    spec = get_model("deepseek-v3")
    paged = PagedTokens(1, 1600)
    one, eight = (
        memory_needs(_cost_model(spec, Layout(tensor=n)).step, device(), paged, 1) for n in (1, 8)
    )
    assert one.kv_cache == 1600 * 70_272
    assert eight.kv_cache == 8 * one.kv_cache  # of all devices: 8 whole copies, not one divided


def test_a_windowed_layer_reads_its_window() -> None:
    spec = get_model("gemma-3-27b")
    context = 131_072
    reads = sum(
        item.kv_bytes for item in _operators(_cost_model(spec), _decode(context - 1)).values()
    )
    layer = 2 * spec.kv_size * 2
    windowed = 52 * layer * 1024 + 10 * layer * context
    assert reads == pytest.approx(windowed, rel=0.01)
    assert reads < 0.2 * 62 * layer * context


def test_experts_are_divided_over_the_devices_that_share_them_out() -> None:
    spec = get_model("mixtral-8x7b")
    batch = [_decode(10)] * 64  # all experts of every layer are read
    alone = _operators(_cost_model(spec), *batch)["expert gate and up projection"]
    shared = _operators(_cost_model(spec, Layout(data=8, experts=True)), *batch)
    assert shared["expert gate and up projection"].weight_bytes == pytest.approx(
        alone.weight_bytes / 8, rel=0.01
    )


def test_decoding_is_the_mean_over_all_tokens_of_a_growing_context() -> None:
    """Not that of the first and last token alone: windows fill on the way."""
    report = simulate(
        Scenario("mistral-7b-v0.1", "h100-sxm", prompt_tokens=3000, output_tokens=4001)
    )
    model = report.cost_model
    times = [model.cost([_decode(3000 + step)]).time for step in range(4000)]
    mean = sum(times) / len(times)
    assert report.itl == pytest.approx(mean, rel=1e-9)
    assert abs((times[0] + times[-1]) / 2 - mean) > 1e-3 * (times[-1] - times[0])


@pytest.mark.parametrize(
    ("name", "bits", "wrong"),
    [("int4-g128", 4.15625, 4), ("q4_0", 4.5, 4), ("q8_0", 8.5, 8), ("mxfp4", 4.25, 4)],
)
def test_bits_of_a_weight_hold_its_scales(name: str, bits: float, wrong: int) -> None:
    assert get_format(name).bits == bits != wrong


def test_half_a_byte_is_not_cut_to_none() -> None:
    assert get_format("int4").bytes_for(1) == 0.5
    spec = ModelSpec.dense(tied_embeddings=True, **TINY)
    assert memory_needs(
        _cost_model(spec, weights="int4").step, device(), PagedTokens(1, 1), 1
    ).weights == pytest.approx(spec.num_parameters / 2)
