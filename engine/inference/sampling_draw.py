"""A token out of a distribution that is first narrowed: temperature, top-k, top-p, min-p.

The draw is one number that depends on nothing but the request's seed and the position in its text.

Shapes: n rows to sample · v vocabulary · c candidates.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.inference.sampling_params import SamplingParams

# Tokens that are ranked at first. Nearly always the draw falls among them; a row where it does not
# is done again with all tokens ranked, which takes some milliseconds.
CANDIDATES = 256

# The lowest temperature that is divided by: any difference of logits over it is past all sums, and
# none overflows.
_COLDEST = 1e-30


def draw_(
    logits_nv: Tensor,
    params: Sequence[SamplingParams],
    draws: Sequence[float],
    candidates: int = CANDIDATES,
) -> Tensor:
    """Token ids ``[n]``. ``draws`` are numbers in [0, 1); the logits are used up."""
    vocab = logits_nv.shape[1]
    coldness = [[max(param.temperature, _COLDEST)] for param in params]
    # The likeliest token gets the weight exp(0) = 1, so no weight overflows.
    shifted_nv = logits_nv.sub_(logits_nv.amax(-1, keepdim=True))
    weights_nv = shifted_nv.div_(torch.tensor(coldness, device=logits_nv.device)).exp_()
    few = min(candidates, vocab)
    ids_n, settled_n = _draw_among(few, weights_nv, params, draws)
    rest = settled_n.logical_not().nonzero().squeeze(1).tolist()
    if rest:
        some_params, some_draws = [params[row] for row in rest], [draws[row] for row in rest]
        ids_n[rest], _ = _draw_among(vocab, weights_nv[rest], some_params, some_draws)
    return ids_n


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), the same for the same two integers on every machine.

    53 bits of a BLAKE2b hash: a counter-based generator without a state to keep or to share.
    """
    digest = hashlib.blake2b(struct.pack("<QQ", seed, position), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _draw_among(
    candidates: int,
    weights_nv: Tensor,
    params: Sequence[SamplingParams],
    draws: Sequence[float],
) -> tuple[Tensor, Tensor]:
    """Draw with only the ``candidates`` heaviest tokens ranked.

    ``weights_nv``: unnormalised probabilities after temperature, the largest of a row 1.
    Returns ids ``[n]`` and whether each is settled: the same as if all tokens were ranked.
    """
    vocab = weights_nv.shape[1]
    whole = candidates == vocab

    def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=weights_nv.device).unsqueeze(1)

    k_n1 = column([p.top_k if 0 < p.top_k < vocab else vocab for p in params], torch.int64)
    p_n1 = column([p.top_p for p in params], torch.float64)
    min_n1 = column([p.min_p for p in params], torch.float64)

    ranked_nc, ids_nc = _rank(weights_nv, candidates)
    # float64, so that the sums do not depend on the order of adding.
    ranked_nc = ranked_nc.double()
    sums_nc = ranked_nc.cumsum(-1)
    all_n1 = weights_nv.sum(-1, keepdim=True, dtype=torch.float64)

    k_is_ranked_n1 = k_n1 <= candidates
    top_k_sum_n1 = sums_nc.gather(1, k_n1.clamp(max=candidates) - 1)
    after_k_n1 = torch.where(k_is_ranked_n1, top_k_sum_n1, all_n1)
    rank_c = torch.arange(candidates, device=weights_nv.device)
    before_nc = sums_nc - ranked_nc
    kept_nc = (
        (rank_c < k_n1) & ((p_n1 >= 1) | (before_nc < p_n1 * after_k_n1)) & (ranked_nc >= min_n1)
    )
    count_n1 = kept_nc.sum(-1, keepdim=True).clamp(min=1)

    # The weight of all that is kept is known if the cut lies among the candidates, or if nothing
    # is cut at all.
    cut_is_ranked_n1 = (count_n1 < candidates) | k_is_ranked_n1
    untouched_n1 = (k_n1 == vocab) & (p_n1 >= 1) & (min_n1 == 0)
    kept_sum_n1 = torch.where(cut_is_ranked_n1, sums_nc.gather(1, count_n1 - 1), all_n1)

    target_n1 = column(draws, torch.float64) * kept_sum_n1
    chosen_n1 = (sums_nc <= target_n1).sum(-1, keepdim=True)
    beyond_n1 = ~cut_is_ranked_n1 & (chosen_n1 == candidates)
    chosen_n1 = torch.minimum(chosen_n1, count_n1 - 1)
    # Which of the tokens that tie with the last candidate were ranked is arbitrary.
    tied_n1 = ranked_nc.gather(1, chosen_n1) == ranked_nc[:, -1:]
    known_n1 = torch.where(k_n1 < vocab, k_is_ranked_n1, True) & (cut_is_ranked_n1 | untouched_n1)
    settled_n1 = (known_n1 & ~beyond_n1 & ~tied_n1) | whole
    return ids_nc.gather(1, chosen_n1).squeeze(1), settled_n1.squeeze(1)


def _rank(weights_nv: Tensor, candidates: int) -> tuple[Tensor, Tensor]:
    """The heaviest tokens and their ids, ``[n, c]`` each: heaviest first, ties by id."""
    if candidates == weights_nv.shape[1]:
        return weights_nv.sort(dim=-1, descending=True, stable=True)
    _, ids_nc = weights_nv.topk(candidates, dim=-1, sorted=False)
    ids_nc, _ = ids_nc.sort(dim=-1)
    ranked_nc, order_nc = weights_nv.gather(1, ids_nc).sort(dim=-1, descending=True, stable=True)
    return ranked_nc, ids_nc.gather(1, order_nc)
