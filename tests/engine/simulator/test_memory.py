from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.catalog.hardware import get_hardware
from engine.catalog.models import get_model
from engine.simulator.layout import Layout
from engine.simulator.memory import MemoryNeeds, PagedTokens, memory_needs, peak_activations
from engine.simulator.step_cost import StepCostModel
from tests.engine.simulator.cases import ALL_MODELS, device, tiny


def _needs(
    model: str,
    hardware: str = "h100-sxm",
    devices: int = 1,
    tokens: int = 4096,
    batch: int = 1,
    weights: str = "bf16",
    kv: str = "bf16",
) -> MemoryNeeds:
    machine = get_hardware(hardware)
    cost_model = StepCostModel(
        get_model(model), machine, weights, kv, layout=Layout(tensor=devices)
    )
    paged = PagedTokens(batch, tokens)
    return memory_needs(cost_model.step, machine, paged, batch * tokens)


@given(tokens=st.integers(1, 10**6))
def test_blocks_hold_all_tokens_with_less_than_a_block_to_spare(tokens: int) -> None:
    paged = PagedTokens(3, tokens)
    assert paged.allocated - tokens == paged.unused
    assert 0 <= paged.unused < 16
    assert paged.blocks * 16 == paged.allocated


@pytest.mark.parametrize("model", [pytest.param(m, id=m.id) for m in ALL_MODELS])
def test_weights_on_one_device_are_the_models(model) -> None:
    needs = _needs(model.id)
    assert needs.weights == 2 * model.num_parameters
    assert needs.streamed == 2 * model.num_streamed_parameters


def test_total_is_the_sum_and_fits_compares_it() -> None:
    needs = _needs("llama-3.1-8b", batch=4)
    assert needs.total == needs.weights + needs.kv_cache + needs.activations.bytes
    assert needs.kv_cache == 4 * 4096 * 131_072
    assert needs.fits is (needs.total <= 80_000_000_000) is True


@pytest.mark.parametrize(
    ("model", "hardware", "devices", "weights", "fits"),
    [
        ("llama-3.1-70b", "h100-sxm", 1, "bf16", False),
        ("llama-3.1-70b", "h100-sxm", 2, "bf16", True),
        ("llama-3.1-70b", "h100-sxm", 1, "int4-g128", True),
        ("llama-3.1-405b", "h100-sxm", 8, "bf16", False),
        ("llama-3.1-405b", "h100-sxm", 8, "fp8", True),
        ("llama-3.1-8b", "rtx-4060", 1, "bf16", False),
        ("llama-3.1-8b", "rtx-4060", 1, "q4_0", True),
    ],
)
def test_known_cases_of_fitting(
    model: str, hardware: str, devices: int, weights: str, fits: bool
) -> None:
    assert _needs(model, hardware, devices, weights=weights).fits is fits


def test_key_value_heads_beyond_the_devices_are_kept_twice() -> None:
    alone, sixteen = _needs("llama-3.1-8b"), _needs("llama-3.1-8b", devices=16)
    assert sixteen.kv_cache == 2 * alone.kv_cache
    assert sixteen.kv_bytes_per_token == alone.kv_bytes_per_token
    assert _needs("llama-3.1-8b", devices=8).kv_cache == alone.kv_cache


def test_only_norms_are_kept_on_every_device() -> None:
    alone, four = _needs("llama-3.1-8b"), _needs("llama-3.1-8b", devices=4)
    norms = 2 * (32 * 2 + 1) * 4096
    assert four.weights == alone.weights + 3 * norms
    assert four.capacity == 4 * alone.capacity


def test_peak_activations_by_hand() -> None:
    step = StepCostModel(tiny(), device()).step
    # 100 tokens: residual 64 and the activation function's 2 x 160 in, 160 out, two bytes each.
    assert peak_activations(step, 100, 1).bytes == 100 * (64 + 480) * 2
    # One token: its hidden state, once for the norm, and 512 logits in fp32.
    assert peak_activations(step, 1, 1).bytes == 2 * 64 * 2 + 512 * 4
    assert "logits" in peak_activations(step, 1, 1).formula


@given(batch=st.integers(1, 64), tokens=st.integers(1, 5000), more=st.integers(1, 5000))
def test_more_tokens_never_need_less(batch: int, tokens: int, more: int) -> None:
    few = _needs("gemma-2-2b", batch=batch, tokens=tokens)
    many = _needs("gemma-2-2b", batch=batch, tokens=tokens + more)
    assert many.kv_cache >= few.kv_cache
    assert many.activations.bytes >= few.activations.bytes
    assert many.weights == few.weights
