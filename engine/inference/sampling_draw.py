"""A token out of a distribution that is first narrowed: temperature, top-k, top-p, min-p.

The draw is one number that depends on nothing but the request's seed and the position in its text.

Sorting a whole vocabulary takes milliseconds, so only its heaviest tokens are ranked at first, and
more only where the answer depends on them.

Shapes: n rows to sample · v vocabulary · c ranked tokens.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.inference.sampling_params import SamplingParams

CANDIDATES = 256
"""Tokens that are ranked at first, about."""

# How many times as many are ranked where these do not settle it; after that, all are.
_MORE = 16

# The lowest temperature that is divided by: any difference of logits over it is past all sums, and
# none overflows.
_COLDEST = 1e-30


def draw_(
    logits_nv: Tensor,
    params: Sequence[SamplingParams],
    draws: Sequence[float],
    candidates: int = CANDIDATES,
) -> list[int]:
    """A token id for each row. ``draws`` are numbers in [0, 1); the logits are used up."""
    vocab = logits_nv.shape[1]
    coldness = [[max(param.temperature, _COLDEST)] for param in params]
    # The likeliest token gets the weight exp(0) = 1, so no weight overflows.
    shifted_nv = logits_nv.sub_(logits_nv.amax(-1, keepdim=True))
    weights_nv = shifted_nv.div_(torch.tensor(coldness, device=logits_nv.device)).exp_()
    totals = weights_nv.sum(-1, dtype=torch.float64).tolist()
    ids = [0] * len(params)
    left = list(range(len(params)))
    for count in (candidates, _MORE * candidates, vocab):
        unsettled: list[int] = []
        for row, ranked in zip(left, _heaviest(weights_nv, left, count), strict=True):
            place = _place(ranked, vocab, totals[row], params[row], draws[row])
            if place is None:
                unsettled.append(row)
            else:
                ids[row] = int(ranked.ids_c[place])
        left = unsettled
        if not left:
            break
    return ids


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), the same for the same two integers on every machine.

    53 bits of a BLAKE2b hash: a counter-based generator without a state to keep or to share.
    """
    digest = hashlib.blake2b(struct.pack("<QQ", seed, position), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


class Ranked(NamedTuple):
    """The heaviest tokens of a row, heaviest first and equals by id; no other is as heavy as one
    of these."""

    ids_c: npt.NDArray[np.int64]
    weights_c: npt.NDArray[np.float32]


def _heaviest(weights_nv: Tensor, rows: Sequence[int], count: int) -> list[Ranked]:
    """About ``count`` of each of these rows; all tokens where that is not much fewer."""
    if weights_nv.device.type == "cpu":
        weights = weights_nv.numpy()
        return [heaviest(weights[row], count) for row in rows]
    few_nv = weights_nv[rows]
    if count >= few_nv.shape[1]:
        return [heaviest(row_v, count) for row_v in few_nv.cpu().numpy()]
    found_nc, ids_nc = (tensor.cpu().numpy() for tensor in few_nv.topk(count))
    return [_ranked(ids[w > w[-1]], w[w > w[-1]]) for ids, w in zip(ids_nc, found_nc, strict=True)]


def heaviest(weights_v: npt.NDArray[np.float32], count: int) -> Ranked:
    """At least ``count`` tokens of one row, or all, and not many more.

    Four times as many groups of tokens are made as tokens are wanted. At least ``count`` tokens are
    as heavy as the ``count``-th heaviest of the groups' heaviest, and few more than that: finding
    them takes three passes over the row, where selecting exactly so many takes a sort's time.
    """
    groups = 4 * count
    if groups > len(weights_v):
        return _ranked(np.arange(len(weights_v)), weights_v)
    width = len(weights_v) // groups
    maxima = weights_v[: width * groups].reshape(width, groups).max(0)
    floor = np.partition(maxima, groups - count)[groups - count]
    ids = np.flatnonzero(weights_v >= floor)
    return _ranked(ids, weights_v[ids])


def _ranked(ids_c: npt.NDArray[np.int64], weights_c: npt.NDArray[np.float32]) -> Ranked:
    order = np.lexsort((ids_c, -weights_c))
    return Ranked(ids_c[order], weights_c[order])


def _place(
    ranked: Ranked, vocab: int, total: float, params: SamplingParams, draw: float
) -> int | None:
    """Where among the ranked tokens the draw falls; None if that depends on the others.

    ``total``: the weight of all ``vocab`` tokens.
    """
    known = len(ranked.ids_c)
    whole = known == vocab
    if known == 0:
        return None
    # float64, so that the sums do not depend on the order of adding.
    sums_c = ranked.weights_c.cumsum(dtype=np.float64)
    count, mass = known, total
    if 0 < params.top_k < vocab:
        if params.top_k > known:
            return None
        count = params.top_k
        mass = sums_c[count - 1]
    if params.top_p < 1:
        # One token more than those whose weight does not reach p.
        count = min(count, 1 + int(np.searchsorted(sums_c, params.top_p * mass)))
    if params.min_p > 0:
        count = min(count, int(np.searchsorted(-ranked.weights_c, -params.min_p, side="right")))
    cuts = 0 < params.top_k < vocab or params.top_p < 1 or params.min_p > 0
    # Where the last ranked token is kept, the next one may be, too.
    ends_here = whole or count < known or count == params.top_k
    if cuts and not ends_here:
        return None
    kept = sums_c[count - 1] if cuts else total
    place = int(np.searchsorted(sums_c[:count], draw * kept, side="right"))
    if place == count and not ends_here:
        return None
    # The total was added up in another order and may lie above the last sum: then it is the last
    # token that has a weight, not one behind it that has none.
    return min(place, int(np.searchsorted(sums_c[:count], sums_c[count - 1])))
