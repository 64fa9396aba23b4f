"""Which device, which number format, how many threads."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

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


@pytest.mark.parametrize(
    ("compute_capability", "dtype"),
    [((6, 0), "float32"), ((7, 5), "float32"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16")],
)
def test_bfloat16_where_a_gpu_multiplies_it(
    compute_capability: tuple[int, int], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P100 is 6.0, T4 is 7.5: torch emulates bfloat16 there."""
    major, minor = compute_capability
    properties = SimpleNamespace(major=major, minor=minor)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert devices.default_dtype("cuda") == dtype
    assert devices.resolve_dtype("auto", "cuda") is devices.DTYPES[dtype]


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


class _LibC:
    """A C library that takes mapping thresholds up to a limit, and notes what it was asked."""

    def __init__(self, largest_mapping_threshold: int) -> None:
        self._largest = largest_mapping_threshold
        self.taken: dict[int, int] = {}

    def mallopt(self, parameter: int, value: int) -> int:
        if parameter == -3 and value > self._largest:
            return 0
        self.taken[parameter] = value
        return 1


@pytest.mark.parametrize(
    ("largest", "taken"),
    [
        (2**40, {-3: 64 * 2**20, -1: 512 * 2**20}),
        (32 * 2**20, {-3: 32 * 2**20, -1: 512 * 2**20}),
        (0, {}),
    ],
)
def test_memory_is_kept_as_far_as_the_c_library_lets(
    largest: int, taken: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = _LibC(largest)
    monkeypatch.setattr(devices.sys, "platform", "linux")
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda _: library)
    assert devices.keep_freed_memory() == bool(taken)
    assert library.taken == taken


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_other_c_libraries_are_left_as_they_are(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """musl has no mallopt; beyond Linux nothing is even looked up."""
    monkeypatch.setattr(devices.sys, "platform", platform)
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda _: SimpleNamespace())
    assert not devices.keep_freed_memory()


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
