"""From a checkpoint to the same model in few bits.

All matrices of the layers and the LM head are quantised. A tied head is the embedding table too:
token vectors are then looked up in the same quantised rows. What stays in float: norms, biases,
learned positions, and the embedding table of a model whose head is another matrix, because
looking up a row costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.errors import InvalidRequest
from engine.inference.lane_settings import WeightFormat, WeightSettings
from engine.inference.model.config import ModelConfig
from engine.inference.quantization.file_blocks import from_file_blocks
from engine.inference.quantization.packed import pack
from engine.inference.quantization.rtn import round_to_nearest
from engine.inference.quantization.tensor import QuantizedTensor
from engine.inference.weights.checkpoint import Checkpoint, stored_floats

Progress = Callable[[float, str], None]
"""Called with the share that is done, from 0 to 1, and what is being done."""


@dataclass(frozen=True)
class QuantizedWeights:
    """``matrices`` by canonical name; everything else is in ``checkpoint``, whose norms a method
    may have changed. Rows are in the order of ``Checkpoint.tensor``."""

    settings: WeightSettings
    checkpoint: Checkpoint
    matrices: Mapping[str, QuantizedTensor]

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of a quantised weight, scales and offsets included."""
        packed = [pack(matrix) for matrix in self.matrices.values()]
        weights = sum(matrix.shape[0] * matrix.shape[1] for matrix in packed)
        return 8 * sum(matrix.nbytes for matrix in packed) / weights

    def dequantized(self) -> Checkpoint:
        """The same weights in float32, for slow paths: a checkpoint like any other."""
        floats = {name: stored_floats(m.dequantize().numpy()) for name, m in self.matrices.items()}
        return replace(self.checkpoint, tensors={**self.checkpoint.tensors, **floats})


def quantized_names(config: ModelConfig) -> tuple[str, ...]:
    """The matrices that are quantised, in the order of the forward pass."""
    shapes = config.tensor_shapes()
    head = "embed" if config.tied_embeddings else "lm_head"
    return tuple(
        name
        for name, shape in shapes.items()
        if len(shape) == 2 and (name.startswith("layers.") or name == head)
    )


def quantize(
    checkpoint: Checkpoint,
    settings: WeightSettings,
    progress: Progress = lambda share, what: None,
) -> QuantizedWeights:
    """Quantise a model as the settings say. For the settings of GPTQ and AWQ this runs the model
    over a calibration text first.

    Raises:
        InvalidRequest: nothing to quantise, or the file's blocks cannot be used (field "weights").
        UnsupportedModel: weights that are not finite or too large.
    """
    with torch.inference_mode():
        if settings.format is WeightFormat.FILE:
            return _each(checkpoint, settings, progress, _file_matrix)
        if not settings.quantized:
            raise InvalidRequest(f"{settings.name} is not quantised", field="weights")
        return _each(checkpoint, settings, progress, _rounded_matrix)


def matrix_of(checkpoint: Checkpoint, name: str) -> Tensor:
    """A tensor of the checkpoint in float32."""
    return torch.from_numpy(checkpoint.tensor(name))


def _each(
    checkpoint: Checkpoint,
    settings: WeightSettings,
    progress: Progress,
    make: Callable[[Checkpoint, str, WeightSettings], QuantizedTensor],
) -> QuantizedWeights:
    names = quantized_names(checkpoint.config)
    matrices: dict[str, QuantizedTensor] = {}
    for index, name in enumerate(names):
        progress(index / len(names), name)
        matrices[name] = make(checkpoint, name, settings)
    progress(1.0, "done")
    return QuantizedWeights(settings, checkpoint, matrices)


def _file_matrix(checkpoint: Checkpoint, name: str, settings: WeightSettings) -> QuantizedTensor:
    return from_file_blocks(checkpoint.raw(name))


def _rounded_matrix(checkpoint: Checkpoint, name: str, settings: WeightSettings) -> QuantizedTensor:
    return round_to_nearest(matrix_of(checkpoint, name), settings)
