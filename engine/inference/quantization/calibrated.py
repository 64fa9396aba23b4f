"""AWQ and GPTQ over a whole model, one layer after the other.

A layer's matrices are quantised for the inputs that they will really get: the text has run through
the quantised layers before (as in section 4 of the GPTQ paper), so that a layer can make up for
some of what was lost before it. One layer's statistics are in memory at a time.

Shapes: t tokens · m model width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from engine.inference.lane_settings import QuantizationMethod, WeightSettings
from engine.inference.model.config import ModelConfig
from engine.inference.model.reference import ReferenceModel
from engine.inference.quantization.awq import best_scale, divide_norm, fold, search_scales
from engine.inference.quantization.gptq import gptq
from engine.inference.quantization.grams import HEAD_POINT, READERS, Grams, GramTap
from engine.inference.quantization.rtn import round_to_nearest
from engine.inference.quantization.tensor import QuantizedTensor
from engine.inference.weights.checkpoint import Checkpoint

Results = dict[str, QuantizedTensor | Tensor]
"""Quantised matrices, and other tensors that changed with them, by name."""


def head_name(config: ModelConfig) -> str:
    """The matrix that makes logits."""
    return "embed" if config.tied_embeddings else "lm_head"


class CalibratedQuantizer:
    """One model, one text in windows, one method that looks at the text."""

    def __init__(
        self, checkpoint: Checkpoint, settings: WeightSettings, windows: Sequence[Sequence[int]]
    ) -> None:
        self._checkpoint = checkpoint
        self._config = checkpoint.config
        self._settings = settings
        self._windows = windows

    def results(self) -> Iterator[tuple[str, QuantizedTensor | Tensor]]:
        """Every matrix, quantised, and every other tensor that changed, as they are ready."""
        weights = _Weights(self._checkpoint)
        model = ReferenceModel(self._checkpoint, weights)
        tap = GramTap()
        streams = [model.embed(window) for window in self._windows]
        for layer in range(self._config.num_layers):
            prefix = f"layers.{layer}."
            weights.keep(name for name in self._checkpoint.names if name.startswith(prefix))
            for x_tm in streams:
                model.layer(layer, x_tm, tap)
            tensors = {name.removeprefix(prefix): tensor for name, tensor in weights.kept.items()}
            done = self._layer(tensors, tap.averages())
            yield from ((prefix + name, tensor) for name, tensor in done.items())
            weights.kept |= {prefix + name: _floats(tensor) for name, tensor in done.items()}
            streams = [model.layer(layer, x_tm) for x_tm in streams]
        head_parts = ("final_norm", "final_norm_bias", head_name(self._config))
        weights.keep(name for name in self._checkpoint.names if name in head_parts)
        for x_tm in streams:
            model.head(x_tm, tap)
        yield from self._head(weights.kept, tap.averages()[HEAD_POINT]).items()

    def _layer(self, tensors: Mapping[str, Tensor], grams: Grams) -> Results:
        if self._settings.method is QuantizationMethod.GPTQ:
            return {
                name: gptq(tensors[name], grams[point], self._settings)
                for point, readers in READERS.items()
                for name in readers
                if name in tensors
            }
        scales = search_scales(tensors, grams, self._config, self._settings)
        return self._rounded(tensors, fold(tensors, scales, self._config))

    def _head(self, tensors: Mapping[str, Tensor], gram: Tensor) -> Results:
        name = head_name(self._config)
        weight = tensors[name]
        if self._settings.method is QuantizationMethod.GPTQ:
            return {name: gptq(weight, gram, self._settings)}
        if self._config.tied_embeddings:
            # Columns of a table that tokens are looked up in have no norm alone to answer for them.
            return {name: round_to_nearest(weight, self._settings)}
        scale = best_scale([weight], gram, gram.diagonal(), self._settings)
        folded = {**tensors, name: weight * scale}
        divide_norm(folded, "final_norm", scale, self._config)
        return self._rounded(tensors, folded)

    def _rounded(self, tensors: Mapping[str, Tensor], folded: Mapping[str, Tensor]) -> Results:
        """Matrices rounded to nearest, and those of the others that are new."""
        results: Results = {}
        for name, tensor in folded.items():
            if tensor.dim() == 2:
                results[name] = round_to_nearest(tensor, self._settings)
            elif tensor is not tensors[name]:
                results[name] = tensor
        return results


class _Weights(Mapping[str, Tensor]):
    """A checkpoint's tensors in float32: some kept, and others read at each use."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.kept: dict[str, Tensor] = {}

    def keep(self, names: Iterable[str]) -> None:
        """Read these now, and let go of those that were kept."""
        self.kept = {name: torch.from_numpy(self._checkpoint.tensor(name)) for name in names}

    def __getitem__(self, name: str) -> Tensor:
        kept = self.kept.get(name)
        return torch.from_numpy(self._checkpoint.tensor(name)) if kept is None else kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._checkpoint.names)

    def __len__(self) -> int:
        return len(self._checkpoint.names)


def _floats(tensor: QuantizedTensor | Tensor) -> Tensor:
    return tensor.dequantize() if isinstance(tensor, QuantizedTensor) else tensor
