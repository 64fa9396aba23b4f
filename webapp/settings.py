"""What an operator may set, from ``FIRSTTOKEN_*`` environment variables or the command line.

Only the local mode exists: no accounts, no secrets, names of this machine as ``Host``. Binding
another address than loopback is allowed (a container has to), and then further host names must be
listed in ``FIRSTTOKEN_ALLOWED_HOSTS``; address literals are accepted, because a name that was
rebound by a hostile DNS server is never an address literal.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from engine.inference.options import EngineOptions

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

_HOST_NAME = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|[0-9a-f:.]{2,45}")
_ORIGIN = re.compile(r"https?://([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?")
_ROOT_PATH = re.compile(r"(/(?!\.)[A-Za-z0-9._~-]+)*")


class Settings(BaseSettings):
    """Frozen; every limit has a bound, so that a typing error does not switch it off."""

    model_config = SettingsConfigDict(env_prefix="FIRSTTOKEN_", extra="ignore", frozen=True)

    mode: Literal["local"] = "local"
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    root_path: str = Field(default="", description="Prefix under which a proxy serves the app.")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Host names beside loopback, comma-separated; *.example.org works."
    )
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Origins beside the own one, comma-separated: https://example.org"
    )

    model: str = Field(default="auto", description="auto, tiny, or a path to weights.")
    dtypes: str = "auto"
    device: str = "auto"
    kv_tokens: int = Field(default=16_384, ge=16, le=16 * 1024 * 1024)
    calibrate: Literal["auto", "never"] = "auto"

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"

    metrics: Literal["local", "all", "off"] = Field(
        default="local", description="Who may read /metrics; local: programs of this machine."
    )

    max_body_bytes: int = Field(default=256 * 1024, ge=1024, le=16 * 1024 * 1024)
    body_timeout_s: float = Field(default=10.0, gt=0, le=300)
    simulation_threads: int = Field(default=2, ge=1, le=64)
    simulation_queue: int = Field(default=16, ge=1, le=1024)

    probe_queue: int = Field(
        default=16, ge=1, le=32, description="Questions about the model or its tokenizer that wait."
    )

    job_slots: int = Field(default=1, ge=1, le=64, description="Long simulations at a time.")
    jobs_kept: int = Field(default=16, ge=1, le=1024, description="Waiting, running and ended.")
    job_keep_s: float = Field(default=900.0, gt=0, le=86_400, description="After a job's end.")
    job_timeout_s: float = Field(default=900.0, gt=0, le=86_400)

    live_connections: int = Field(default=512, ge=1, le=100_000)
    live_connections_per_address: int = Field(
        default=64, ge=1, le=100_000, description="A classroom may share one address."
    )
    live_idle_s: float = Field(
        default=900.0, gt=0, le=86_400, description="Without a message or a running request."
    )
    live_generations: int = Field(default=4, ge=1, le=64, description="At once, per connection.")
    live_messages_per_s: float = Field(default=20.0, gt=0, le=1000)
    live_outbox_events: int = Field(default=256, ge=8, le=65536)
    live_stuck_s: float = Field(default=10.0, gt=0, le=300)

    database_url: str = Field(
        default="",
        description="Where saved runs are kept, for SQLAlchemy; empty: a file in the state folder.",
    )
    run_max_bytes: int = Field(
        default=4 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024, description="Of one saved run."
    )
    run_keep_days: float = Field(default=90.0, gt=0, le=3650)
    runs_total_bytes: int = Field(
        default=512 * 1024 * 1024, ge=1024, le=2**50, description="All saved runs, as stored."
    )
    run_saves_per_hour: int = Field(
        default=300, ge=1, le=100_000, description="Per address; a classroom may share one."
    )

    static_dir: Path = Path(__file__).resolve().parent.parent / "static"

    @field_validator("allowed_hosts", "allowed_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip().lower() for part in value.split(",") if part.strip())
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST_NAME.fullmatch(host):
                raise ValueError(
                    "allowed_hosts takes host names without scheme and port, such as "
                    "lab.example.org or *.example.org; a bare * is refused"
                )
        return hosts

    @field_validator("allowed_origins")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    "allowed_origins takes scheme://host[:port] without a path; * is refused"
                )
        return origins

    @field_validator("root_path")
    @classmethod
    def _check_root_path(cls, root_path: str) -> str:
        stripped = root_path.rstrip("/")
        if not _ROOT_PATH.fullmatch(stripped):
            raise ValueError("root_path looks like /lab: slashes, letters, digits, . _ ~ -")
        return stripped

    @property
    def engine_options(self) -> EngineOptions:
        """How the engine's worker process is set up."""
        return EngineOptions(
            model=self.model,
            dtypes=self.dtypes,
            device=self.device,
            kv_tokens=self.kv_tokens,
            calibrate=self.calibrate,
            log_format=self.log_format,
        )

    @property
    def binds_loopback(self) -> bool:
        """Whether only this machine can reach the bound address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False
