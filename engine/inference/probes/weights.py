"""Float32 weights for the reference model that need not all be in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from engine.inference.weights.checkpoint import Checkpoint


class WeightsOnDemand(Mapping[str, Tensor]):
    """Reads and dequantises a tensor when it is asked for.

    What belongs to no layer (the embedding, the head, the final norm) is kept from then on, and so
    are the layers that are asked for first, as far as ``layer_bytes`` goes. Of the others, one
    layer's tensors at a time are kept, so walking through all layers reads these anew each time:
    7 ms for a layer of 3.5 million weights in 4 bits. Not for several threads at once.
    """

    def __init__(self, checkpoint: Checkpoint, layer_bytes: int = 0) -> None:
        self._checkpoint = checkpoint
        self._room = layer_bytes
        self._kept: dict[str, Tensor] = {}
        self._passing: dict[str, Tensor] = {}
        self._layer: str | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that are held now."""
        return sum(t.nbytes for held in (self._kept, self._passing) for t in held.values())

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._kept.get(name)
        if tensor is None:
            tensor = self._passing.get(name)
        return self._read(name) if tensor is None else tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._checkpoint.names)

    def __len__(self) -> int:
        return len(self._checkpoint.names)

    def _read(self, name: str) -> Tensor:
        tensor = torch.from_numpy(self._checkpoint.tensor(name))
        layer = ".".join(name.split(".")[:2]) if name.startswith("layers.") else None
        if layer is None:
            self._kept[name] = tensor
            return tensor
        if tensor.nbytes <= self._room:
            self._room -= tensor.nbytes
            self._kept[name] = tensor
            return tensor
        if layer != self._layer:
            self._layer, self._passing = layer, {}
        self._passing[name] = tensor
        return tensor
