"""Turns measured rows into scenarios: what ran, on what, in which formats, how it was divided.

Whatever a source leaves open and a prediction needs is assumed here, in one place, and named in
``Case.assumed``. A row that cannot become a scenario gives its reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from engine.catalog.device import HardwareSpec
from engine.catalog.hardware import published_hardware, read_device
from engine.catalog.loading import Table
from engine.catalog.model_reading import read_model
from engine.catalog.models import ModelSpec, all_models
from engine.catalog.precision import NumberFormat, get_format, mixed_format
from engine.simulator.formats import StorageFormats
from engine.simulator.layout import Layout
from engine.simulator.validation.measurement import Measurement, data_folder

UNSTATED_CONTEXT = 256
"""Positions in the cache where a decode rate comes without them: too few to matter."""
SHORT_PROMPT = 32
"""Tokens of "one short prompt"."""
MLPERF_PROMPT = 222
"""Mean prompt of the OpenOrca sample of MLPerf Inference 4.1; its logs do not give lengths."""
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Unusable:
    """A row that no scenario can be made of, and why."""

    measurement: Measurement
    reason: str


@dataclass(frozen=True, slots=True)
class Case:
    """A measured row as a scenario. ``batch`` is None where the engine or a rate decides it."""

    measurement: Measurement
    model: ModelSpec
    hardware: HardwareSpec
    formats: StorageFormats
    engine: str
    layout: Layout
    batch: int | None
    prompt: int
    output: int
    depth: int
    chunk: int | None
    dense_bits: float
    assumed: tuple[str, ...]

    @property
    def flash(self) -> bool | None:
        """Attention without a matrix of scores; None is as the engine usually does."""
        stated = self.measurement.detail.get("flash")
        return None if stated is None else stated == "1"


@cache
def _names() -> Mapping[str, Mapping[str, object]]:
    return tomllib.loads((data_folder() / "names.toml").read_text(encoding="utf-8"))


@cache
def known_models() -> Mapping[str, ModelSpec]:
    """The catalogue's models and those that were measured beside them, by id."""
    text = (data_folder() / "models.toml").read_text(encoding="utf-8")
    table = Table(tomllib.loads(text), "measurements/models.toml")
    family = table.text("family")
    measured = [read_model(entry, family) for entry in table.tables("models")]
    return {spec.id: spec for spec in (*measured, *all_models())}


@cache
def known_devices() -> Mapping[str, HardwareSpec]:
    """The catalogue's devices and those that were measured beside them, by id."""
    text = (data_folder() / "devices.toml").read_text(encoding="utf-8")
    table = Table(tomllib.loads(text), "measurements/devices.toml")
    measured = [
        read_device(entry, entry.text("vendor"), entry.text("category"))
        for entry in table.tables("devices")
    ]
    return {spec.id: spec for spec in (*measured, *published_hardware())}


def make_case(row: Measurement) -> Case | Unusable:
    """The scenario of a row, or why there is none."""
    model = _model(row.model)
    if model is None:
        return Unusable(row, "the model's structure is not known")
    if "hybrid_cpu_gpu_offload" in row.flags:
        return Unusable(row, "a CPU and a GPU share the model")
    hardware = find_device(row.device)
    if hardware is None:
        return Unusable(row, "the device is not known")
    if "thread_limited" in row.flags:
        return Unusable(row, "runs on fewer threads than the processor has cores")
    assumed: list[str] = []
    formats = _formats(row, model)
    if formats is None:
        return Unusable(row, "the number format is not known")
    lengths = _lengths(row, assumed)
    if lengths is None:
        return Unusable(row, "no prompt length")
    engine = find_engine(row, hardware)
    if engine is None:
        return Unusable(row, "the engine is not known")
    layout = _layout(row, model, hardware, formats, engine)
    chunk = int(row.batch) if row.batch_kind == "microbatch_tokens" else None
    return Case(
        measurement=row,
        model=model,
        hardware=_limited(row, hardware),
        formats=formats,
        engine=engine,
        layout=layout,
        batch=_batch(row),
        prompt=lengths[0],
        output=lengths[1],
        depth=row.depth or 0,
        chunk=chunk,
        dense_bits=16.0 if _only_experts_packed(row) else formats.weights.bits,
        assumed=tuple(assumed),
    )


