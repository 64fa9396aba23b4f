"""The floors hold: as import contracts, and in the processes that really start."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, product_modules

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def imported_modules(path: Path) -> set[str]:
    """Full names of the modules that a file imports from or as a whole."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_import_contracts_are_kept():
    result = run_python(
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_part_of_the_engine_stands_on_a_floor():
    layers = " ".join(PYPROJECT["tool"]["importlinter"]["contracts"][0]["layers"])
    on_a_floor = {name.strip("()") for name in layers.replace("|", " ").split()}
    parts = {
        f"engine.{path.stem}"
        for path in (ROOT / "engine").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert parts - {"engine.__init__"} <= on_a_floor


def test_the_web_process_sees_only_the_door_of_the_real_engine():
    door = {
        f"engine.inference.{name}"
        for name in (
            "messages",
            "options",
            "probes",
            "probes.documents",
            "probes.format_documents",
            "probes.limits",
            "probes.text_documents",
            "request_limits",
            "supervisor",
        )
    }
    used = {
        name
        for path in product_modules()
        if path.is_relative_to(ROOT / "webapp")
        for name in imported_modules(path)
        if name.startswith("engine.inference")
    }
    assert used
    assert used <= door


def test_every_package_without_torch_is_checked_strictly():
    strict = set(PYPROJECT["tool"]["pyright"]["strict"])
    packages = {f"engine/{path.name}" for path in (ROOT / "engine").iterdir() if path.is_dir()} - {
        "engine/inference",
        "engine/__pycache__",
    }
    assert packages | {"engine/*.py", "webapp"} <= strict


@pytest.mark.parametrize(
    "module",
    [
        "webapp.app",
        "webapp.__main__",
        "engine.catalog.models",
        "engine.scheduling.loop",
        "engine.simulator.scenario",
        "engine.inference.supervisor",
        "engine.inference.messages",
    ],
)
def test_torch_stays_out_of(module: str):
    result = run_python(
        f"import sys, {module}; heavy = {{'torch', 'transformers'}} & set(sys.modules); "
        "raise SystemExit(f'imported: {heavy}' if heavy else 0)"
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("module", ["engine.simulator.scenario", "engine.scheduling.loop"])
def test_the_engine_knows_no_web_framework(module: str):
    result = run_python(
        f"import sys, {module}; "
        "web = {'fastapi', 'starlette', 'pydantic', 'jinja2', 'uvicorn'} & set(sys.modules); "
        "raise SystemExit(f'imported: {web}' if web else 0)"
    )
    assert result.returncode == 0, result.stderr
