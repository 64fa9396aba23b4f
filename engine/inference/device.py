"""Where the model runs, in which number format, and with how many threads."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.errors import EngineUnavailable, InvalidRequest

DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""The number formats that the engine computes in, by the names it shows."""

# Parameters of glibc's mallopt, and what this process sets them to. Its manual allows a mapping
# threshold of up to 32 MiB, to which older versions hold; newer ones take more.
_M_TRIM_THRESHOLD, _KEPT_BYTES = -1, 512 * 2**20
_M_MMAP_THRESHOLD, _MAPPED_BYTES = -3, (64 * 2**20, 32 * 2**20)

_CPU_INFO = Path("/proc/cpuinfo")
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_CPU_TOPOLOGY = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Device:
    """``kind`` is ``cpu`` or ``cuda``; ``name`` is for people; ``threads`` work on the CPU."""

    kind: str
    name: str
    threads: int
    default_dtype: str

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self.kind)


def open_device(requested: str = "auto") -> Device:
    """Choose a device and set torch up for it, once in a process.

    ``auto`` takes CUDA where torch sees a GPU, else the CPU.

    Raises:
        InvalidRequest: no such kind of device.
        EngineUnavailable: CUDA was asked for by name and torch sees no GPU.
    """
    if requested not in ("auto", "cpu", "cuda"):
        raise InvalidRequest("choose one of auto, cpu, cuda", field="device")
    has_cuda = torch.cuda.is_available()
    if requested == "cuda" and not has_cuda:
        raise EngineUnavailable("torch sees no CUDA device here", field="device")
    kind = "cuda" if has_cuda and requested != "cpu" else "cpu"
    # float32 is the exact reference lane: no TF32 on a GPU, no hidden bfloat16 on a CPU.
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    if kind == "cpu":
        keep_freed_memory()
    threads = thread_count()
    torch.set_num_threads(threads)
    name = torch.cuda.get_device_name() if kind == "cuda" else cpu_name()
    return Device(kind, name, threads, default_dtype(kind))


def keep_freed_memory() -> bool:
    """Let glibc keep the memory of a step's tensors for the next step; False on other systems.

    By default it gives a few megabytes back to the system after every step and takes them again,
    and each page of them costs a fault: a tenth of the time of a step of 32 sequences.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library, such as musl
        return False
    # Setting either ends glibc's own adjusting of both, so one without the other would be worse
    # than neither.
    mapped = any(mallopt(_M_MMAP_THRESHOLD, size) for size in _MAPPED_BYTES)
    return mapped and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


def default_dtype(kind: str) -> str:
    """bfloat16 where the device multiplies it natively, float32 elsewhere."""
    native = cuda_multiplies_bfloat16() if kind == "cuda" else cpu_multiplies_bfloat16()
    return "bfloat16" if native else "float32"


def resolve_dtype(name: str, kind: str) -> torch.dtype:
    """The torch dtype of ``auto``, ``float32`` or ``bfloat16``.

    Raises:
        InvalidRequest: another name.
    """
    chosen = default_dtype(kind) if name == "auto" else name
    if chosen not in DTYPES:
        raise InvalidRequest(f"choose one of auto, {', '.join(DTYPES)}", field="dtype")
    return DTYPES[chosen]


def cuda_multiplies_bfloat16() -> bool:
    """Whether the GPU has bfloat16 in its units: NVIDIA's from Ampere on. P100, V100 and T4 only
    emulate it, slower than they compute in float32."""
    return torch.cuda.is_bf16_supported(including_emulation=False)


def cpu_multiplies_bfloat16() -> bool:
    """Whether the CPU has dot products of bfloat16 (AVX512_BF16, AMX or Arm BF16).

    Without them bfloat16 is emulated and slower than float32.
    """
    if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return True
    return platform.machine() == "aarch64" and "bf16" in _cpu_field("Features").split()


def cpu_name() -> str:
    """The processor's name, or its architecture where the system tells no name."""
    return _cpu_field("model name") or platform.processor() or platform.machine() or "CPU"


def thread_count() -> int:
    """Physical cores that this process may use: affinity, hyper-threads and cgroup quota counted.

    ``OMP_NUM_THREADS`` overrules, as everywhere else. Two hyper-threads of one core only fight
    for its vector units in a matrix multiplication.
    """
    configured = os.environ.get("OMP_NUM_THREADS", "")
    if configured.isdigit() and int(configured) > 0:
        return int(configured)
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = {_core_of(cpu) for cpu in os.sched_getaffinity(0)}
    return max(1, min(len(cores), _cgroup_cores()))


def _core_of(cpu: int) -> str:
    """A name shared by all hyper-threads of one core."""
    siblings = _CPU_TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    return siblings.read_text() if siblings.exists() else str(cpu)


def _cgroup_cores() -> int:
    """Whole cores in the cgroup's quota; all of them where there is no quota."""
    if _CGROUP_QUOTA.exists():
        quota, period = _CGROUP_QUOTA.read_text().split()
        if quota != "max":
            return max(1, int(quota) // int(period))
    return os.cpu_count() or 1


def _cpu_field(field: str) -> str:
    if not _CPU_INFO.exists():
        return ""
    for line in _CPU_INFO.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == field:
            return value.strip()
    return ""
