"""What quantised and windowed caches do to a trained model, at contexts up to 4,096.

Half an hour of work, so it is collected only with FIRSTTOKEN_KV_QUALITY=1; ``pytest -s`` shows the
table.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.inference.lane_settings import parse_kv
from engine.inference.model.load import load_transformer
from engine.inference.model.transformer import Transformer
from engine.inference.quantization.calibration_text import HELD_OUT, text_of
from engine.inference.quantization.lane import logits_through_cache
from engine.inference.weights.checkpoint import Checkpoint
from engine.inference.weights.default import find_default_model
from tests.benchmarks.kv_contexts import CONTEXTS, SPAN, measure_contexts
from tests.engine.inference.runs_for_tests import CPU

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_000)]

LENGTH = 4_096
CHUNK = 512


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


def _log_probabilities(model: Transformer, token_ids: list[int], name: str) -> Tensor:
    """Of all positions, ``[t, v]``."""
    logits_of = logits_through_cache(model, parse_kv(name), longest=LENGTH, chunk=CHUNK)
    return logits_of(token_ids[:LENGTH]).log_softmax(-1)


@pytest.fixture(scope="module")
def exact(model: Transformer, token_ids: list[int]) -> Tensor:
    return _log_probabilities(model, token_ids, "paged")


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


def test_quantised_divergence_is_bounded_and_jumps_nowhere(checkpoint: Checkpoint) -> None:
    for row in measure_contexts(checkpoint, device=CPU, num_tokens=LENGTH):
        print(f"\n{row}")
        bound = BOUNDS["int8" if "int8" in row.kv else "int4"]
        assert row.mean < bound
        assert row.at.keys() == set(CONTEXTS)
        assert max(row.at.values()) < 2 * bound
        assert max(row.edges.values()) < 3
        assert row.block_offset < 1.5


@pytest.mark.parametrize("name", ["paged-window-256", "paged-window-256-sinks-4"])
def test_what_a_window_alone_does(
    name: str, model: Transformer, token_ids: list[int], exact: Tensor
) -> None:
    q = _log_probabilities(model, token_ids, name)
    divergence_t = _compare(f"{name} to paged", exact, q, token_ids)
    assert divergence_t[:256].max() < 1e-4


def test_what_bfloat16_does(checkpoint: Checkpoint, token_ids: list[int], exact: Tensor) -> None:
    model = load_transformer(checkpoint, torch.bfloat16, CPU)
    q = _log_probabilities(model, token_ids, "paged")
    divergence_t = _compare("paged, all in bfloat16, to paged", exact, q, token_ids)
    assert divergence_t.mean() < 0.01
