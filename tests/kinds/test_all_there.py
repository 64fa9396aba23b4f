"""Every kind of bug has a test that bears its mark, and no mark names another kind."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.tree import ROOT
from tests.kinds import KINDS


def marked() -> Iterator[tuple[str, str]]:
    """Numbers of kinds, each with the test that bears the mark, as ``file::name``."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for number in _numbers(node):
                    yield number, f"{path.relative_to(ROOT)}::{node.name}"


def _numbers(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.kind":
            for argument in mark.args:
                assert isinstance(argument, ast.Constant), f"{node.name}: write the number out"
                yield str(argument.value)


def test_every_kind_has_a_test() -> None:
    assert {number for number, _ in marked()} == KINDS.keys()


def test_marks_are_on_tests() -> None:
    assert [where for _, where in marked() if not where.split("::")[1].startswith("test_")] == []
