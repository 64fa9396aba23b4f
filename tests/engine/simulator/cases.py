"""Models, devices and batches that several of these tests use."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from engine.catalog.device import HardwareSpec, Interconnect
from engine.catalog.models import ModelSpec, all_models
from engine.scheduling.plan import SequenceShape

DENSE_MODELS = tuple(spec for spec in all_models() if spec.is_dense)
ALL_MODELS = all_models()

TINY: dict[str, Any] = {
    "id": "tiny",
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 24,
    "intermediate_size": 160,
    "vocab_size": 512,
    "max_context": 256,
}


def tiny(*, tied: bool = True) -> ModelSpec:
    return ModelSpec.dense(tied_embeddings=tied, **TINY)


def device(
    bandwidth: float = 1e12, flops: float = 1e14, link: float | None = 1e11, memory: int = 10**11
) -> HardwareSpec:
    """A made-up device with one rate for all 16-bit formats."""
    return HardwareSpec(
        id="device",
        name="A device",
        vendor="",
        category="datacenter-gpu",
        memory_bytes=memory,
        bandwidth=bandwidth,
        dense_flops=MappingProxyType({"bf16": flops, "fp16": flops}),
        interconnect=None if link is None else Interconnect("link", link),
        sources=("made up for a test",),
    )


def _shape(prefix_tokens: int, new_tokens: int, samples: bool, drafts: int) -> SequenceShape:
    """Drafts come after at least one known token, in a sequence that samples."""
    most = new_tokens - 1 if samples else 0
    return SequenceShape(prefix_tokens, new_tokens, samples, min(drafts, most))


shapes = st.builds(
    _shape,
    prefix_tokens=st.integers(0, 20_000),
    new_tokens=st.integers(1, 4_000),
    samples=st.booleans(),
    drafts=st.integers(0, 16),
)
batches = st.lists(shapes, min_size=1, max_size=12)
