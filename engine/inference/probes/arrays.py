"""From tensors and indices to what documents hold, and the checks of what is asked for."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.errors import InvalidRequest
from engine.inference.probes.documents import PackedArray, ScoredToken
from engine.inference.probes.limits import MAX_TOP
from engine.refusals import refused

Piece = Callable[[int], str]
"""The visible text of a token id."""


def pack(tensor: Tensor, dtype: type[np.float16] | type[np.float32] = np.float16) -> PackedArray:
    """``float16`` keeps three digits; whatever it cannot hold (beyond 65,504) makes it float32."""
    numbers = tensor.float().numpy()
    largest = np.abs(numbers[np.isfinite(numbers)]).max(initial=0)
    wide = dtype is np.float32 or largest > np.finfo(np.float16).max
    stored = numbers.astype("<f4" if wide else "<f2")
    return PackedArray(
        numbers.shape,
        "float32" if wide else "float16",
        base64.b64encode(stored.tobytes()).decode("ascii"),
    )


def unpack(array: PackedArray) -> np.ndarray:
    """The numbers of a packed array, for whoever reads a document in Python."""
    stored = "<f4" if array.dtype == "float32" else "<f2"
    return np.frombuffer(base64.b64decode(array.data), stored).reshape(array.shape)


def numbers(tensor: Tensor) -> tuple[float, ...]:
    """A vector as plain numbers."""
    return tuple(tensor.tolist())


def check_index(field: str, value: int, count: int) -> None:
    """Raises ``InvalidRequest``, naming the field, where ``value`` is not in 0 to count - 1."""
    if type(value) is not int or not 0 <= value < count:
        raise InvalidRequest(f"{field} must be a whole number from 0 to {count - 1}", field=field)


def check_top(k: int) -> None:
    """Raises ``InvalidRequest`` (field "k") where ``k`` is not in 1 to ``MAX_TOP``."""
    if type(k) is not int or not 1 <= k <= MAX_TOP:
        raise InvalidRequest(f"k must be a whole number from 1 to {MAX_TOP}", field="k")


def check_ids(token_ids: Sequence[int], most: int, vocab_size: int) -> None:
    """Raises ``InvalidRequest`` (field "token_ids") where there are none, too many, or one that
    has no row."""
    if not 1 <= len(token_ids) <= most:
        raise refused("token_count", field="token_ids", high=most)
    if any(type(token) is not int or not 0 <= token < vocab_size for token in token_ids):
        raise refused("token_ids", field="token_ids", high=vocab_size - 1)


def top_tokens(logits_v: Tensor, k: int, piece: Piece) -> tuple[ScoredToken, ...]:
    """The ``k`` likeliest tokens, likeliest first; those of no probability are left out."""
    logsumexp = float(torch.logsumexp(logits_v, 0))
    logits, ids = logits_v.topk(min(k, len(logits_v)))
    return tuple(
        ScoredToken(token, piece(token), logit, logit - logsumexp)
        for token, logit in zip(ids.tolist(), logits.tolist(), strict=True)
        if logit > -float("inf")
    )


def entropy(logits_v: Tensor) -> float:
    """Of the softmax of these logits, in nats."""
    return float(torch.special.entr(logits_v.softmax(-1)).sum())


def divergence(p_tv: Tensor, q_tv: Tensor) -> Tensor:
    """KL(P ‖ Q) in nats at every position ``[t]``, from log-probabilities of both; -inf in both
    for tokens that no text has."""
    p = p_tv.exp()
    # Where P is 0, nothing is lost: 0 · (-inf + inf) would be NaN.
    differences = (p_tv - q_tv).masked_fill_(p == 0, 0.0)
    return (p * differences).sum(-1).clamp_(min=0)