def _model(name: str) -> ModelSpec | None:
    alias = _names()["models"].get(name, name)
    return known_models().get(str(alias))


def find_device(label: str) -> HardwareSpec | None:
    """The device that a source's label names; Apple's by chip and number of GPU cores."""
    found = _names()["devices"].get(label)
    if found is not None:
        return known_devices()[str(found)]
    match = re.match(r"(M\d)(?: (Pro|Max|Ultra))?\b(?:.*?(\d+)-[Cc]ore)?", label)
    if match is None:
        return None
    chip, grade, cores = match.groups()
    name = chip.lower() + (f"-{grade.lower()}" if grade else "")
    spec = known_devices().get(name)
    full = _names()["apple_cores"].get(name)
    if spec is None or cores is None or not isinstance(full, int):
        return spec
    share = int(cores) / full
    rates = {key: rate * share for key, rate in spec.dense_flops.items()}
    return replace(spec, dense_flops=rates)


def _limited(row: Measurement, hardware: HardwareSpec) -> HardwareSpec:
    """A processor with fewer threads than cores has that part of its arithmetic."""
    threads = next((flag[8:] for flag in row.flags if flag.startswith("threads=")), None)
    cores = {"ryzen-7950x": 16}.get(hardware.id)
    if threads is None or cores is None or int(threads) >= cores:
        return hardware
    share = int(threads) / cores
    rates = {key: rate * share for key, rate in hardware.dense_flops.items()}
    return replace(hardware, dense_flops=rates)


def find_engine(row: Measurement, hardware: HardwareSpec) -> str | None:
    """The engine that a source names, with the back end of llama.cpp and the age of vLLM."""
    lower = row.framework.lower()
    for text, name in _names()["engines"].items():
        if text not in lower:
            continue
        if name == "llama.cpp":
            backend = _backend(hardware)
            return (
                f"{backend}-2024" if backend == "llama.cpp-cuda" and _until_2024(row) else backend
            )
        return "vllm-v0" if name == "vllm" and _is_old(row) else str(name)
    return None


def is_old_vllm(version: str) -> bool | None:
    """vLLM before its engine was rewritten (0.8, January 2025); None where no version is told."""
    found = re.match(r"v?0\.(\d+)", version)
    return int(found.group(1)) < 8 if found else None


def _is_old(row: Measurement) -> bool:
    old = is_old_vllm(row.version)
    return _until_2024(row) if old is None else old


def _until_2024(row: Measurement) -> bool:
    years = re.findall(r"20\d\d", f"{row.date} {row.version}")
    return bool(years) and max(years) < "2025"


def _backend(hardware: HardwareSpec) -> str:
    if hardware.category == "cpu":
        return "llama.cpp-cpu"
    vendors = {"NVIDIA": "cuda", "AMD": "hip", "Apple": "metal", "Intel": "sycl"}
    return f"llama.cpp-{vendors.get(hardware.vendor, 'vulkan')}"


def _formats(row: Measurement, model: ModelSpec) -> StorageFormats | None:
    weights = _weights(row, model)
    if weights is None:
        return None
    fp8 = "declared_fp16_but_engines_run_fp8" in row.flags
    if "gpt_oss_weights_are_mxfp4_even_in_fp8_column" in row.flags:
        # Hopper multiplies no FP4: its kernels for such weights widen them to 16 bits.
        return StorageFormats(weights, get_format(_plain(row.kv, "fp16")), get_format("bf16"))
    kv = "fp8" if fp8 else _plain(row.kv, "fp16")
    stated = "fp8" if fp8 else _plain(row.activations, "")
    if not stated:
        name = row.weights.lower()
        if "w8a8" in name or "w4a8" in name:
            stated = "int8"
        else:
            stated = weights.name if weights.name in ("fp8", "bf16") else "fp16"
    return StorageFormats(weights, get_format(kv), get_format(stated))


