"""One thread for the tiny model, as in the engine's own tests."""

from __future__ import annotations

from tests.engine.inference.conftest import one_thread

__all__ = ["one_thread"]
