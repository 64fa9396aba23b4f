"""``POST /api/v1/models/import``: a config.json, and what was understood of it."""

from __future__ import annotations

from pydantic import Field

from webapp.schemas.base import Name, OutputModel, StrictModel


class ImportSupport(OutputModel):
    """What an import understands; anything else is refused by the key that says it."""

    model_types: list[str] = Field(description='Values of "model_type".')
    quantization_methods: list[str] = Field(
        description='Values of "quantization_config.quant_method".'
    )


class ImportRequest(StrictModel):
    """A model's config.json as it is on Hugging Face."""

    config: dict[str, object] = Field(
        description="The whole config.json. A key that is not understood is refused by its name.",
        examples=[
            {
                "model_type": "llama",
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 128256,
                "max_position_embeddings": 131072,
                "tie_word_embeddings": False,
            }
        ],
    )
    name: Name | None = Field(default=None, description="The id that the model gets.")


class ImportedStructure(OutputModel):
    """The structure read from the file; fields as in GET /api/v1/models."""

    id: str
    family: str
    arch: str
    model_type: str
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
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
    kind: str = Field(description="imported: neither published by the catalogue nor measured.")
    source: str


class ImportedParameters(OutputModel):
    """Parameters by part; ``active`` ones are read whole by a decode step of one token."""

    total: int
    active: int
    embedding: int
    positions: int
    lm_head: int
    mixer: int
    dense_mlp: int
    router: int
    shared_experts: int
    experts: int
    rest: int


class ImportedKvCache(OutputModel):
    """Bytes of cache in the checkpoint's own format, or bf16 where it names none."""

    bytes_per_token: int | float
    format: str
    state_bytes_per_sequence: int
    bytes_at_max_context: int | float


class SimulateAs(OutputModel):
    """The formats with which a simulation comes nearest to the checkpoint."""

    weights: str
    activations: str | None
    kv: str


class ImportedWeights(OutputModel):
    """How the checkpoint stores its weights."""

    format: str
    others: str
    experts: str | None
    quantized: list[str]
    average_bits: float
    bytes: int | float
    simulate_as: SimulateAs


class ImportDocument(OutputModel):
    """The answer; the same document as ``python -m engine import --json``."""

    model: ImportedStructure
    parameters: ImportedParameters
    kv_cache: ImportedKvCache
    weights: ImportedWeights
    understood: list[str]
    ignored: list[str]
    defaults: dict[str, int | bool | str | None]
    left_out: list[str]
    assumptions: list[str]
