"""What every weights file looks like to the rest of the engine, whatever its format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.config import ModelConfig
from engine.inference.tokenizer import Tokenizer
from engine.inference.weights.dequantize import dequantize
from engine.inference.weights.ggml_types import F32, StorageType


class RawTensor(NamedTuple):
    """A tensor as it is stored: ``blocks`` is uint8 ``[rows, bytes of one row]``, read-only or a
    copy; ``shape`` counts weights. Rows are in the order of ``Checkpoint.tensor``."""

    storage: StorageType
    blocks: npt.NDArray[np.uint8]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where one tensor lies. ``stored`` is a uint8 view of the file whose elements, in order, are
    the bytes of the rows: ``[bytes]``, or with strides of its own where the file has them in
    another order.

    ``interleaved_heads`` is the number of heads whose rows are stored for rotary embeddings over
    neighbouring pairs (0, 1), (2, 3), …; None where rows are already in two halves.
    """

    storage: StorageType
    shape: tuple[int, ...]
    stored: npt.NDArray[np.uint8]
    interleaved_heads: int | None = None

    def raw(self) -> RawTensor:
        """The stored blocks with rows in half-rotation order."""
        columns = self.shape[-1]
        blocks = self.stored.reshape(-1, self.storage.row_bytes(columns))
        if self.interleaved_heads is not None:
            blocks = _pairs_to_halves(blocks, self.interleaved_heads)
        return RawTensor(self.storage, blocks, self.shape)

    def float32(self) -> npt.NDArray[np.float32]:
        """The weights, dequantised: a new, writable, contiguous array."""
        return dequantize(self.raw().blocks, self.storage, self.shape)


def stored_floats(weights: npt.NDArray[np.float32]) -> StoredTensor:
    """A float32 array in memory as a checkpoint's tensor."""
    return StoredTensor(F32, weights.shape, weights.view(np.uint8).reshape(-1))


def _pairs_to_halves(rows: npt.NDArray[np.uint8], heads: int) -> npt.NDArray[np.uint8]:
    """Within each head, rows 0, 2, 4, … first and then 1, 3, 5, …

    llama.cpp stores q and k so that a rotation acts on neighbouring rows; the usual formula
    (x · cos + rotate_half(x) · sin) wants the pair's second member half a head later.
    """
    pairs = rows.reshape(heads, -1, 2, rows.shape[-1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk or in memory: its numbers, its tensors on demand, its tokenizer.

    ``file_bytes`` is the size of all weight files together. Nothing large is read before it is
    asked for. Raises ``FileFormatError`` on construction where a tensor is missing or has another
    shape than the config says, ``UnsupportedModel`` where there is one too many.
    """

    config: ModelConfig
    tensors: Mapping[str, StoredTensor]
    file_bytes: int
    chat_template: str | None
    build_tokenizer: Callable[[], Tokenizer]

    def __post_init__(self) -> None:
        expected = self.config.tensor_shapes()
        for name, shape in expected.items():
            stored = self.tensors.get(name)
            if stored is None:
                raise FileFormatError(f"the tensor {name} is missing")
            if stored.shape != shape:
                raise FileFormatError(
                    f"the tensor {name} has shape {list(stored.shape)}, the config says"
                    f" {list(shape)}"
                )
        extra = self.tensors.keys() - expected.keys()
        if extra:
            raise UnsupportedModel(f"the tensor {min(extra)} is not part of this architecture")

    @property
    def names(self) -> tuple[str, ...]:
        """Canonical names of all tensors, in the order of the forward pass."""
        return tuple(self.config.tensor_shapes())

    @property
    def source_format(self) -> str:
        """The storage type of most weights, such as ``Q4_1`` or ``BF16``."""
        weights: Counter[str] = Counter()
        for tensor in self.tensors.values():
            weights[tensor.storage.name] += int(np.prod(tensor.shape, dtype=np.int64))
        return weights.most_common(1)[0][0]

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        """Float32 weights of one tensor, a new writable array; shapes as ``tensor_shapes`` says.

        q and k rows are in half-rotation order. Raises ``KeyError`` for a name not in ``names``.
        """
        return self.tensors[name].float32()

    def raw(self, name: str) -> RawTensor:
        """The same tensor as it is stored, for a model that computes on quantised blocks."""
        return self.tensors[name].raw()

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, built once."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        tokenizer = self.build_tokenizer()
        if tokenizer.vocab_size > self.config.vocab_size:
            raise FileFormatError("the tokenizer has more tokens than the embedding has rows")
        return tokenizer
