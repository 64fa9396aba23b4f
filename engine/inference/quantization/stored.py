"""Quantised weights on disk, for methods that take long enough to be worth keeping.

One ``.npz`` for each model and settings in the state folder. The key is a hash of every stored
tensor, of the settings, of the calibration text and of the methods' version, so that nothing stale
is ever read; a file that is damaged is made again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from engine.catalog.this_machine import state_dir
from engine.errors import FileFormatError
from engine.inference.lane_settings import QuantizationMethod, WeightSettings
from engine.inference.quantization.calibration_text import CALIBRATION, text_of
from engine.inference.quantization.packed import PackedTensor, pack
from engine.inference.quantization.quantize import (
    CALIBRATION_TOKENS,
    Progress,
    QuantizedWeights,
    quantize,
    quantized_names,
)
from engine.inference.weights.checkpoint import Checkpoint, stored_floats

log = logging.getLogger(__name__)

METHODS_VERSION = 1
"""One more whenever a method gives other weights than before."""

Arrays = dict[str, npt.NDArray[np.generic]]


def quantize_once(
    checkpoint: Checkpoint,
    settings: WeightSettings,
    progress: Progress = lambda share, what: None,
) -> QuantizedWeights:
    """``quantize``, but what AWQ and GPTQ made is kept and read the next time.

    Raises:
        InvalidRequest, UnsupportedModel: see ``quantize``.
    """
    if not settings.quantized or settings.method is QuantizationMethod.RTN:
        return quantize(checkpoint, settings, progress)
    path = _path(checkpoint, settings)
    if path.is_file():
        try:
            return _read(path, checkpoint, settings)
        except (OSError, FileFormatError) as error:
            log.warning("quantised weights on disk are made again: %s", error)
    weights = quantize(checkpoint, settings, progress)
    try:
        _write(path, weights)
    except OSError as error:
        log.warning("quantised weights are not kept: %s", error)
    return weights


def is_kept(checkpoint: Checkpoint, settings: WeightSettings) -> bool:
    """Whether ``quantize_once`` takes seconds: nothing to calibrate, or made and kept before."""
    calibrated = settings.quantized and settings.method is not QuantizationMethod.RTN
    return not calibrated or _path(checkpoint, settings).is_file()


def _path(checkpoint: Checkpoint, settings: WeightSettings) -> Path:
    return state_dir() / "quantized" / f"{_key(checkpoint, settings)}.npz"


def _key(checkpoint: Checkpoint, settings: WeightSettings) -> str:
    digest = hashlib.sha256()
    about = (METHODS_VERSION, settings.name, CALIBRATION_TOKENS, checkpoint.config)
    digest.update(repr(about).encode())
    digest.update(text_of(CALIBRATION).encode())
    for name in sorted(checkpoint.tensors):
        tensor = checkpoint.tensors[name]
        digest.update(f"{name} {tensor.storage.name} {tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor.stored).data)
    return digest.hexdigest()[:32]


def _write(path: Path, weights: QuantizedWeights) -> None:
    """Written beside its place and moved there whole: another process may read it any time."""
    arrays: Arrays = {}
    for name, matrix in weights.matrices.items():
        packed = pack(matrix)
        arrays[f"levels/{name}"] = packed.levels.numpy()
        arrays[f"scales/{name}"] = packed.scales_oq.numpy()
        arrays[f"format/{name}"] = np.array([packed.bits, packed.group_size])
        if packed.offsets_oq is not None:
            arrays[f"offsets/{name}"] = packed.offsets_oq.numpy()
    for name in _floats(weights.checkpoint):
        arrays[f"float/{name}"] = weights.checkpoint.tensor(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
        os.replace(beside, path)
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise


def _read(path: Path, checkpoint: Checkpoint, settings: WeightSettings) -> QuantizedWeights:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = dict(file)
        matrices = {
            name: _matrix(arrays, name).unpack() for name in quantized_names(checkpoint.config)
        }
        floats = {name: stored_floats(arrays[f"float/{name}"]) for name in _floats(checkpoint)}
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"{path.name} is damaged") from error
    shapes = checkpoint.config.tensor_shapes()
    if any(matrix.shape != shapes[name] for name, matrix in matrices.items()):
        raise FileFormatError(f"{path.name} holds matrices of other shapes")
    whole = replace(checkpoint, tensors={**checkpoint.tensors, **floats})
    return QuantizedWeights(settings, whole, matrices)


def _matrix(arrays: Arrays, name: str) -> PackedTensor:
    bits, group_size = (int(number) for number in arrays[f"format/{name}"])
    offsets = arrays.get(f"offsets/{name}")
    return PackedTensor(
        bits=bits,
        group_size=group_size,
        levels=torch.from_numpy(arrays[f"levels/{name}"]),
        scales_oq=torch.from_numpy(arrays[f"scales/{name}"]),
        offsets_oq=None if offsets is None else torch.from_numpy(offsets),
    )


def _floats(checkpoint: Checkpoint) -> list[str]:
    """Norms and biases: small, and perhaps changed by a method."""
    return [name for name, shape in checkpoint.config.tensor_shapes().items() if len(shape) == 1]
