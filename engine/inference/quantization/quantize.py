"""From a checkpoint to the same model in few bits.

All matrices of the layers and the LM head are quantised. A tied head is the embedding table too:
token vectors are then looked up in the same quantised rows. What stays in float: norms, biases,
learned positions, and the embedding table of a model whose head is another matrix, because
looking up a row costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.errors import InvalidRequest
from engine.inference.lane_settings import QuantizationMethod, WeightFormat, WeightSettings
from engine.inference.model.config import ModelConfig
from engine.inference.quantization.calibrated import CalibratedQuantizer, head_name
from engine.inference.quantization.calibration_text import CALIBRATION, token_windows
from engine.inference.quantization.file_blocks import from_file_blocks
from engine.inference.quantization.grams import READERS
from engine.inference.quantization.packed import packed_bytes
from engine.inference.quantization.rtn import round_to_nearest
from engine.inference.quantization.tensor import QuantizedTensor
from engine.inference.weights.checkpoint import Checkpoint, StoredTensor, stored_floats
from engine.refusals import refused

CALIBRATION_TOKENS = 4_096

Progress = Callable[[float, str], None]
"""Called with the share that is done, from 0 to 1, and what comes next: a layer, or a matrix that
is in none. What it raises ends the work there."""


@dataclass(frozen=True)
class QuantizedWeights:
    """``matrices`` by canonical name; everything else is in ``checkpoint``, whose norms and biases
    a method may have changed. Rows are in the order of ``Checkpoint.tensor``."""

    settings: WeightSettings
    checkpoint: Checkpoint
    matrices: Mapping[str, QuantizedTensor]

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of a quantised weight, scales and offsets included."""
        weights = sum(matrix.levels_oi.numel() for matrix in self.matrices.values())
        return 8 * sum(map(packed_bytes, self.matrices.values())) / weights

    def dequantized(self) -> Checkpoint:
        """The same weights in float32, for slow paths: a checkpoint like any other."""
        floats = {name: _stored(m.dequantize()) for name, m in self.matrices.items()}
        return replace(self.checkpoint, tensors={**self.checkpoint.tensors, **floats})


def quantized_names(config: ModelConfig) -> tuple[str, ...]:
    """The matrices that are quantised, in the order of the forward pass."""
    head = head_name(config)
    return tuple(
        name
        for name, shape in config.tensor_shapes().items()
        if len(shape) == 2 and (name.startswith("layers.") or name == head)
    )


def quantize(
    checkpoint: Checkpoint,
    settings: WeightSettings,
    progress: Progress = lambda share, what: None,
    *,
    calibration_tokens: int = CALIBRATION_TOKENS,
) -> QuantizedWeights:
    """Quantise a model as the settings say. AWQ and GPTQ first run it, in float32, over
    ``calibration_tokens`` tokens of the calibration text.

    Raises:
        InvalidRequest: nothing to quantise, or the file's blocks cannot be used (field "weights").
        UnsupportedModel: weights that are not finite or too large.
    """
    if settings.format is not WeightFormat.FILE and not settings.quantized:
        raise InvalidRequest(f"{settings.name} is not quantised", field="weights")
    names = quantized_names(checkpoint.config)
    matrices: dict[str, QuantizedTensor] = {}
    changed: dict[str, Tensor] = {}
    progress(0.0, _part(names[0]))
    with torch.inference_mode():
        for name, tensor in _results(checkpoint, settings, calibration_tokens):
            if isinstance(tensor, QuantizedTensor):
                matrices[name] = tensor
                done = len(matrices)
                progress(done / len(names), _part(names[done]) if done < len(names) else "")
            else:
                changed[name] = tensor
    tensors = {name: _stored(tensor) for name, tensor in changed.items()}
    return QuantizedWeights(
        settings=settings,
        checkpoint=replace(checkpoint, tensors={**checkpoint.tensors, **tensors}),
        matrices={name: matrices[name] for name in names},
    )


def _results(
    checkpoint: Checkpoint, settings: WeightSettings, calibration_tokens: int
) -> Iterator[tuple[str, QuantizedTensor | Tensor]]:
    """Every matrix, quantised, and every other tensor that changed with it, by name."""
    names = quantized_names(checkpoint.config)
    if settings.format is WeightFormat.FILE:
        _refuse_mixed_readers(checkpoint)
        for name in names:
            yield name, from_file_blocks(checkpoint.raw(name))
    elif settings.method is QuantizationMethod.RTN:
        for name in names:
            weight = torch.from_numpy(checkpoint.tensor(name))
            yield name, round_to_nearest(weight, settings)
    else:
        windows = token_windows(
            CALIBRATION, checkpoint.tokenizer(), checkpoint.config, calibration_tokens
        )
        yield from CalibratedQuantizer(checkpoint, settings, windows).results()


def _part(name: str) -> str:
    """``layers.3.q`` → ``layers.3``."""
    return name.rpartition(".")[0] or name


def _refuse_mixed_readers(checkpoint: Checkpoint) -> None:
    """Matrices that read the same inputs become one, so their blocks must be of one type."""
    for layer in range(checkpoint.config.num_layers):
        for readers in READERS.values():
            names = [f"layers.{layer}.{reader}" for reader in readers]
            types = {checkpoint.tensors[n].storage.name for n in names if n in checkpoint.tensors}
            if len(types) > 1:
                names_of_types = ", ".join(sorted(types))
                raise refused(
                    "file_blocks_mixed", field="weights", layer=layer, types=names_of_types
                )


def _stored(tensor: Tensor) -> StoredTensor:
    return stored_floats(tensor.numpy())
