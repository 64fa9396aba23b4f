"""What caches of fewer bits do to a trained model as its text grows, and at the edges of blocks
and windows: Kullback–Leibler divergence to the same cache in float32, position by position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import InvalidRequest
from engine.inference.lane_settings import KVSettings, parse_kv
from engine.inference.model.load import load_transformer
from engine.inference.quantization.calibration_text import HELD_OUT, text_of
from engine.inference.quantization.lane import chunks_through_cache
from engine.inference.quantization.quality import kl_divergence
from engine.inference.weights.checkpoint import Checkpoint
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE

CONTEXTS = (256, 1_024, 2_048, 4_096)
SPAN = 128
"""Positions before each context length over which divergences are averaged."""

WINDOW = "-window-1024-sinks-4"
COMPARED = {
    "paged": ("paged-int8", "paged-int4"),
    f"paged{WINDOW}": (f"paged-int8{WINDOW}", f"paged-int4{WINDOW}"),
}
"""Quantised caches by the cache that they are compared with."""

_CHUNK = 512
_NEAR = 16


@dataclass(frozen=True, slots=True)
class KVContexts:
    """Divergences of ``kv`` from ``against`` in nats, over the positions of one text.

    ``at``: the mean of the last ``SPAN`` positions before each context length. ``edges``: the
    median of the 16 positions on either side of an edge (of a step's chunk, of the window, of the
    window with its sinks), over the median of all; ``elsewhere``: the largest such ratio of 32
    neighbouring positions without an edge, which is how much the text alone does.
    ``block_offset``: the largest median of the positions that are at the same place of their block,
    over the median of all. Medians, because single positions differ by orders of magnitude.
    """

    kv: str
    against: str
    num_positions: int
    mean: float
    p99: float
    at: dict[int, float]
    edges: dict[int, float]
    elsewhere: float
    block_offset: float


def measure_contexts(
    checkpoint: Checkpoint,
    *,
    device: torch.device,
    num_tokens: int = CONTEXTS[-1],
    say: Callable[[str], None] = lambda line: None,
) -> list[KVContexts]:
    """Run the held-out text through every cache of ``COMPARED``.

    Raises:
        InvalidRequest: the text is shorter than the first of ``CONTEXTS``.
    """
    ids = checkpoint.tokenizer().encode(text_of(HELD_OUT))
    ids = ids[: min(num_tokens, checkpoint.config.max_context)]
    if len(ids) < CONTEXTS[0]:
        raise InvalidRequest(f"at least {CONTEXTS[0]} tokens are needed", field="tokens")
    model = load_transformer(checkpoint, torch.float32, device)
    rows: list[KVContexts] = []
    for against, names in COMPARED.items():
        say(f"KV caches beside {against}")
        runs = [
            chunks_through_cache(model, parse_kv(name), longest=len(ids), chunk=_CHUNK)(ids)
            for name in (against, *names)
        ]
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        # Step by step side by side: all logits of a long text do not fit into memory.
        for exact, *others in zip(*runs, strict=True):
            expected = exact.log_softmax(-1)
            for name, logits in zip(names, others, strict=True):
                parts[name].append(kl_divergence(expected, logits.log_softmax(-1)).cpu())
        rows += [summarise(name, against, torch.cat(parts[name])) for name in names]
    return rows


def summarise(kv: str, against: str, divergence_t: Tensor) -> KVContexts:
    """The numbers of one cache from its divergences at every position ``[t]``."""
    divergence_t = divergence_t.double()
    count = len(divergence_t)
    median = float(divergence_t.median())
    whole_blocks = divergence_t[: count - count % DEFAULT_BLOCK_SIZE]
    edges = _edges(parse_kv(kv), count)
    by_offset = whole_blocks.view(-1, DEFAULT_BLOCK_SIZE).median(0).values
    return KVContexts(
        kv=kv,
        against=against,
        num_positions=count,
        mean=float(divergence_t.mean()),
        p99=float(divergence_t.quantile(0.99)),
        at={c: float(divergence_t[c - SPAN : c].mean()) for c in CONTEXTS if c <= count},
        edges={edge: _around(divergence_t, edge) / median for edge in edges},
        elsewhere=max(
            _around(divergence_t, middle) / median
            for middle in range(_NEAR, count - _NEAR + 1, _NEAR)
            if not any(abs(middle - edge) <= _NEAR for edge in edges)
        ),
        block_offset=float(by_offset.max()) / median,
    )


def _around(divergence_t: Tensor, middle: int) -> float:
    return float(divergence_t[middle - _NEAR : middle + _NEAR].median())


def _edges(kv: KVSettings, count: int) -> Sequence[int]:
    edges = {*range(_CHUNK, count, _CHUNK), 256}
    if kv.window is not None:
        edges |= {kv.window, kv.window + kv.sinks}
    return sorted(edge for edge in edges if edge + _NEAR <= count)
