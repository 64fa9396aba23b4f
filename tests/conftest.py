"""What all tests share: a state folder of their own, few threads, no network look-ups."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

# Before torch or tokenizers are imported anywhere: their thread pools read these once. Side by
# side, every test process gets one thread; alone, as many as there are cores, two at most.
_side_by_side = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1
os.environ.setdefault("OMP_NUM_THREADS", "1" if _side_by_side else str(min(2, os.cpu_count() or 1)))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

_state = tempfile.mkdtemp(prefix="firsttoken-tests-")
os.environ["FIRSTTOKEN_STATE"] = _state


def pytest_unconfigure() -> None:
    shutil.rmtree(_state, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests last: Playwright keeps an event loop on the main thread until the session
    ends, and no other may run there then."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of all ``pytest.mark.anyio`` tests."""
    return "asyncio"


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state folder for one test: no calibration, no cached models."""
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setenv("FIRSTTOKEN_STATE", str(folder))
    return folder
