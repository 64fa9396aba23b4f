"""How an engine is set up. Torch-free: the web process builds these, the worker obeys them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """``model``: ``auto`` (the default model), ``tiny`` (the random test model) or a path to a
    GGUF file or Hugging Face folder. ``dtypes``: the lanes to load, as names of lanes separated by
    commas, ``auto`` for what the machine has memory for. ``kv_tokens``: positions in each lane's
    KV cache. ``policy``: who goes first. ``calibrate``: ``auto`` measures this machine once if it
    has not been measured, ``never`` does not. ``log_format``: ``json``, ``console`` or ``auto``.
    """

    model: str = "auto"
    dtypes: str = "auto"
    device: str = "auto"
    kv_tokens: int = 16_384
    max_running: int = 32
    max_waiting: int = 64
    max_step_tokens: int = 1_024
    policy: str = "first-come"
    calibrate: str = "auto"
    log_format: str = "auto"

    def to_arguments(self) -> list[str]:
        """As command-line arguments of the worker."""
        arguments: list[str] = []
        for field in fields(self):
            arguments += [f"--{field.name.replace('_', '-')}", str(getattr(self, field.name))]
        return arguments

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Declare the same arguments on a parser; the inverse of ``to_arguments``."""
        for field in fields(cls):
            kind = int if isinstance(field.default, int) else str
            name = f"--{field.name.replace('_', '-')}"
            parser.add_argument(name, type=kind, default=field.default)

    @classmethod
    def from_arguments(cls, namespace: argparse.Namespace) -> EngineOptions:
        """From what a parser with ``add_arguments`` read."""
        return cls(**{field.name: getattr(namespace, field.name) for field in fields(cls)})


def parse_worker_arguments(arguments: Sequence[str] | None = None) -> tuple[int, EngineOptions]:
    """The worker's command line: the file descriptor of its socket, and the options."""
    parser = argparse.ArgumentParser(prog="engine.inference.worker")
    parser.add_argument("--socket-fd", type=int, required=True)
    EngineOptions.add_arguments(parser)
    namespace = parser.parse_args(arguments)
    return namespace.socket_fd, EngineOptions.from_arguments(namespace)
