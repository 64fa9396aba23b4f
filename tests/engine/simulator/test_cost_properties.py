"""What must hold of costs and memory, for the catalogue and for models that nobody made."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.catalog.attention import (
    CompressedAttention,
    HybridLinearAttention,
    HybridMamba2Attention,
    InterleavedAttention,
    SlidingAttention,
    SparseAttention,
)
from engine.catalog.hardware import published_hardware
from engine.catalog.kv_cache import kv_groups
from engine.catalog.models import ModelSpec
from engine.catalog.parts import MlaSpec, Mlp, ModelExtras, MoeSpec, QkNorm
from engine.catalog.precision import get_format
from engine.scheduling.plan import SequenceShape
from engine.simulator.layout import Layout
from engine.simulator.memory import PagedTokens, memory_needs
from engine.simulator.step_cost import StepCostModel
from engine.simulator.typical import TypicalCostModel
from tests.engine.simulator.cases import ALL_MODELS, batches, device

# By the bits of a number, all multiplied in bf16 so that only their size differs.
STORED = ("iq2_xxs", "q4_k", "int4-g32", "q8_0", "bf16", "fp32")
BITS = [get_format(name).bits for name in STORED]


@st.composite
def made_up_models(draw: st.DrawFn) -> ModelSpec:
    """Dense models, mixtures and latent ones, with windows or without, of any small shape."""
    kv_heads = draw(st.integers(1, 8))
    heads = kv_heads * draw(st.integers(1, 4))
    layers = draw(st.integers(1, 6))
    windows = st.integers(1, 300)
    attention = draw(
        st.none()
        | st.builds(SlidingAttention, windows)
        | st.builds(InterleavedAttention, windows, st.integers(1, 4))
    )
    latent = draw(st.booleans()) and attention is None
    experts = draw(st.none() | st.integers(2, 32))
    spec = ModelSpec.dense(
        id="made-up",
        num_layers=layers,
        hidden_size=draw(st.integers(1, 64)) * 8,
        num_attention_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=draw(st.integers(1, 16)) * 8,
        intermediate_size=draw(st.integers(1, 64)) * 8,
        vocab_size=draw(st.integers(1, 5000)),
        tied_embeddings=draw(st.booleans()),
        max_context=4096,
    )
    return replace(
        spec,
        attention=attention or spec.attention,
        mlp=draw(st.sampled_from(Mlp)),
        qkv_bias=draw(st.booleans()),
        mla=MlaSpec(draw(st.sampled_from([0, 24])), 32, 8, 16, 16) if latent else None,
        moe=None
        if experts is None
        else MoeSpec(
            experts, draw(st.integers(1, experts)), 24, 1, 40, draw(st.integers(0, 2)), ""
        ),
        extras=ModelExtras(qk_norm=draw(st.sampled_from(QkNorm))),
    )


models = st.sampled_from(ALL_MODELS) | made_up_models()
devices = st.builds(device, bandwidth=st.floats(1e9, 1e13), flops=st.floats(1e10, 1e16))
few = settings(max_examples=80, deadline=None)


def _priced(model: ModelSpec, machine, weights="bf16", kv="bf16", layout: Layout | None = None):
    return StepCostModel(model, machine, weights, kv, "bf16", layout or Layout())


@few
@given(models, devices, batches, st.floats(1, 100), st.floats(1, 100))
def test_more_bandwidth_or_flops_is_never_slower(
    model: ModelSpec, machine, batch: list[SequenceShape], wider: float, quicker: float
) -> None:
    time = _priced(model, machine).cost(batch).time
    rates = {name: rate * quicker for name, rate in machine.dense_flops.items()}
    faster = (
        replace(machine, bandwidth=machine.bandwidth * wider),
        replace(machine, dense_flops=rates),
        replace(machine, bandwidth=machine.bandwidth * wider, dense_flops=rates),
    )
    for better in faster:
        assert _priced(model, better).cost(batch).time <= time * (1 + 1e-12)


@few
@given(models, st.sampled_from(published_hardware()), batches, st.floats(1, 100), st.floats(1, 100))
def test_nor_is_it_at_the_efficiency_that_devices_reach(
    model: ModelSpec, machine, batch: list[SequenceShape], wider: float, quicker: float
) -> None:
    time = TypicalCostModel(model, machine).cost(batch).time
    rates = {name: rate * quicker for name, rate in machine.dense_flops.items()}
    for better in (
        replace(machine, bandwidth=machine.bandwidth * wider),
        replace(machine, dense_flops=rates),
    ):
        assert TypicalCostModel(model, better).cost(batch).time <= time * (1 + 1e-9)


@few
@given(models, devices, batches)
def test_more_bits_are_never_smaller_nor_faster(
    model: ModelSpec, machine, batch: list[SequenceShape]
) -> None:
    assert sorted(BITS) == BITS
    priced = [_priced(model, machine, weights=name) for name in STORED]
    costs = [item.cost(batch) for item in priced]
    paged = PagedTokens(4, 1000)
    needs = [memory_needs(item.step, machine, paged, 500) for item in priced]
    for (fewer, more), (small, large) in zip(pairwise(costs), pairwise(needs), strict=True):
        assert fewer.bytes <= more.bytes
        assert fewer.time <= more.time * (1 + 1e-12)
        assert fewer.flops == more.flops
        assert small.weights < large.weights
        assert small.streamed < large.streamed
        assert small.total < large.total


@few
@given(models, devices, batches)
def test_more_bits_in_the_cache_are_never_smaller_nor_faster(
    model: ModelSpec, machine, batch: list[SequenceShape]
) -> None:
    """Latent caches of 8 bits have a layout of their own: for them 16 bits against it alone."""
    special = isinstance(model.attention, SparseAttention | CompressedAttention)
    names = ("fp8", "bf16", "fp32") if special else STORED
    priced = [_priced(model, machine, kv=name) for name in names]
    costs = [item.cost(batch) for item in priced]
    needs = [memory_needs(item.step, machine, PagedTokens(4, 1000), 500) for item in priced]
    for (fewer, more), (small, large) in zip(pairwise(costs), pairwise(needs), strict=True):
        assert fewer.bytes <= more.bytes
        assert fewer.time <= more.time * (1 + 1e-12)
        assert small.weights == large.weights
        assert small.kv_cache <= large.kv_cache


@few
@given(models, st.integers(0, 100_000), st.integers(1, 100_000), st.sampled_from(BITS))
def test_the_cache_is_linear_but_for_windows_and_whole_entries(
    model: ModelSpec, tokens: int, more: int, bits: float
) -> None:
    """Each group of layers: a line up to its window, flat beyond, in steps of its entries."""
    grown = 0.0
    for group in kv_groups(model, bits):
        most = tokens + more if group.window is None else min(tokens + more, group.window)
        least = min(tokens, most)
        entries = most // group.tokens_per_entry - least // group.tokens_per_entry
        grown += float(group.layers * group.bytes_per_entry * entries)
    found = model.kv_cache_bytes(tokens + more, bits) - model.kv_cache_bytes(tokens, bits)
    assert found == pytest.approx(grown, abs=1e-6)
    if all(group.window is None and group.tokens_per_entry == 1 for group in kv_groups(model)):
        assert found == pytest.approx(more * float(model.kv_bytes_per_token(bits)))
    state = model.state_bytes_per_sequence
    assert model.kv_cache_bytes(0, bits) == state
    assert (state > 0) == isinstance(model.attention, HybridLinearAttention | HybridMamba2Attention)


@few
@given(models, st.sampled_from([2, 3, 4, 8]), batches)
def test_devices_that_share_every_matrix_conserve_flops(
    model: ModelSpec, tensor: int, batch: list[SequenceShape]
) -> None:
    """But for what each of them does whole: replicated operators, and key-value heads."""
    one = _priced(model, device())
    many = _priced(model, device(), layout=Layout(tensor=tensor))
    whole = {item.name for item in many.step.sequence if item.replicated}
    alone = {item.name: item.flops for item in one.step.operators(one.step.measure(batch))}
    shared = {item.name: item.flops for item in many.step.operators(many.step.measure(batch))}
    assert alone.keys() <= shared.keys()
    for name, flops in alone.items():
        if name in whole:
            assert shared[name] == pytest.approx(flops)
        elif name == "qkv projection" and model.num_kv_heads % tensor:
            assert flops <= tensor * shared[name] * (1 + 1e-12)
        else:
            assert tensor * shared[name] == pytest.approx(flops)
