"""Building the library: once, by whoever comes first, and never a reason to fail."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import engine.inference.native.build as build_module
import engine.inference.native.switch as switch
from engine.errors import InvalidRequest
from engine.inference.native.build import NativeUnavailable, build, find, library_name, load
from engine.inference.native.switch import NativeSteps
from tests.engine.inference.runs_for_tests import (
    alone,
    new_cache,
    plan,
    random_ids,
    sequence,
    tiny,
    tiny_executor,
)

ONE_TOKEN = plan(sequence([1], table=[0]))


@pytest.fixture
def small_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Sources that compile in no time and give a library that lacks everything."""
    folder = tmp_path / "csrc"
    folder.mkdir()
    (folder / "step.cpp").write_text('extern "C" int nothing() { return 0; }\n')
    monkeypatch.setattr(build_module, "SOURCES", folder)
    monkeypatch.setattr(build_module, "declare_all", lambda library: None)
    monkeypatch.setattr(build_module, "installed_folder", lambda: tmp_path / "installed")
    monkeypatch.setenv("FIRSTTOKEN_STATE", str(tmp_path / "state"))
    library_name.cache_clear()
    yield folder
    library_name.cache_clear()


@pytest.fixture
def nothing_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch, "find", lambda: None)
    monkeypatch.setattr(switch, "_LIBRARY", switch._Library())


def _steps() -> NativeSteps:
    return NativeSteps(tiny(), new_cache(tiny()), num_tokens=512)


def _libraries(folder: Path) -> list[str]:
    return [item.name for item in folder.iterdir() if item.name != "build.lock"]


def _wait_for_builders() -> None:
    for thread in threading.enumerate():
        if thread.name == "native build":
            thread.join()


def test_it_is_found_where_it_was_built(small_sources: Path, tmp_path: Path) -> None:
    assert find() is None
    for folder in (build_module.state_folder(), build_module.installed_folder()):
        path = build(folder)
        assert find() == path == folder / library_name()
        assert _libraries(folder) == [path.name]
        assert load(path).nothing() == 0


def test_other_sources_and_other_processors_have_libraries_of_their_own(
    small_sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {library_name()}
    monkeypatch.setattr(build_module, "_cpu_features", lambda: "flags: none")
    library_name.cache_clear()
    names.add(library_name())
    (small_sources / "step.h").write_text("// more\n")
    library_name.cache_clear()
    names.add(library_name())
    assert len(names) == 3


def test_old_libraries_make_room_and_work_on_where_they_are_loaded(
    small_sources: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    built: list[Path] = []
    for number in range(5):
        (small_sources / "step.cpp").write_text(
            f'extern "C" int nothing() {{ return {number}; }}\n'
        )
        library_name.cache_clear()
        built.append(build(folder))
        os.utime(built[-1], (number, number))  # so that none are of the same age
        if number == 0:
            loaded = load(built[0])
            (folder / "other.so").touch()
    assert set(_libraries(folder)) == {"other.so", *(path.name for path in built[2:])}
    assert loaded.nothing() == 0


def test_an_old_library_that_cannot_be_deleted_is_no_failure(
    small_sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"step-{number}.so").touch()
        os.utime(tmp_path / f"step-{number}.so", (number, number))

    def refuse(path: Path) -> None:
        raise PermissionError(13, "not allowed")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert build(tmp_path).exists()
    assert (tmp_path / "step-0.so").exists()


def test_two_that_build_at_once_both_have_it(small_sources: Path, tmp_path: Path) -> None:
    paths: list[Path] = []
    folder = tmp_path / "state" / "native"
    threads = [threading.Thread(target=lambda: paths.append(build(folder))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 4
    assert {load(path).nothing() for path in paths} == {0}
    assert _libraries(folder) == [library_name()]


def test_whoever_may_not_write_to_the_environment_builds_in_the_state_folder(
    small_sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build_module.writable_folder() == build_module.installed_folder()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert build_module.writable_folder() == build_module.state_folder()


def test_no_compiler(small_sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NativeUnavailable, match=r"there is no C\+\+ compiler"):
        build(tmp_path / "out")


def test_a_compiler_that_fails(small_sources: Path, tmp_path: Path) -> None:
    (small_sources / "step.cpp").write_text("this is no C++\n")
    with pytest.raises(NativeUnavailable, match=r"fails: .*error") as caught:
        build(tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert _libraries(tmp_path / "out") == []


def test_a_folder_that_cannot_be_written(small_sources: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NativeUnavailable, match="cannot be written"):
        build(tmp_path / "file" / "out")


def test_a_library_that_does_not_load(small_sources: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"no library")
    with pytest.raises(NativeUnavailable, match="does not load"):
        load(tmp_path / "broken.so")


@pytest.mark.usefixtures("nothing_built")
def test_without_a_compiler_everything_runs_in_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    prompt = random_ids(9, seed=1)
    expected = alone(tiny_executor(), prompt, 12)
    _wait_for_builders()
    monkeypatch.setattr(switch, "_LIBRARY", switch._Library())
    monkeypatch.setenv("PATH", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert alone(tiny_executor(), prompt, 12) == expected
        steps = _steps()
        _wait_for_builders()
    assert steps.taking(ONE_TOKEN) is None
    assert steps.nbytes == 0
    # Said once, however many executors there are.
    assert len([r for r in caplog.records if "there is no C++ compiler" in r.message]) == 1


@pytest.mark.usefixtures("nothing_built")
def test_steps_turn_native_once_the_library_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    found, go = find(), threading.Event()

    def built_later(folder: Path) -> Path:
        go.wait()
        return found or build(folder)

    monkeypatch.setattr(switch, "build", built_later)
    steps = _steps()
    assert steps.taking(ONE_TOKEN) is None
    go.set()
    _wait_for_builders()
    assert steps.taking(ONE_TOKEN) is not None


def test_off_and_auto_are_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_NATIVE", "off")
    assert _steps().taking(ONE_TOKEN) is None
    monkeypatch.setenv("FIRSTTOKEN_NATIVE", "yes")
    with pytest.raises(InvalidRequest, match="auto or off"):
        _steps()


def test_a_model_on_a_gpu_is_not_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kv_cache = new_cache(tiny())
    monkeypatch.setattr(tiny(), "device", torch.device("cuda"))
    assert NativeSteps(tiny(), kv_cache, num_tokens=512).taking(ONE_TOKEN) is None


@pytest.mark.slow
def test_the_command_builds_it_and_says_so(tmp_path: Path) -> None:
    environment = os.environ | {"FIRSTTOKEN_STATE": str(tmp_path), "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "engine.inference.native"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("\n") == 1 or "compiling" in done.stdout
    assert ("ready" in done.stdout) == (done.returncode == 0)
