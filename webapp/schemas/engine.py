"""The real engine as it is told to clients: by ``GET /api/v1/engine`` and in ``hello``."""

from __future__ import annotations

from pydantic import Field

from webapp.schemas.base import OutputModel


class LaneDocument(OutputModel):
    """One dtype in which the model can run, with a KV cache and a batch of its own."""

    dtype: str
    weight_bytes: int
    kv_bytes_per_token: int
    kv_blocks_total: int
    kv_block_tokens: int


class EngineInfoDocument(OutputModel):
    """What runs, and on what. Present once the worker was ready for the first time."""

    model_name: str
    model: dict[str, object] = Field(description="Architecture, under the catalogue's names.")
    provenance: str
    source_format: str
    random_weights: bool
    device: str
    device_name: str
    torch_version: str
    threads: int
    default_dtype: str
    lanes: list[LaneDocument]
    max_context: int
    max_running: int
    max_waiting: int
    load_seconds: float
    has_chat_template: bool


class EngineDocument(OutputModel):
    """State of the engine: ``starting``, ``ready``, ``restarting`` or ``stopped``."""

    state: str
    reason: str
    restarts: int
    calibrated: bool = Field(description="Whether steps on this machine can be predicted.")
    info: EngineInfoDocument | None
