"""Ways to run code that came in as data, and ways to hide an error, are not used anywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, imported_roots, product_modules

CODE_FROM_DATA = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "os.popen",
    "os.system",
    "torch.hub.load",
    "torch.load",
    "yaml.load",
    "yaml.unsafe_load",
}


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of a name or attribute, or the empty string of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inside = dotted(node.value)
        return f"{inside}.{node.attr}" if inside else ""
    return ""


def findings(tree: ast.AST) -> Iterator[str]:
    """What is wrong in a module, one line each."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        for name in imported_roots(node) & CODE_FROM_DATA:
            yield f"{line}: imports {name}"
        if isinstance(node, ast.Call):
            if dotted(node.func) in FORBIDDEN_CALLS:
                yield f"{line}: calls {dotted(node.func)}"
            for keyword in node.keywords:
                true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
                if keyword.arg in {"trust_remote_code", "shell", "allow_pickle"} and true:
                    yield f"{line}: passes {keyword.arg}=True"
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or dotted(node.type) in {"Exception", "BaseException"}
            silent = all(isinstance(inside, ast.Pass | ast.Continue) for inside in node.body)
            if broad and silent:
                yield f"{line}: catches every error and ignores it"


def test_the_product_uses_nothing_forbidden():
    modules = list(product_modules())
    assert modules
    found = [
        f"{path.relative_to(ROOT)}:{finding}"
        for path in modules
        for finding in findings(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    "bad",
    [
        "import pickle",
        "from marshal import loads",
        "import torch\ntorch.load('x')",
        "eval('1')",
        "f(trust_remote_code=True)",
        "try:\n    f()\nexcept Exception:\n    pass",
    ],
)
def test_the_search_finds(bad: str):
    assert list(findings(ast.parse(bad)))


@pytest.mark.parametrize(
    "good", ["model.eval()", "import torch", "f(shell=False)", "import re\nre.compile('a')"]
)
def test_the_search_leaves_alone(good: str):
    assert not list(findings(ast.parse(good)))


def test_every_product_module_says_what_it_is():
    silent = [
        str(path.relative_to(ROOT))
        for path in product_modules()
        if path.stat().st_size and not ast.get_docstring(ast.parse(Path(path).read_text("utf-8")))
    ]
    assert silent == []
