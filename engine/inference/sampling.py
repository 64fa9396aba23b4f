"""From logits to a token: greedy, or drawn from a truncated distribution, seeded per request.

The order of the transforms, on the logits of one position:

1. temperature: logits / temperature (0 takes the likeliest token and skips the rest);
2. top-k: the k likeliest tokens stay;
3. top-p: of these, renormalised, the fewest likeliest whose probabilities reach p (Holtzman et al.
   2020, arXiv 1904.09751); 1 keeps all;
4. min-p: of these, tokens at least min_p times as likely as the likeliest (arXiv 2407.01082).

Equally likely tokens rank by id. What is left is drawn from in proportion to its probability, by
one number that depends on nothing but the request's seed and the position in its text: batch
mates, preemption and resumption cannot change it.

Log-probabilities are the model's own: taken before any of these, over all tokens that can be
sampled. Rows of the vocabulary above the tokenizer's last id are cut off before anything else, and
ids below it that no text has get -inf.

Shapes: n rows to sample · v vocabulary · c candidates.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import InvalidRequest, StepFailed

MAX_TEMPERATURE = 100.0
MAX_SEED = 2**63 - 1

# Tokens that are ranked at first. Nearly always the draw falls among them; a row where it does not
# is done again with all tokens ranked, which takes some milliseconds.
_CANDIDATES = 256

# The lowest temperature that is divided by: any difference of logits over it is past all sums, and
# none overflows.
_COLDEST = 1e-30


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 leave the distribution whole."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def validate(self, vocab_size: int | None = None) -> None:
        """Check all ranges; ``top_k`` against the vocabulary where its size is given.

        Raises:
            InvalidRequest: naming the field. NaN is outside every range.
        """
        _check_number("temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        _check_number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0:
            raise InvalidRequest("top_p must be above 0; 1 keeps all tokens", field="top_p")
        _check_number("min_p", self.min_p, 0.0, 1.0)
        _check_integer("top_k", self.top_k, MAX_SEED if vocab_size is None else vocab_size)
        _check_integer("seed", self.seed, MAX_SEED)


def _check_number(field: str, value: float, low: float, high: float) -> None:
    # Written so that NaN, which compares as false, is refused.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidRequest(f"{field} must be a number from {low:g} to {high:g}", field=field)


def _check_integer(field: str, value: int, high: int) -> None:
    if type(value) is not int or not 0 <= value <= high:
        raise InvalidRequest(f"{field} must be a whole number from 0 to {high}", field=field)


@dataclass(frozen=True, slots=True)
class Choice:
    """A token and the model's own log-probability of it (finite, at most 0)."""

    token_id: int
    logprob: float


class Sampler:
    """Chooses one token for each row of logits; without state."""

    def __init__(
        self,
        num_tokens: int,
        candidates: int = _CANDIDATES,
        *,
        unknown_ids: Iterable[int] = (),
        device: torch.device | None = None,
    ) -> None:
        """``num_tokens``: the tokenizer's ids are below it. ``unknown_ids`` are never chosen
        either; those from ``num_tokens`` on may be left out. ``device``: where the logits are, if
        not on the CPU."""
        self._num_tokens = num_tokens
        self._candidates = candidates
        holes = sorted(token for token in set(unknown_ids) if token < num_tokens)
        self._holes = torch.tensor(holes, device=device) if holes else None

    def sample(
        self, logits_nv: Tensor, params: Sequence[SamplingParams], positions: Sequence[int]
    ) -> list[Choice]:
        """One choice a row. ``positions``: where in its text each new token will stand.

        Raises:
            StepFailed: a row holds NaN or +inf, or only -inf: the model has overflowed.
        """
        logits_nv = logits_nv[:, : self._num_tokens].float()
        if self._holes is not None:
            logits_nv = logits_nv.index_fill(1, self._holes, -math.inf)
        ids_n = logits_nv.argmax(-1)
        drawn = [row for row, param in enumerate(params) if not param.greedy]
        if drawn:
            ids_n[drawn] = self._draw(
                logits_nv[drawn],
                [params[row] for row in drawn],
                [uniform(params[row].seed, positions[row]) for row in drawn],
            )
        logprobs_n = logits_nv.log_softmax(-1).gather(1, ids_n.unsqueeze(1)).squeeze(1)
        logprobs = logprobs_n.tolist()
        if not all(map(math.isfinite, logprobs)):
            raise StepFailed("the model's logits are not finite: its numbers have overflowed")
        return [Choice(*pair) for pair in zip(ids_n.tolist(), logprobs, strict=True)]

    def _draw(
        self, logits_nv: Tensor, params: Sequence[SamplingParams], draws: Sequence[float]
    ) -> Tensor:
        """Ids ``[n]``; ``draws`` are numbers in [0, 1)."""
        vocab = logits_nv.shape[1]
        coldness = [[max(param.temperature, _COLDEST)] for param in params]
        # The likeliest token gets the weight exp(0) = 1, so no weight overflows.
        shifted_nv = logits_nv - logits_nv.amax(-1, keepdim=True)
        weights_nv = shifted_nv.div_(torch.tensor(coldness, device=logits_nv.device)).exp_()
        few = min(self._candidates, vocab)
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
