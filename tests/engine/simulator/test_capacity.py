"""The largest batch and the longest context: n fits and n + 1 does not, whatever the layout."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.catalog.models import ModelSpec
from engine.errors import EngineError
from engine.simulator.capacity import MOST_REQUESTS, capacity, load_of
from engine.simulator.deployment import Deployment
from engine.simulator.features import Features, Speculation
from engine.simulator.layout import Layout
from engine.simulator.memory import PagedTokens, memory_needs
from engine.simulator.placement import largest
from engine.simulator.run import Batch
from tests.engine.simulator.cases import ALL_MODELS, device

layouts = st.builds(
    Layout,
    tensor=st.sampled_from([1, 2, 3, 8, 16]),
    data=st.sampled_from([1, 2, 8]),
    experts=st.booleans(),
    stages=st.sampled_from([1, 2, 5]),
)


@given(limit=st.integers(0, 10**9), most=st.integers(1, 10**9))
def test_the_largest_number_is_found(limit: int, most: int) -> None:
    assert largest(lambda number: number <= limit, most) == min(limit, most)


@settings(max_examples=150, deadline=None)
@given(
    model=st.sampled_from(ALL_MODELS),
    layout=layouts,
    memory=st.integers(8, 300),
    batch=st.builds(Batch, st.integers(1, 40), st.integers(1, 20_000), st.integers(1, 500)),
    chunk=st.none() | st.sampled_from([512, 4096]),
    kv=st.sampled_from(["bf16", "fp8", "q8_0"]),
)
def test_one_more_does_not_fit(
    model: ModelSpec, layout: Layout, memory: int, batch: Batch, chunk: int | None, kv: str
) -> None:
    if model.moe is None:
        layout = replace(layout, experts=False)
    machine = device(memory=memory * 10**9)
    deployment = Deployment(model, machine, layout, weights="fp8", kv=kv)
    features = Features(chunk_tokens=chunk)
    found = capacity(deployment, batch, features)

    def holds(tried: Batch) -> bool:
        return found.placement.fits(load_of(tried, features, layout.data))

    assert found.fits is holds(batch)
    count = found.largest_batch
    assert count % layout.data == 0
    assert not count or holds(replace(batch, requests=count))
    assert count + layout.data > MOST_REQUESTS or not holds(replace(batch, requests=count + 1))
    context = found.longest_context
    assume(context is not None)
    assert context is not None
    prompt = context - batch.output_tokens + 1
    assert not context or holds(replace(batch, prompt_tokens=prompt))
    assert not holds(replace(batch, prompt_tokens=max(prompt, 0) + 1))


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(ALL_MODELS),
    tensor=st.sampled_from([1, 2, 8, 16]),
    sequences=st.integers(1, 9),
    tokens=st.integers(1, 40_000),
)
def test_a_group_of_equal_devices_holds_what_its_memory_report_says(
    model: ModelSpec, tensor: int, sequences: int, tokens: int
) -> None:
    """``memory_needs`` counts the devices together; without stages all hold the same."""
    batch = Batch(sequences, tokens, 1)
    found = capacity(Deployment(model, device(), Layout(tensor=tensor)), batch, Features())
    step = found.placement.step
    needs = memory_needs(step, device(), PagedTokens(sequences, tokens), sequences * tokens)
    assert tensor * float(found.placement.needed(found.load)) == pytest.approx(needs.total)


def test_stages_hold_whole_layers_and_the_larger_end() -> None:
    model = "llama-3.1-70b"
    one = Deployment(model, "h100-sxm").placement()
    four = Deployment(model, "h100-sxm", Layout(stages=4)).placement()
    head = 2 * 128_256 * 8192
    assert float(one.weights) == 2 * 70_553_706_496
    # 20 of 80 layers; the last stage has the head and its norm, the first the embedding.
    assert float(four.weights) == (2 * 70_553_706_496 - 2 * head - 2 * 8192) / 4 + head + 2 * 8192
    assert four.kv_bytes(1024) == one.kv_bytes(1024) / 4
    # 80 layers on 3 stages: the fullest has 27.
    three = Deployment(model, "h100-sxm", Layout(stages=3)).placement()
    assert three.kv_bytes(1024) == one.kv_bytes(1024) * 27 / 80


def test_a_longer_context_needs_fewer_bits_or_more_devices() -> None:
    batch = Batch(4, 1000, 100)

    def longest(kv: str = "bf16", devices: int = 1, chunk: int | None = 2048) -> int:
        deployment = Deployment("llama-3.1-8b", "h100-sxm", Layout(tensor=devices), kv=kv)
        found = capacity(deployment, batch, Features(chunk_tokens=chunk)).longest_context
        assert found is not None
        return found

    plain = longest()
    # (72 GB - weights - activations) / 4 requests / 131,072 B, by hand to the block.
    left = 72 * 10**9 - 2 * 8_030_261_248 - (2048 + 4) * (4096 + 43_008) * 2
    assert plain == left // (4 * 16 * 131_072) * 16
    assert 1.99 < longest(kv="fp8") / plain < 2.01
    assert longest(devices=2) > 2.2 * plain
    # Whole prompts need room for the activations of all of their tokens.
    assert longest(chunk=None) < 0.6 * plain


def test_nothing_fits_where_the_weights_do_not() -> None:
    found = capacity(Deployment("llama-3.1-70b", "h100-sxm"), Batch(1, 1, 1), Features())
    assert (found.fits, found.largest_batch, found.longest_context) == (False, 0, 0)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(EngineError):
        capacity(Deployment("gpt-5", "h100-sxm"), Batch(1, 1, 1), Features())


def test_a_draft_model_takes_memory_of_its_own() -> None:
    """Weights of 810 GB that guess for a model of 16 GB do not fit beside it."""
    batch = Batch(1, 512, 128)
    large, small = (Deployment(name, "h100-sxm") for name in ("llama-3.1-8b", "llama-3.2-1b"))
    plain = capacity(large, batch, Features())
    guessing = Features(speculation=Speculation(draft_model="llama-3.2-1b"))
    found = capacity(large, batch, guessing)
    alone = small.placement()
    assert found.placement.weights == plain.placement.weights + alone.weights
    tokens = found.load.tokens
    assert found.placement.kv_bytes(tokens) == plain.placement.kv_bytes(tokens) + alone.kv_bytes(
        tokens
    )
    assert 0 < found.largest_batch < plain.largest_batch
    huge = Features(speculation=Speculation(draft_model="llama-3.1-405b"))
    assert not capacity(large, batch, huge).fits
    assert capacity(large, batch, huge).largest_batch == 0
