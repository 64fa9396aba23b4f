from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.catalog.hardware import all_hardware, get_hardware, published_hardware
from engine.catalog.this_machine import (
    Calibration,
    calibration_path,
    load_calibration,
    save_calibration,
    state_dir,
    this_machine,
)
from engine.errors import FileFormatError

MEASURED = Calibration(
    bandwidth_bytes_per_s=21.5e9,
    flops_per_s={"fp32": 1.5e11, "bf16": 3e11, "int8": 5e11},
    memory_bytes=16 * 2**30,
    device_name="Some CPU",
    device_kind="cpu",
    torch_version="2.13.0",
    threads=2,
    date="2026-11-30T09:00:00+00:00",
    spread={"bandwidth": 0.03, "fp32": 0.01},
)


def test_what_is_saved_is_loaded(state_dir: Path) -> None:
    assert load_calibration() is None
    path = save_calibration(MEASURED)
    assert path == calibration_path() == state_dir / "calibration.json"
    assert load_calibration() == MEASURED
    save_calibration(replace(MEASURED, threads=1))
    assert load_calibration() == replace(MEASURED, threads=1)
    assert load_calibration() is load_calibration(), "parsed once"
    assert [item.name for item in state_dir.iterdir()] == ["calibration.json"]


def test_this_machine_becomes_hardware(state_dir: Path) -> None:
    save_calibration(MEASURED)
    own = this_machine()
    assert own is not None
    assert own.kind == "measured"
    assert own.ridge_point("fp32") == 1.5e11 / 21.5e9
    assert own.compute_rate("fp16").used == "bf16"
    assert "2026-11-30" in own.sources[0]
    assert get_hardware("this-machine") == own
    assert all_hardware() == (own, *published_hardware())


def test_the_state_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRSTTOKEN_STATE", str(tmp_path))
    assert state_dir() == tmp_path
    monkeypatch.delenv("FIRSTTOKEN_STATE")
    assert state_dir().name == "firsttoken"


def _saved(changes: dict[str, Any]) -> str:
    values = json.loads(save_calibration(MEASURED).read_text(encoding="utf-8"))
    return json.dumps({**values, **changes})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "not json",
        "[]",
        "{}",
        "[" * 100_000,
        "\xff",
        " " * (2 << 20),
        {"version": 2},
        {"bandwidth_bytes_per_s": 0},
        {"bandwidth_bytes_per_s": -1},
        {"bandwidth_bytes_per_s": "fast"},
        {"bandwidth_bytes_per_s": True},
        {"bandwidth_bytes_per_s": float("nan")},
        {"bandwidth_bytes_per_s": float("inf")},
        {"flops_per_s": {}},
        {"flops_per_s": []},
        {"flops_per_s": {"q4_0": 1.0}},
        {"flops_per_s": {"fp32": float("inf")}},
        {"memory_bytes": float("nan")},
        {"device_kind": "abacus"},
        {"device_name": 5},
        {"threads": None},
    ],
)
def test_a_broken_file_is_an_error_and_does_not_hide_the_catalogue(
    content: str | dict[str, Any], state_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = content if isinstance(content, str) else _saved(content)
    calibration_path().write_text(text, encoding="latin-1")
    with pytest.raises(FileFormatError, match="calibrate again"):
        load_calibration()
    with caplog.at_level(logging.WARNING):
        assert all_hardware() == published_hardware()
    assert "calibrate again" in caplog.text
    with pytest.raises(FileFormatError):
        get_hardware("this-machine")


@pytest.mark.parametrize(
    "changes",
    [
        {"bandwidth_bytes_per_s": float("inf")},
        {"memory_bytes": 0},
        {"flops_per_s": {"fp32": 0.0}},
        {"device_kind": ""},
    ],
)
def test_a_measurement_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|needed"):
        replace(MEASURED, **changes)


def test_a_failed_write_leaves_the_old_file(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_calibration(MEASURED)

    def refuse(source: str, target: str) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        save_calibration(replace(MEASURED, threads=8))
    assert load_calibration() == MEASURED
    assert len(list(state_dir.iterdir())) == 1
