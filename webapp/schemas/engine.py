"""The real engine as it is told to clients: by ``GET /api/v1/engine`` and in ``hello``."""

from __future__ import annotations

from pydantic import Field

from webapp.schemas.base import OutputModel


class LaneDocument(OutputModel):
    """One way in which the model runs, with a KV cache and a batch of its own: a format of
    weights, a KV cache, prefix caching or not."""

    name: str
    dtype: str = Field(description="What is computed in: float32 or bfloat16.")
    weights: str
    kv_cache: str
    prefix_cache: bool
    weight_format: str = Field(description="The catalogue's name of the weights' format.")
    kv_format: str = Field(description="The catalogue's name of the KV cache's format.")
    on_demand: bool = Field(description="Opened for a request; closed when others need the room.")
    weight_bytes: int
    kv_bytes_per_token: int
    kv_blocks_total: int
    kv_block_tokens: int
    window: int | None = Field(description="Last positions that a token sees; null: all.")
    sinks: int = Field(description="First positions that it sees beyond them.")
    native_rows: int = Field(description="Steps of at most so many tokens run natively.")


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
    max_step_tokens: int
    policy: str
    load_seconds: float
    has_chat_template: bool


class EngineDocument(OutputModel):
    """State of the engine: ``starting``, ``ready``, ``restarting`` or ``stopped``."""

    state: str
    reason: str
    restarts: int
    calibrated: bool = Field(description="Whether steps on this machine can be predicted.")
    info: EngineInfoDocument | None
