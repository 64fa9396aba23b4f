"""How fast this machine really reads memory and multiplies matrices, measured in seconds.

Two numbers make a roofline. The read bandwidth: all threads stream through a buffer far larger
than the last-level cache. The GEMM rate per number format: dense products of the sizes that a
prefill is made of and larger. Each is the best *median* over a few access patterns or shapes,
because a roof is what the machine sustains, and its spread is kept beside it.
"""

from __future__ import annotations

import logging
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from filelock import FileLock

from engine.catalog.lane_calibration import LaneCalibration
from engine.catalog.this_machine import (
    Calibration,
    load_calibration,
    save_calibration,
    state_dir,
)
from engine.errors import FileFormatError
from engine.inference.device import Device, open_device

log = logging.getLogger(__name__)

_MIB = 2**20
_REPEATS = 5
_MIN_REPEATS = 3
# One pattern or shape stops repeating after this; keeps slow machines within seconds.
_BUDGET_S = 0.4
# A buffer this many times the last-level cache leaves at most 1/16 of the reads to it.
_CACHES = 16
_MIN_BUFFER = {"cpu": 256 * _MIB, "cuda": 1024 * _MIB}
_MEMORY_INFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")  # that of a container, of version 2
# A one-minute load above this share of the threads takes part of the machine away.
_BUSY = 0.5
# Columns of the matrix-vector product: long rows, so that a thread streams.
_ROW = 8192
# (M, K, N), small to large: a prefill of 512 tokens through a small model's feed-forward layer,
# then squares. A shape is only tried if the one before it was quick.
_SHAPES = {
    "cpu": ((512, 1536, 576), (1024, 1024, 1024), (2048, 2048, 2048)),
    "cuda": ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)),
}
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}


@dataclass(frozen=True, slots=True)
class Rate:
    """Something per second over several runs: the median, and the slowest and the fastest."""

    median: float
    low: float
    high: float
    how: str

    @property
    def spread(self) -> float:
        """The fastest minus the slowest run, over the median."""
        return (self.high - self.low) / self.median


def measure_bandwidth(device: torch.device) -> Rate:
    """Read bandwidth in byte/s: the best of a sum, a maximum and a matrix-vector product."""
    count = _buffer_bytes(device) // 4 // _ROW * _ROW
    # Written once, so that every page is really there; ones keep sums finite.
    values_n = torch.ones(count, dtype=torch.float32, device=device)
    integers_n = values_n.view(torch.int32)
    matrix_rc = values_n.view(-1, _ROW)
    vector_c = torch.ones(_ROW, dtype=torch.float32, device=device)
    patterns: dict[str, Callable[[], object]] = {
        "sum": values_n.sum,
        "maximum": integers_n.max,
        "matrix-vector product": lambda: torch.mv(matrix_rc, vector_c),
    }
    num_bytes = count * 4
    rates = [_rate(num_bytes, run, device, how) for how, run in patterns.items()]
    return max(rates, key=lambda rate: rate.median)


def measure_gemm(device: torch.device, number_format: str) -> Rate | None:
    """Dense matrix products in FLOP/s (two per multiply-add), or None where torch has none.

    ``number_format``: ``fp32`` (never TF32), ``bf16``, or ``int8`` with 32-bit sums.

    Raises:
        torch.OutOfMemoryError: there is no memory for even the smallest product.
    """
    best: Rate | None = None
    for m, k, n in _SHAPES[device.type]:
        started = time.perf_counter()
        try:
            run = _gemm(device, number_format, m, k, n)
            rate = _rate(2.0 * m * k * n, run, device, f"{m} x {k} x {n}")
        except RuntimeError as error:
            if best is None and isinstance(error, torch.OutOfMemoryError):
                raise
            # No kernel for this format here, or no memory for a larger shape: a number that is
            # missing, not a failure.
            return best
        if best is None or rate.median > best.median:
            best = rate
        if time.perf_counter() - started > 2 * _BUDGET_S:
            break
    return best


def measure_machine(device: Device) -> Calibration:
    """Measure bandwidth and GEMM rates of a device; takes a few seconds and 256 MiB or more."""
    torch_device = device.torch_device
    bandwidth = measure_bandwidth(torch_device)
    gemms = {name: measure_gemm(torch_device, name) for name in _DTYPES}
    rates = {name: rate for name, rate in gemms.items() if rate is not None}
    return Calibration(
        bandwidth_bytes_per_s=bandwidth.median,
        flops_per_s={name: rate.median for name, rate in rates.items()},
        memory_bytes=memory_bytes(torch_device),
        device_name=device.name,
        device_kind=device.kind,
        torch_version=torch.__version__,
        threads=device.threads,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        spread={
            "bandwidth": bandwidth.spread,
            **{name: rate.spread for name, rate in rates.items()},
        },
    )


def ensure_calibrated(device: str = "auto") -> Calibration:
    """The saved calibration if it is of this very device, torch and thread count; else measure.

    Of two processes that ask at once, one measures and the other takes its answer.

    Raises:
        InvalidRequest, EngineUnavailable: there is no such device, see ``open_device``.
        OSError: the state folder cannot be written.
        RuntimeError: torch failed to measure, for one because others fill the GPU's memory.
    """
    opened = open_device(device)
    with _calibration_lock():
        saved = _load_readable()
        if saved is not None and describes(saved, opened):
            return saved
        return _measure_and_save(opened)


