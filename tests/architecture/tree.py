"""The project's own files, as the architecture tests look at them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_SKIPPED = {
    ".git",
    ".hypothesis",
    ".import_linter_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "__pycache__",
    "build",
    "dist",
    "node_modules",
    "test-results",
}


def project_files(*suffixes: str) -> Iterator[Path]:
    """The repository's files with one of the suffixes (all without any), vendored ones excepted.

    Those that git tracks or would track; all that lie there where git does not know the folder.
    """
    for path in sorted(_listed()):
        relative = path.relative_to(ROOT)
        if _SKIPPED & set(relative.parts) or relative.parts[:2] == ("static", "vendor"):
            continue
        if path.is_file() and (not suffixes or path.suffix in suffixes):
            yield path


def _listed() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in ROOT.rglob("*") if path.is_file()]


def product_modules() -> Iterator[Path]:
    """Every Python file that runs outside of tests."""
    for path in project_files(".py"):
        if path.relative_to(ROOT).parts[0] in {"engine", "webapp"}:
            yield path


def readme_commands() -> list[str]:
    """The indented or fenced lines of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    fenced = [
        line
        for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.S | re.M)
        for line in block.splitlines()
    ]
    return fenced + [line.strip() for line in text.splitlines() if line.startswith("    ")]


def imported_roots(node: ast.AST) -> set[str]:
    """Top-level packages that one statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        return {node.module.partition(".")[0]}
    return set()
