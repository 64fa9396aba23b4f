"""Which device, which number format, how many threads."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.errors import EngineUnavailable, InvalidRequest
from engine.inference import device as devices


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without a GPU and with a CPU whose features the test decides."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for feature in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, feature, lambda: False)
    monkeypatch.setattr(devices, "_CPU_INFO", Path("/nonexistent"))
    return monkeypatch


def test_this_machine() -> None:
    device = devices.open_device()
    assert device.kind == ("cuda" if torch.cuda.is_available() else "cpu")
    assert device.torch_device.type == device.kind
    assert device.name.strip()
    assert torch.get_num_threads() == device.threads >= 1
    assert torch.get_float32_matmul_precision() == "highest"


def test_float32_without_native_bfloat16(cpu: pytest.MonkeyPatch) -> None:
    assert devices.default_dtype("cpu") == "float32"
    assert devices.resolve_dtype("auto", "cpu") is torch.float32
    assert devices.resolve_dtype("bfloat16", "cpu") is torch.bfloat16
    assert devices.default_dtype("cuda") == "bfloat16"


@pytest.mark.parametrize("feature", ["_is_avx512_bf16_supported", "_is_amx_tile_supported"])
def test_bfloat16_where_an_x86_cpu_multiplies_it(cpu: pytest.MonkeyPatch, feature: str) -> None:
    cpu.setattr(torch.cpu, feature, lambda: True)
    assert devices.default_dtype("cpu") == "bfloat16"


def test_bfloat16_where_an_arm_cpu_multiplies_it(cpu: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    cpu.setattr(devices, "_CPU_INFO", info)
    cpu.setattr(devices.platform, "machine", lambda: "aarch64")
    info.write_text("Features\t: fp asimd i8mm\n")
    assert devices.default_dtype("cpu") == "float32"
    info.write_text("Features\t: fp asimd i8mm bf16\n")
    assert devices.default_dtype("cpu") == "bfloat16"


def test_cpu_name(cpu: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpu.setattr(devices.platform, "processor", lambda: "some processor")
    assert devices.cpu_name() == "some processor"
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Fast CPU: the second\n\nprocessor\t: 1\n")
    cpu.setattr(devices, "_CPU_INFO", info)
    assert devices.cpu_name() == "Fast CPU: the second"


@pytest.mark.parametrize("name", ["gpu", "", "cuda:99", "CPU"])
def test_unknown_devices_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        devices.open_device(name)
    assert caught.value.field == "device"


def test_cuda_by_name_without_a_gpu_is_an_error(cpu: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineUnavailable):
        devices.open_device("cuda")


def test_unknown_dtypes_are_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        devices.resolve_dtype("float16", "cpu")
    assert caught.value.field == "dtype"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Four cores with two hyper-threads each: CPUs n and n + 4 are one core."""
    for number in range(8):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(devices, "_CPU_TOPOLOGY", tmp_path)
    monkeypatch.setattr(devices, "_CGROUP_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(devices.os, "cpu_count", lambda: 8)
    return monkeypatch


def test_threads_are_physical_cores(machine: pytest.MonkeyPatch) -> None:
    assert devices.thread_count() == 4


def test_threads_respect_affinity(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(devices.os, "sched_getaffinity", lambda _: {1, 2, 5})
    assert devices.thread_count() == 2


@pytest.mark.parametrize(
    ("quota", "threads"), [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1)]
)
def test_threads_respect_the_cgroup(
    machine: pytest.MonkeyPatch, tmp_path: Path, quota: str, threads: int
) -> None:
    (tmp_path / "cpu.max").write_text(quota + "\n")
    assert devices.thread_count() == threads


def test_threads_can_be_set_by_hand(machine: pytest.MonkeyPatch) -> None:
    machine.setenv("OMP_NUM_THREADS", "3")
    assert devices.thread_count() == 3
    machine.setenv("OMP_NUM_THREADS", "many")
    assert devices.thread_count() == 4


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has glibc's mallopt")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    assert devices.keep_freed_memory()

    def faults_of_a_step() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        first = torch.ones(2_000_000)
        second = first + 1
        del first, second
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    pages_of_a_step = 2 * 2_000_000 * 4 // resource.getpagesize()
    faults_of_a_step()
    assert min(faults_of_a_step() for _ in range(5)) < pages_of_a_step / 10
