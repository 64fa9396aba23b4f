"""FLOPs and cache at a context, against the closed forms of the architectures."""

from __future__ import annotations

import pytest

from engine.catalog.models import ModelSpec, get_model
from engine.errors import InvalidRequest, UnknownName
from engine.simulator.context_cost import (
    MOST_CONTEXT,
    FlopWeighting,
    context_cost,
    flops_crossover,
)
from tests.engine.simulator.cases import ALL_MODELS

RAW, FP8 = FlopWeighting.RAW, FlopWeighting.FP8_EQUIVALENT
V3, V3_2, PRO, FLASH = (
    get_model(f"deepseek-{name}") for name in ("v3", "v3.2", "v4-pro", "v4-flash")
)
MILLION = 1_048_576


# GFLOP a token (raw, FP8-equivalent) and GB of cache, worked out apart; to the digits given.
TABLE = [
    (V3, 4_096, 143, 143, None),
    (V3, 32_768, 630, 630, None),
    (V3, 131_072, 2300, 2300, None),
    (V3, MILLION, 17_889, 17_889, None),
    (V3_2, 4_096, 114, 114, 0.197),
    (V3_2, 32_768, 143, 143, 1.575),
    (V3_2, 131_072, 241, 241, 6.300),
    (V3_2, MILLION, 1158, 1158, 50.40),
    (PRO, 4_096, 109, 119, 0.0252),
    (PRO, 32_768, 114, 124, 0.169),
    (PRO, 131_072, 132, 143, 0.664),
    (PRO, MILLION, 303, 315, 5.280),
    (FLASH, 4_096, 29.1, 31.1, 0.0176),
    (FLASH, 32_768, 32.2, 33.5, 0.118),
    (FLASH, 131_072, 42.6, 41.8, 0.464),
    (FLASH, MILLION, 140, 119, 3.688),
]


@pytest.mark.parametrize(("model", "context", "raw", "weighted", "cache"), TABLE)
def test_a_table_of_points(
    model: ModelSpec, context: int, raw: float, weighted: float, cache: float | None
) -> None:
    assert context_cost(model, context).flops / 1e9 == pytest.approx(raw, rel=0.005)
    found = context_cost(model, context, weighting=FP8)
    assert found.flops / 1e9 == pytest.approx(weighted, rel=0.005)
    if cache is not None:
        assert found.kv_bytes / 1e9 == pytest.approx(cache, rel=0.005)


@pytest.mark.parametrize("context", [1, 100, 2048, 2049, 100_000, MILLION])
def test_sparse_attention_by_hand(context: int) -> None:
    found = context_cost(V3_2, context)
    assert found.attention == 61 * min(2048, context) * 128 * 2 * (576 + 512)
    assert found.indexer == 61 * 64 * 128 * 2 * context


@pytest.mark.parametrize("context", [1, 127, 4096, 5003, 100_000, MILLION])
def test_compressed_attention_by_hand(context: int) -> None:
    pair, window = 128 * 2 * 1024, min(context, 128)
    csa = 30 * (min(1024, context // 4) + window) * pair
    hca = 31 * (context // 128 + window) * pair
    found = context_cost(PRO, context)
    assert found.attention == csa + hca
    assert found.indexer == 30 * 64 * 128 * 2 * (context // 4)
    weighted = context_cost(PRO, context, weighting=FP8)
    assert weighted.attention == 2 * found.attention
    assert weighted.indexer == found.indexer / 2
    assert weighted.products == found.products


@pytest.mark.parametrize("model", [pytest.param(spec, id=spec.id) for spec in ALL_MODELS])
def test_products_are_two_flops_a_parameter_that_a_token_uses(model: ModelSpec) -> None:
    """Norms, biases and decay terms are parameters without products: they are few."""
    found = context_cost(model, 1000, kv="bf16")
    assert found.products <= 2 * model.num_streamed_parameters
    assert found.products == pytest.approx(2 * model.num_streamed_parameters, rel=0.002)
    assert found.kv_bytes == model.kv_cache_bytes(1000)
    assert context_cost(model, 5000).flops >= found.flops


def test_the_crossover_lies_near_ten_thousand_tokens() -> None:
    crossing = flops_crossover(PRO, V3_2)
    assert crossing is not None
    assert 9_500 < crossing < 10_500
    for weighting in (FP8, RAW):
        crossing = flops_crossover(PRO, V3_2, weighting)
        assert crossing is not None
        for context, sign in ((crossing // 2, -1), (crossing - 64, -1), (crossing + 64, 1)):
            older, newer = (context_cost(m, context, weighting=weighting) for m in (V3_2, PRO))
            assert (older.flops - newer.flops) * sign > 0
    assert flops_crossover(V3, V3_2) is None
    assert flops_crossover(FLASH, V3_2) == 1


def test_each_weighting_says_what_it_assumes() -> None:
    assert "once" in RAW.assumption
    assert "BF16) counts twice" in FP8.assumption
    assert "is not known" in FP8.assumption


@pytest.mark.parametrize("context", [0, -1, MOST_CONTEXT + 1])
def test_contexts_are_bounded(context: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        context_cost(V3, context)
    assert caught.value.field == "context"


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(UnknownName):
        context_cost(V3, 10, kv="int3")
