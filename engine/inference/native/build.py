"""Compiles ``csrc`` for the processor of this machine, once, and loads it.

The library is a matter of speed only: where it cannot be had, there is one line that says why, and
everything runs in torch. It is looked for beside the installed packages and in the state folder.
Its name says the sources and the processor that it was made from, so an old or a foreign one is
never loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from filelock import FileLock

from engine.catalog.this_machine import state_dir
from engine.inference.native.abi import declare_all

log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent / "csrc"
COMPILERS = ("c++", "g++", "clang++")

_FLAGS = ("-O3", "-std=c++17", "-ffp-contract=fast", "-shared", "-fPIC", "-pthread")
# The flag for "this very processor" is not the same everywhere.
_NATIVE_FLAGS = ("-march=native", "-mcpu=native")
_TIMEOUT_S = 300
# Libraries that stay in a folder: other machines or versions of the program may share it.
_KEPT = 3
_CPU_INFO = Path("/proc/cpuinfo")


class NativeUnavailable(Exception):
    """Why there is no native library, in one line for people."""


def installed_folder() -> Path:
    """Where setting up leaves the library: inside the Python environment."""
    return Path(sys.prefix) / "lib" / "firsttoken"


def state_folder() -> Path:
    """Where it is left by those who may not write there."""
    return state_dir() / "native"


def writable_folder() -> Path:
    """The first of the two that this process may write to."""
    folder = installed_folder()
    while not folder.exists():
        folder = folder.parent
    return installed_folder() if os.access(folder, os.W_OK) else state_folder()


@cache
def library_name() -> str:
    """File name of the library of these sources on this processor."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(repr((_FLAGS, sys.platform, platform.machine(), _cpu_features())).encode())
    return f"step-{digest.hexdigest()[:20]}.so"


def find() -> Path | None:
    """The library, if it has been built."""
    for folder in (installed_folder(), state_folder()):
        if (folder / library_name()).exists():
            return folder / library_name()
    return None


def build(folder: Path) -> Path:
    """Compile the library into ``folder``; where it lies.

    It appears there at once and whole. Of two processes that build, one waits for the other.
    Older libraries make room for it; who has one loaded keeps it.

    Raises:
        NativeUnavailable: there is no compiler, it fails, or the folder cannot be written.
    """
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        raise NativeUnavailable(f"there is no C++ compiler ({', '.join(COMPILERS)})")
    target = folder / library_name()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            FileLock(folder / "build.lock"),
            tempfile.TemporaryDirectory(dir=folder) as scratch,
        ):
            if target.exists():
                return target
            made = Path(scratch) / target.name
            _compile(compiler, made)
            load(made)
            os.replace(made, target)
            _remove_old(folder)
    except OSError as error:
        raise NativeUnavailable(f"{folder} cannot be written: {error.strerror}") from error
    return target


def load(path: Path) -> ctypes.CDLL:
    """The library, ready to be called.

    Raises:
        NativeUnavailable: it does not load.
    """
    try:
        library = ctypes.CDLL(str(path))
        declare_all(library)
    except (OSError, AttributeError) as error:
        raise NativeUnavailable(f"the compiled library does not load: {error}") from error
    return library


def _remove_old(folder: Path) -> None:
    """Delete all but the newest libraries. Memory that is mapped from a deleted file stays valid;
    a system that does not allow deleting it only keeps the file."""
    made = sorted(folder.glob("step-*.so"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in made[_KEPT:]:
        try:
            path.unlink()
        except OSError as error:
            log.info("the old library %s stays: %s", path.name, error.strerror)


def _compile(compiler: str, made: Path) -> None:
    sources = [str(path) for path in sorted(SOURCES.glob("*.cpp"))]
    message = ""
    for flag in _NATIVE_FLAGS:
        command = [compiler, *_FLAGS, flag, "-o", str(made), *sources]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise NativeUnavailable(f"{compiler} takes longer than {_TIMEOUT_S} s") from error
        if done.returncode == 0:
            return
        message = message or _first_error(done.stderr)
    raise NativeUnavailable(f"{compiler} fails: {message}")


def _first_error(text: str) -> str:
    lines = text.strip().splitlines() or ["no message"]
    return next((line for line in lines if "error" in line), lines[0])


def _cpu_features() -> str:
    """What tells processors apart for a compiler, as far as the system says it."""
    if _CPU_INFO.exists():
        names = ("flags", "Features", "model name", "CPU part", "isa")
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
        # The first core speaks for all.
        return "\n".join(sorted({line for line in lines if line.startswith(names)})[:8])
    return platform.processor()
