"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine.inference.loading import LoadedModel, load_model
from tests.engine.inference.engine_for_tests import TINY, Bench


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread for models so small that handing out work costs more than doing it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_model() -> LoadedModel:
    """The tiny model with its float32 lane open."""
    return load_model(TINY)


@pytest.fixture
def bench(tiny_model: LoadedModel) -> Bench:
    """An engine of its own on the tiny model."""
    return Bench(tiny_model)