def calibrate_now(device: str = "auto") -> Calibration:
    """Measure and save, whatever was saved before. Raises as ``ensure_calibrated``."""
    opened = open_device(device)
    with _calibration_lock():
        return _measure_and_save(opened)


def save_with_lane(calibration: Calibration, lane: LaneCalibration) -> Calibration:
    """Keep a calibration with a further lane, and with those that are known of the same device.

    Raises:
        OSError: the state folder cannot be written.
    """
    with _calibration_lock():
        whole = _with_known_lanes(calibration).with_lane(lane)
        save_calibration(whole)
        return whole


def describes(calibration: Calibration, device: Device) -> bool:
    """Whether a calibration was made on this device, with this torch and as many threads."""
    now = (device.kind, device.name, torch.__version__, device.threads)
    return _device_of(calibration) == now


def _device_of(calibration: Calibration) -> tuple[str, str, str, int]:
    return (
        calibration.device_kind,
        calibration.device_name,
        calibration.torch_version,
        calibration.threads,
    )


def _calibration_lock() -> FileLock:
    folder = state_dir()
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "calibration.lock")


def _measure_and_save(device: Device) -> Calibration:
    load = os.getloadavg()[0]
    if load > _BUSY * device.threads:
        log.warning(
            "other programs keep this machine busy (load %.1f), so it may be measured as slower "
            "than it is; calibrate again when it is quiet",
            load,
        )
    measured = _with_known_lanes(measure_machine(device))
    save_calibration(measured)
    return measured


def _with_known_lanes(measured: Calibration) -> Calibration:
    """With the lanes that were measured on the same device before: that is done by hand."""
    saved = _load_readable()
    if saved is None or _device_of(saved) != _device_of(measured):
        return measured
    return replace(measured, lanes=saved.lanes)


def _load_readable() -> Calibration | None:
    try:
        return load_calibration()
    except FileFormatError as error:
        log.warning("measuring this machine again: %s", error)
        return None


def memory_bytes(device: torch.device) -> int:
    """The device's memory; on the CPU no more than a container may use."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _CGROUP / "memory.max"
    text = limit.read_text(encoding="ascii").strip() if limit.exists() else "max"
    return min(physical, int(text)) if text.isdigit() else physical


def free_bytes(device: torch.device) -> int:
    """What of the device's memory nobody uses now, other processes included; on the CPU no more
    than is left of what a container may use."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    total = memory_bytes(device) - _cgroup_used_bytes()
    if not _MEMORY_INFO.exists():  # only Linux tells it there
        return total
    for line in _MEMORY_INFO.read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return min(total, int(line.split()[1]) * 1024)
    return total


def _cgroup_used_bytes() -> int:
    """What a container uses of its limit; pages of files do not count, the kernel drops them when
    memory gets scarce. 0 where there is no limit."""
    limit = _CGROUP / "memory.max"
    if not limit.exists() or limit.read_text(encoding="ascii").strip() == "max":
        return 0
    used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
    lines = (_CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    counts = dict(line.split() for line in lines)
    files = sum(int(counts.get(name, 0)) for name in ("active_file", "inactive_file"))
    return max(used - files, 0)


def last_level_cache_bytes() -> int:
    """The largest cache that Linux reports for the first core, or 32 MiB where it reports none."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "")
        sizes.append(int(number) * units.get(unit, 1))
    return max(sizes) or 32 * _MIB


def _buffer_bytes(device: torch.device) -> int:
    wanted = _MIN_BUFFER[device.type]
    if device.type == "cpu":
        wanted = max(wanted, _CACHES * last_level_cache_bytes())
    # Measuring must not push anyone out who shares the memory.
    return min(wanted, memory_bytes(device) // 8, free_bytes(device) // 2)


def _gemm(
    device: torch.device, number_format: str, m: int, k: int, n: int
) -> Callable[[], torch.Tensor]:
    """A product of an [m, k] and the transpose of an [n, k] matrix, as linear layers store it."""
    dtype = _DTYPES[number_format]
    generator = torch.Generator(device).manual_seed(0)
    if dtype == torch.int8:
        shape = {"device": device, "dtype": dtype, "generator": generator}
        left_mk = torch.randint(-127, 128, (m, k), **shape)
        right_nk = torch.randint(-127, 128, (n, k), **shape)
        # The one way to torch's int8 kernels outside of its quantization modules.
        return lambda: torch._int_mm(left_mk, right_nk.t())  # pyright: ignore[reportPrivateImportUsage]
    left_mk = torch.randn(m, k, device=device, generator=generator).to(dtype)
    right_nk = torch.randn(n, k, device=device, generator=generator).to(dtype)
    return lambda: torch.mm(left_mk, right_nk.t())


def _rate(amount: float, run: Callable[[], object], device: torch.device, how: str) -> Rate:
    """``amount`` per second: the median of up to 5 runs after a warm-up that is not counted."""
    timer = _time_on_gpu if device.type == "cuda" else _time_on_cpu
    timer(run)
    started = time.perf_counter()
    seconds: list[float] = []
    while len(seconds) < _REPEATS:
        seconds.append(timer(run))
        if len(seconds) >= _MIN_REPEATS and time.perf_counter() - started > _BUDGET_S:
            break
    return Rate(
        median=amount / statistics.median(seconds),
        low=amount / max(seconds),
        high=amount / min(seconds),
        how=how,
    )


def _time_on_cpu(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _time_on_gpu(run: Callable[[], object]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3
