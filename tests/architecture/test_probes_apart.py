"""The fast path has no hooks for probes: these look at the slow reference, and only when asked.

An import contract says so of the sources; here the modules that are really loaded are looked at.
"""

from __future__ import annotations

import tomllib

import pytest

from tests.architecture.test_floors import run_python
from tests.architecture.tree import ROOT

PROBES = "engine.inference.probes"
TAPPED = "engine.inference.model.reference"


def loaded_by(module: str) -> set[str]:
    """Modules of the engine that are loaded once that one is imported."""
    result = run_python(
        f"import sys, {module}; print(*(m for m in sys.modules if m.startswith('engine.')))"
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_the_contract_covers_everything_that_runs_a_step():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    (contract,) = [c for c in contracts if c.get("forbidden_modules") == [PROBES]]
    covered = set(contract["source_modules"])
    assert covered >= {
        "engine.inference.executor",
        "engine.inference.model",
        "engine.inference.native",
        "engine.scheduling",
    }
    assert "ignore_imports" not in contract


@pytest.mark.parametrize(
    "module",
    [
        "engine.inference.executor",
        "engine.inference.native.decoder",
        "engine.inference.model.transformer",
        "engine.scheduling.loop",
    ],
)
def test_a_step_is_run_without_probes_and_without_the_model_that_they_look_at(module: str):
    loaded = loaded_by(module)
    assert module in loaded
    assert TAPPED not in loaded
    assert [name for name in loaded if name.startswith(PROBES)] == []


def test_the_engine_that_answers_probes_has_both():
    loaded = loaded_by("engine.inference.engine")
    assert {f"{PROBES}.desk", TAPPED} <= loaded