def _only_experts_packed(row: Measurement) -> bool:
    """MXFP4 checkpoints keep everything but their experts in 16 bits."""
    return "MXFP4" in row.weights


def _weights(row: Measurement, model: ModelSpec) -> NumberFormat | None:
    if "declared_fp16_but_engines_run_fp8" in row.flags:
        return get_format("fp8")
    if _only_experts_packed(row):
        return get_format("mxfp4")
    if row.weight_gib is not None:
        bits = row.weight_gib * _GIB * 8 / model.num_parameters
        return mixed_format(round(bits, 2))
    match = re.match(r"EXL2-([\d.]+)bpw", row.weights)
    if match:
        return mixed_format(float(match.group(1)))
    name = re.split(r"[ /]", row.weights.strip())[0].upper()
    bits = _names()["bits"].get(name)
    if name in ("FP16", "BF16", "FP8", "INT8", "F16", "FP32", "MXFP4", "NVFP4"):
        return get_format(name)
    return mixed_format(float(str(bits))) if bits is not None else None


def _plain(name: str, missing: str) -> str:
    """A format of activations or of the cache, as the catalogue names it."""
    lower = name.lower()
    known = (("fp8", "fp8"), ("fp4", "fp4"), ("bf16", "bf16"), ("int4", "int4"), ("f16", "fp16"))
    for text, result in (*known, ("fp16", "fp16"), ("int16", "fp16"), ("int8", "int8")):
        if text in lower:
            return result
    return missing


def _batch(row: Measurement) -> int | None:
    if row.batch_kind in ("static", "microbatch_tokens"):
        return 1 if row.batch_kind == "microbatch_tokens" or not row.batch else int(row.batch)
    return (
        int(row.batch)
        if row.batch_kind in ("concurrency", "max_batch_that_fits") and row.batch
        else None
    )


def _lengths(row: Measurement, assumed: list[str]) -> tuple[int, int] | None:
    prompt, output = row.prompt_tokens, row.output_tokens
    if row.batch_kind.startswith("mlperf"):
        assumed.append(f"prompts of {MLPERF_PROMPT} tokens")
        return MLPERF_PROMPT, round(output or 0)
    if row.metric == "decode_tok_s_per_seq" or (row.metric == "tpot_ms" and not output):
        if not output:
            if prompt is None:
                assumed.append(f"{UNSTATED_CONTEXT} positions in the cache")
            return (UNSTATED_CONTEXT if prompt is None else prompt), 128
        return prompt or 0, round(output)
    if prompt is None and row.metric == "output_tok_s_total" and row.batch == "1" and output:
        assumed.append(f"a prompt of {SHORT_PROMPT} tokens")
        return SHORT_PROMPT, round(output)
    if prompt is None:
        return None
    return prompt, round(output or 0)


def _layout(
    row: Measurement,
    model: ModelSpec,
    hardware: HardwareSpec,
    formats: StorageFormats,
    engine: str,
) -> Layout:
    text, devices = row.parallelism.lower(), row.devices
    if devices == 1:
        return Layout()
    match = re.match(r"(tp|dep)(\d+)", text)
    if match and match.group(1) == "dep":
        return Layout(data=devices, experts=True)
    if match and engine == "neuronx":
        return Layout(tensor=devices)
    if match:
        tensor = min(int(match.group(2)), devices)
        return Layout(tensor=tensor, data=devices // tensor)
    if "node" in text:
        tensor = _smallest_group(model, hardware, formats, devices)
        return Layout(tensor=tensor, data=devices // tensor)
    if "layer-split" in text or engine.startswith("llama.cpp"):
        return Layout(stages=devices)
    return Layout(tensor=devices)


def _smallest_group(
    model: ModelSpec, hardware: HardwareSpec, formats: StorageFormats, devices: int
) -> int:
    """Devices that share a copy: the fewest (a power of two) that leave a quarter for the cache."""
    size = formats.weights.bytes_for(model.num_parameters)
    group = 1
    while group < devices and size > 0.75 * group * hardware.memory_bytes:
        group *= 2
    return group
