"""Three and more published numbers for each family of architectures, each with where it stands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.catalog.kv_cache import entry_bytes
from engine.catalog.models import ModelSpec, get_model
from engine.catalog.precision import get_format

FIGURES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("published_figures.json").read_text(encoding="utf-8")
)["figures"]
BILLION = 10**9


def _non_embedding(spec: ModelSpec) -> int:
    count = spec.parameters
    return count.total - count.embedding - count.positions - count.lm_head


def _cache(spec: ModelSpec, figure: dict[str, Any]) -> float:
    bits = get_format(figure.get("format", "fp16")).bits
    return spec.kv_cache_bytes(figure["tokens"], bits)


def _cache_in_gqa_groups(spec: ModelSpec, figure: dict[str, Any]) -> float:
    """How many groups of keys and values, of the heads' plain size, the latents equal."""
    assert spec.mla is not None
    return spec.mla.cached_elements / (2 * spec.mla.qk_nope_head_dim)


def _gguf_bits(spec: ModelSpec, figure: dict[str, Any]) -> float:
    """Matrices in the type, norms in fp32 as llama.cpp leaves them."""
    norms = (2 * spec.num_layers + 1) * spec.hidden_size
    matrices = spec.num_parameters - norms
    return (matrices * get_format(figure["format"]).bits + norms * 32) / spec.num_parameters


OURS: dict[str, Callable[[ModelSpec, dict[str, Any]], float]] = {
    "total": lambda spec, _: spec.num_parameters / BILLION,
    "active": lambda spec, _: spec.parameters.active / BILLION,
    "active_with_embedding": lambda spec, _: (
        (spec.parameters.active + spec.parameters.embedding) / BILLION
    ),
    "active_without_head": lambda spec, _: (
        (spec.parameters.active - spec.parameters.lm_head) / BILLION
    ),
    "non_embedding": lambda spec, _: _non_embedding(spec) / BILLION,
    "kv_gib": lambda spec, figure: _cache(spec, figure) / 2**30,
    "kv_gb": lambda spec, figure: _cache(spec, figure) / BILLION,
    "kv_mib": lambda spec, figure: _cache(spec, figure) / 2**20,
    "kv_kib_per_token": lambda spec, _: spec.kv_bytes_per_token(16) / 1024,
    "fp8_entry_bytes": lambda spec, _: float(entry_bytes(spec, 8).main),
    "cache_in_gqa_groups": _cache_in_gqa_groups,
    "window_saving": lambda spec, figure: (
        spec.kv_bytes_per_token(16) * figure["tokens"] / _cache(spec, figure)
    ),
    "gguf_bits": _gguf_bits,
}


@pytest.mark.parametrize(
    "figure", FIGURES, ids=[f"{item['family']}-{item['model']}-{item['of']}" for item in FIGURES]
)
def test_our_number_rounds_to_the_published_one(figure: dict[str, Any]) -> None:
    ours = OURS[figure["of"]](get_model(figure["model"]), figure)
    # Half of the last digit published, and the dust of binary fractions.
    assert ours == pytest.approx(
        figure["value"], rel=1e-12, abs=0.5 * 10 ** -figure["digits"] + 1e-9
    )


def test_every_family_has_three_figures_with_a_source() -> None:
    families = Counter(item["family"] for item in FIGURES)
    assert families.keys() == {
        "dense-gqa", "dense-mha", "moe", "mla", "dsa", "csa-hca", "local-global", "hybrid", "gguf",
    }  # fmt: skip
    assert min(families.values()) >= 3
    assert all(len(item["source"]) > 20 for item in FIGURES)
