"""What probes answer about formats of weights and KV caches. Torch-free.

Shapes: t tokens · i in_features · q groups of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.inference.probes.documents import PackedArray, ProbeDocument


@dataclass(frozen=True, slots=True)
class Fidelity(ProbeDocument):
    """A text through the model in one form, beside the file's own weights in float32.

    ``kl``: KL(file's float32 ‖ this form) in nats over the next token, at every position [t];
    ``same_top``: whether both put the same token first. ``accuracy``: share of the text's tokens,
    without the first, that this form would have put first; ``perplexity`` over the same tokens,
    null where it is beyond any float; ``reference_``: the same of the file's own. ``activations``:
    what this form computes in. ``bits_per_weight``: of its matrices, scales and offsets included.
    ``kv_bytes_per_token``: of a position that the cache keeps, 0 where it is off. ``source``: how
    the file itself stores most weights; what that had rounded away before is in no number here.
    """

    kind: ClassVar[str] = "fidelity"

    weights: str
    kv_cache: str
    activations: str
    source: str
    num_tokens: int
    kl: tuple[float, ...]
    same_top: tuple[bool, ...]
    mean_kl: float
    top1_agreement: float
    perplexity: float
    reference_perplexity: float
    accuracy: float
    reference_accuracy: float
    weight_bytes: int
    bits_per_weight: float
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class WeightRow(ProbeDocument):
    """A row of a matrix before and after rounding to the nearest level.

    ``shape``: rows and columns of the matrix, ``storage`` how the file stores it; ``before`` and
    ``after`` [i]; ``scales`` and ``offsets`` [q], one for every ``group_size`` weights, offsets
    empty where zero is a level. ``shared_by``: weights that have one scale together, in other rows
    too. ``bits_per_weight``: of the whole matrix, scales
    and offsets included. ``error``: what rounding did to the whole matrix, as the root of the mean
    squared error by the root of the mean squared weight; ``row_error`` to this row.
    """

    kind: ClassVar[str] = "weight_row"

    matrix: str
    row: int
    weights: str
    shape: tuple[int, ...]
    storage: str
    bits: int
    group_size: int
    shared_by: int
    before: PackedArray
    after: PackedArray
    scales: tuple[float, ...]
    offsets: tuple[float, ...]
    bits_per_weight: float
    error: float
    row_error: float
