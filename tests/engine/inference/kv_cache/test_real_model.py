"""What quantised and windowed caches do to a trained model, at contexts up to 4,096.

Half an hour of work, so it is collected only with FIRSTTOKEN_KV_QUALITY=1; ``pytest -s`` shows the
table.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from engine.inference.kv_cache.make import make_cache
from engine.inference.lane_settings import parse_kv
from engine.inference.model.batch import build_batch
from engine.inference.model.load import load_transformer
from engine.inference.model.transformer import Transformer
from engine.inference.quantization.calibration_text import HELD_OUT, text_of
from engine.inference.weights.checkpoint import Checkpoint
from engine.inference.weights.default import find_default_model
from tests.engine.inference.runs_for_tests import CPU, plan, sequence

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_000)]

LENGTH = 4_096
CHUNK = 512
CONTEXTS = (256, 1_024, 2_048, 4_096)
SPAN = 128
"""Positions before each context length over which divergences are averaged."""


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    source = find_default_model()
    assert not source.random_weights, source.provenance
    return source.open()


@pytest.fixture(scope="module")
def token_ids(checkpoint: Checkpoint) -> list[int]:
    ids = checkpoint.tokenizer().encode(text_of(HELD_OUT))
    assert len(ids) > LENGTH
    return ids[: LENGTH + 1]


@pytest.fixture(scope="module")
def model(checkpoint: Checkpoint) -> Transformer:
    return load_transformer(checkpoint, torch.float32, CPU)


@torch.inference_mode()
def _log_probabilities(model: Transformer, token_ids: list[int], name: str) -> Tensor:
    """Of all positions, ``[t, v]``."""
    num_blocks = LENGTH // 16
    cache = make_cache(
        model.config, parse_kv(name), num_blocks=num_blocks, dtype=model.dtype, device=CPU
    )
    rows: list[Tensor] = []
    for start in range(0, LENGTH, CHUNK):
        part = sequence(token_ids[start : start + CHUNK], start=start, table=range(num_blocks))
        batch = dataclasses.replace(build_batch(plan(part), cache), sample_rows=None)
        rows.append(model.logits(batch, cache).log_softmax(-1))
    return torch.cat(rows)


@pytest.fixture(scope="module")
def exact(model: Transformer, token_ids: list[int]) -> dict[str, Tensor]:
    """By cache without quantisation: made when first asked for."""
    return {"paged": _log_probabilities(model, token_ids, "paged")}


def _report(name: str, divergence_t: Tensor, same_top_t: Tensor, nll_t: Tensor) -> None:
    at = {
        context: round(float(divergence_t[context - SPAN : context].mean()), 5)
        for context in CONTEXTS
    }
    print(
        f"\n{name}: KL mean {divergence_t.mean():.5f}, median {divergence_t.median():.5f}, "
        f"99% {divergence_t.quantile(0.99):.4f}, max {divergence_t.max():.3f}; at contexts {at}; "
        f"same top {same_top_t.float().mean():.4f}; perplexity {nll_t.mean().exp():.3f}"
    )


def _compare(name: str, p: Tensor, q: Tensor, token_ids: list[int]) -> Tensor:
    """Divergences of all positions in nats, ``[t]``."""
    divergence_t = torch.stack([(a.exp() * (a - b)).sum() for a, b in zip(p, q, strict=True)])
    targets = torch.tensor(token_ids[1:]).unsqueeze(1)
    _report(name, divergence_t, p.argmax(-1) == q.argmax(-1), -q.gather(1, targets))
    return divergence_t


# Means, twice what was measured.
BOUNDS = {"int8": 0.0016, "int4": 0.11}


@pytest.mark.parametrize("window", ["", "-window-1024-sinks-4"])
@pytest.mark.parametrize("stored", ["int8", "int4"])
def test_quantised_divergence_is_bounded_and_jumps_nowhere(
    stored: str, window: str, model: Transformer, token_ids: list[int], exact: dict[str, Tensor]
) -> None:
    plain = f"paged{window}"
    if plain not in exact:
        exact[plain] = _log_probabilities(model, token_ids, plain)
    name = f"paged-{stored}{window}"
    q = _log_probabilities(model, token_ids, name)
    divergence_t = _compare(f"{name} to {plain}", exact[plain], q, token_ids)
    assert divergence_t.mean() < BOUNDS[stored]
    for context in CONTEXTS:
        assert divergence_t[context - SPAN : context].mean() < 2 * BOUNDS[stored]
    # Medians: single positions differ by orders of magnitude.
    for edge in (16, 256, 512, 1_024, 2_048):
        around = divergence_t[max(0, edge - 16) : edge + 16].median()
        assert around < 3 * divergence_t.median()
    by_offset = divergence_t.view(-1, 16).median(0).values  # position within its block
    assert by_offset.max() < 1.5 * divergence_t.median()


@pytest.mark.parametrize("name", ["paged-window-256", "paged-window-256-sinks-4"])
def test_what_a_window_alone_does(
    name: str, model: Transformer, token_ids: list[int], exact: dict[str, Tensor]
) -> None:
    q = _log_probabilities(model, token_ids, name)
    divergence_t = _compare(f"{name} to paged", exact["paged"], q, token_ids)
    assert divergence_t[:256].max() < 1e-4


def test_what_bfloat16_does(
    checkpoint: Checkpoint, token_ids: list[int], exact: dict[str, Tensor]
) -> None:
    model = load_transformer(checkpoint, torch.bfloat16, CPU)
    q = _log_probabilities(model, token_ids, "paged")
    divergence_t = _compare("paged, all in bfloat16, to paged", exact["paged"], q, token_ids)
    assert divergence_t.mean() < 0.01
