"""Measuring this machine: the arithmetic of a rate, what is kept, and when it is measured again."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from engine.catalog.hardware import get_hardware
from engine.catalog.this_machine import (
    Calibration,
    calibration_path,
    load_calibration,
    save_calibration,
)
from engine.commands.calibrate import calibrate, ridge_points
from engine.inference import calibration as subject
from engine.inference.device import Device, open_device

CPU = torch.device("cpu")
MIB = 2**20


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float]], None]:
    """Replaces the stopwatch: every run takes the next of the given times."""

    def use(times: list[float]) -> None:
        queue: Iterator[float] = iter(times)
        monkeypatch.setattr(subject, "_time_on_cpu", lambda _: next(queue))

    return use


def rate(amount: float) -> subject.Rate:
    return subject._rate(amount, lambda: None, CPU, "test")


def test_a_rate_is_the_amount_over_the_median_time_without_the_warm_up(seconds):
    seconds([99.0, 4.0, 1.0, 2.0, 3.0, 5.0])
    measured = rate(8.0)
    assert measured.median == 8.0 / 3.0
    assert measured.low == 8.0 / 5.0
    assert measured.high == 8.0 / 1.0
    assert measured.spread == pytest.approx((8.0 - 8.0 / 5.0) / (8.0 / 3.0))


def test_slow_runs_are_repeated_less(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "_BUDGET_S", 0.0)
    calls = []
    subject._rate(1.0, lambda: calls.append(0), CPU, "test")
    assert len(calls) == 1 + subject._MIN_REPEATS


def test_a_matrix_product_counts_two_operations_per_multiply_add(monkeypatch, seconds):
    monkeypatch.setattr(subject, "_SHAPES", {"cpu": ((8, 16, 32),)})
    seconds([0.5] * 6)
    measured = subject.measure_gemm(CPU, "fp32")
    assert measured is not None
    assert measured.median == 2 * 8 * 16 * 32 / 0.5


@pytest.mark.parametrize("number_format", ["fp32", "bf16", "int8"])
def test_the_timed_product_is_the_product(number_format: str):
    product = subject._gemm(CPU, number_format, 8, 32, 16)()
    assert product.shape == (8, 16)
    assert (
        product.dtype
        == {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int32}[number_format]
    )
    assert product.abs().sum() > 0


def test_the_best_shape_counts(monkeypatch, seconds):
    monkeypatch.setattr(subject, "_SHAPES", {"cpu": ((8, 8, 8), (16, 16, 16))})
    seconds([1.0] * 6 + [100.0] * 6)
    measured = subject.measure_gemm(CPU, "fp32")
    assert measured is not None
    assert measured.median == 2 * 8**3


def test_a_format_without_a_kernel_has_no_rate(monkeypatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("not implemented for this type")

    monkeypatch.setattr(subject, "_gemm", refuse)
    assert subject.measure_gemm(CPU, "int8") is None


def test_no_memory_for_a_product_is_a_failure_and_not_a_missing_kernel(monkeypatch, seconds):
    def full(device: torch.device, number_format: str, m: int, k: int, n: int):
        if m > room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return lambda: None

    monkeypatch.setattr(subject, "_gemm", full)
    monkeypatch.setattr(subject, "_SHAPES", {"cpu": ((8, 8, 8), (16, 16, 16))})
    room = 4
    with pytest.raises(torch.OutOfMemoryError):
        subject.measure_gemm(CPU, "fp32")
    room = 8
    seconds([1.0] * 6)
    measured = subject.measure_gemm(CPU, "fp32")
    assert measured is not None
    assert measured.median == 2 * 8**3


def test_the_buffer_is_far_larger_than_the_last_level_cache(monkeypatch):
    monkeypatch.setattr(subject, "free_bytes", lambda device: 2**50)
    assert subject.last_level_cache_bytes() >= MIB // 4
    wanted = max(256 * MIB, 16 * subject.last_level_cache_bytes())
    assert subject._buffer_bytes(CPU) == min(wanted, subject.memory_bytes(CPU) // 8)


@pytest.mark.parametrize("free", [100 * MIB, 300 * MIB])
def test_the_buffer_leaves_half_of_the_free_memory_of_a_shared_gpu(free: int, monkeypatch):
    monkeypatch.setattr(subject, "memory_bytes", lambda device: 80 * 2**30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 80 * 2**30))
    assert subject._buffer_bytes(torch.device("cuda")) == free // 2


def test_free_memory_of_this_machine(monkeypatch, tmp_path):
    assert 0 < subject.free_bytes(CPU) <= subject.memory_bytes(CPU)
    info = tmp_path / "meminfo"
    monkeypatch.setattr(subject, "_MEMORY_INFO", info)
    monkeypatch.setattr(subject, "_CGROUP", tmp_path / "none")
    assert subject.free_bytes(CPU) == subject.memory_bytes(CPU)
    info.write_text("MemTotal:  999 kB\nMemAvailable:    3072 kB\n", encoding="ascii")
    assert subject.free_bytes(CPU) == 3 * MIB


def test_free_memory_is_what_a_container_has_left(monkeypatch, tmp_path):
    info, cgroup = tmp_path / "meminfo", tmp_path / "cgroup"
    cgroup.mkdir()
    monkeypatch.setattr(subject, "_MEMORY_INFO", info)
    monkeypatch.setattr(subject, "_CGROUP", cgroup)
    info.write_text("MemAvailable:    51200 kB\n", encoding="ascii")
    (cgroup / "memory.max").write_text(f"{64 * MIB}\n", encoding="ascii")
    (cgroup / "memory.current").write_text(f"{50 * MIB}\n", encoding="ascii")
    stat = f"anon 1\nfile 2\ninactive_file {3 * MIB}\nactive_file {5 * MIB}\n"
    (cgroup / "memory.stat").write_text(stat, encoding="ascii")
    assert subject.free_bytes(CPU) == (64 - (50 - 8)) * MIB
    info.write_text("MemAvailable:    1024 kB\n", encoding="ascii")
    assert subject.free_bytes(CPU) == MIB
    (cgroup / "memory.max").write_text("max\n", encoding="ascii")
    info.write_text("MemAvailable:    51200 kB\n", encoding="ascii")
    assert subject.free_bytes(CPU) == 50 * MIB


def test_memory_is_no_more_than_the_machine_has():
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    total = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal"))
    assert 0 < subject.memory_bytes(CPU) <= total


@pytest.mark.serial
def test_bandwidth_agrees_with_an_independent_read():
    measured = subject.measure_bandwidth(CPU)
    values = np.ones(64 * MIB, dtype=np.float32)
    best = min(timed(values.max) for _ in range(5))
    # One thread of another library: the same order of magnitude, and not faster than it may be.
    assert 0.5 < measured.median / (values.nbytes / best) < 20
    assert measured.low <= measured.median <= measured.high


@pytest.mark.serial
def test_gemm_agrees_with_an_independent_product():
    measured = subject.measure_gemm(CPU, "fp32")
    left = np.ones((1024, 1024), dtype=np.float32)
    best = min(timed(lambda: left @ left) for _ in range(5))
    assert measured is not None
    assert 0.2 < measured.median / (2 * 1024**3 / best) < 20


def timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


# ── keeping it ───────────────────────────────────────────────────────────────────────────────


def some_calibration() -> Calibration:
    return Calibration(
        bandwidth_bytes_per_s=2e10,
        flops_per_s={"fp32": 1e11, "bf16": 4e11},
        memory_bytes=8 * 2**30,
        device_name=open_device("cpu").name,
        device_kind="cpu",
        torch_version=torch.__version__,
        threads=open_device("cpu").threads,
        date="2026-01-01T00:00:00+00:00",
        spread={"bandwidth": 0.1, "fp32": 0.2, "bf16": 0.3},
    )


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch, state_dir: Path) -> list[str]:
    """Replaces the measuring by a fixed answer; the list grows by one each time."""
    taken: list[str] = []

    def measure(device: Device) -> Calibration:
        taken.append(device.kind)
        time.sleep(0.05)
        return some_calibration()

    monkeypatch.setattr(subject, "measure_machine", measure)
    return taken


def test_the_first_call_measures_and_the_next_ones_remember(measurements: list[str]):
    first = subject.ensure_calibrated("cpu")
    assert subject.ensure_calibrated("cpu") == first == some_calibration()
    assert measurements == ["cpu"]


@pytest.mark.parametrize(
    "changed",
    [
        {"threads": 1_000},
        {"torch_version": "1.0"},
        {"device_name": "another processor"},
        {"device_kind": "cuda"},
    ],
)
def test_a_calibration_of_something_else_is_not_used(measurements: list[str], changed: dict):
    save_calibration(dataclasses.replace(some_calibration(), **changed))
    subject.ensure_calibrated("cpu")
    assert measurements == ["cpu"]
    assert load_calibration() == some_calibration()


def test_a_broken_file_is_measured_again(measurements: list[str]):
    save_calibration(some_calibration())
    calibration_path().write_text("{", encoding="utf-8")
    assert subject.ensure_calibrated("cpu") == some_calibration()
    assert measurements == ["cpu"]


def test_calibrating_on_purpose_always_measures(measurements: list[str]):
    subject.calibrate_now("cpu")
    subject.calibrate_now("cpu")
    assert measurements == ["cpu", "cpu"]


@pytest.mark.parametrize(("load", "warnings"), [(0.1, 0), (50.0, 1)])
def test_a_busy_machine_is_told(measurements, monkeypatch, caplog, load: float, warnings: int):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    subject.calibrate_now("cpu")
    assert len([record for record in caplog.records if "busy" in record.message]) == warnings


def test_two_at_once_measure_once(measurements: list[str]):
    threads = [threading.Thread(target=subject.ensure_calibrated, args=("cpu",)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert measurements == ["cpu"]


# ── the command ──────────────────────────────────────────────────────────────────────────────


def invoke(*arguments: str):
    app = typer.Typer()
    app.command()(calibrate)
    return CliRunner().invoke(app, arguments)


def test_the_command_prints_a_document_with_ridge_points(measurements: list[str]):
    result = invoke("--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["bandwidth"] == {
        "value": 2e10,
        "unit": "B/s",
        "kind": "measured",
        "spread": 0.1,
    }
    assert document["flops"]["bf16"]["value"] == 4e11
    assert document["ridge_points"]["bf16"]["value"] == pytest.approx(20.0)
    assert document["path"] == str(calibration_path())


def test_the_command_prints_a_table(measurements: list[str]):
    output = invoke().stdout
    for text in ("20.0 GB/s", "100 GFLOP/s", "400 GFLOP/s", "20.0 FLOP/B", "30%"):
        assert text in output


def test_an_unknown_device_is_refused_by_name(measurements: list[str]):
    result = invoke("--device", "abacus")
    assert result.exit_code == 2
    assert "--device" in result.output
    assert measurements == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied"), "FIRSTTOKEN_STATE"),
        (RuntimeError("CUDA out of memory.\nmore"), "CUDA out of memory."),
    ],
)
def test_a_failure_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str):
    def fail(device: str) -> None:
        raise error

    monkeypatch.setattr(subject, "calibrate_now", fail)
    result = invoke()
    assert result.exit_code == 1
    assert words in result.output
    assert len(result.output.splitlines()) == 1


@pytest.mark.serial
def test_this_machine_is_measured_in_seconds_and_joins_the_catalogue(state_dir: Path):
    started = time.perf_counter()
    measured = subject.calibrate_now("cpu")
    assert time.perf_counter() - started < 15
    assert {"fp32", "bf16"} <= measured.flops_per_s.keys()
    here = get_hardware("this-machine")
    assert here.kind == "measured"
    assert here.bandwidth == measured.bandwidth_bytes_per_s
    assert here.ridge_point("fp32") == pytest.approx(ridge_points(measured)["fp32"])
