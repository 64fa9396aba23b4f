"""The catalogue as documents: published figures with their sources, and what follows from them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal, Self

from pydantic import Field

from engine.catalog.device import HardwareSpec
from engine.catalog.models import ModelSpec
from webapp.schemas.base import OutputModel


class ModelDocument(OutputModel):
    """The structure of one model (published) and its sizes (computed from the structure)."""

    id: str
    family: str
    arch: str
    nominal_params: str
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int = Field(description="A number of its own, not hidden_size over heads.")
    intermediate_size: int
    vocab_size: int
    tied_embeddings: bool
    max_context: int
    mlp: str
    qkv_bias: bool
    attention: dict[str, object]
    moe: dict[str, object] | None
    mla: dict[str, object] | None
    extras: dict[str, object]
    num_parameters: int = Field(description="All parameters, a tied embedding once.")
    num_streamed_parameters: int = Field(
        description="Parameters that a decode step of one token reads whole."
    )
    kv_bytes_per_token: int | float = Field(description="Bytes of KV cache a token at 16 bits.")
    state_bytes_per_sequence: int
    kind: Literal["published"] = "published"
    source: str
    verified: bool
    notes: str

    @classmethod
    def of(cls, spec: ModelSpec) -> Self:
        """The document of one model of the catalogue."""
        return cls(
            id=spec.id,
            family=spec.family,
            arch=spec.arch,
            nominal_params=spec.nominal_params,
            num_layers=spec.num_layers,
            hidden_size=spec.hidden_size,
            num_attention_heads=spec.num_attention_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            intermediate_size=spec.intermediate_size,
            vocab_size=spec.vocab_size,
            tied_embeddings=spec.tied_embeddings,
            max_context=spec.max_context,
            mlp=spec.mlp,
            qkv_bias=spec.qkv_bias,
            attention={"type": spec.attention.kind, **asdict(spec.attention)},
            moe=None if spec.moe is None else asdict(spec.moe),
            mla=None if spec.mla is None else asdict(spec.mla),
            extras=asdict(spec.extras),
            num_parameters=spec.num_parameters,
            num_streamed_parameters=spec.num_streamed_parameters,
            kv_bytes_per_token=spec.kv_bytes_per_token(16),
            state_bytes_per_sequence=spec.state_bytes_per_sequence,
            source=spec.source,
            verified=spec.verified,
            notes=spec.notes,
        )


class ModelList(OutputModel):
    count: int
    models: list[ModelDocument]


class InterconnectDocument(OutputModel):
    """The links between like devices: all of one device's together, in one direction, B/s."""

    type: str
    bandwidth: float


class PriceDocument(OutputModel):
    """US dollars for an hour of one device."""

    low: float
    high: float
    source: str


class HardwareDocument(OutputModel):
    """One device. Rates are dense (never with sparsity), in FLOP/s by number format."""

    id: str
    name: str
    vendor: str
    category: str
    year: int | None
    memory_bytes: int
    bandwidth: float = Field(description="Memory bandwidth, B/s.")
    dense_flops: dict[str, float]
    fp16_accumulate_flops: float | None
    ridge_point: float | None = Field(
        description="FLOP/B at the bf16 rate, or of the format used in its place."
    )
    ridge_point_format: str | None
    interconnect: InterconnectDocument | None
    tdp: float | None = Field(description="W")
    price: PriceDocument | None
    kind: str = Field(description="published, or measured for this machine.")
    sources: list[str]
    unverified: list[str]
    notes: str

    @classmethod
    def of(cls, spec: HardwareSpec) -> Self:
        """The document of one device of the catalogue, or of this machine."""
        rate = spec.compute_rate("bf16")
        link, price = spec.interconnect, spec.price
        return cls(
            id=spec.id,
            name=spec.name,
            vendor=spec.vendor,
            category=spec.category,
            year=spec.year,
            memory_bytes=spec.memory_bytes,
            bandwidth=spec.bandwidth,
            dense_flops=dict(spec.dense_flops),
            fp16_accumulate_flops=spec.fp16_accumulate_flops,
            ridge_point=spec.ridge_point("bf16"),
            ridge_point_format=rate.used,
            interconnect=None
            if link is None
            else InterconnectDocument(type=link.type, bandwidth=link.bandwidth),
            tdp=spec.tdp,
            price=None
            if price is None
            else PriceDocument(low=price.low, high=price.high, source=price.source),
            kind=spec.kind,
            sources=list(spec.sources),
            unverified=list(spec.unverified),
            notes=spec.notes,
        )


class HardwareList(OutputModel):
    count: int
    hardware: list[HardwareDocument]
