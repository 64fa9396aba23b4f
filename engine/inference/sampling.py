"""From logits to a token: greedy, or drawn from a truncated distribution, seeded per request.

The order of the transforms, on the logits of one position:

1. repetition penalty: logits of tokens that the prompt or the answer has are divided by it where
   positive and multiplied where negative (Keskar et al. 2019, arXiv 1909.05858);
2. frequency and presence penalty: of a token that the answer has c times, c · frequency + presence
   is subtracted (OpenAI API reference);
3. logit bias: added to the logits of its tokens;
4. masks: tokens that must not come now (a stop token before ``min_tokens``) get -inf;
5. temperature: logits / temperature (0 takes the likeliest token and skips the rest);
6. top-k: the k likeliest tokens stay;
7. top-p: of these, renormalised, the fewest likeliest whose probabilities reach p (Holtzman et al.
   2020, arXiv 1904.09751); 1 keeps all;
8. min-p: of these, tokens at least min_p times as likely as the likeliest (arXiv 2407.01082).

Equally likely tokens rank by id. What is left is drawn from in proportion to its probability, by
one number that depends on nothing but the request's seed and the position in its text: batch
mates, preemption and resumption cannot change it.

Log-probabilities are the model's own: taken before any of these, over all tokens that can be
sampled. Rows of the vocabulary above the tokenizer's last id are cut off before anything else, and
ids below it that no text has get -inf.

Shapes: n rows to sample · v vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import StepFailed
from engine.inference.sampling_draw import CANDIDATES, draw_, heaviest, uniform
from engine.inference.sampling_params import SamplingParams
from engine.inference.sampling_shaping import Shaper

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One row of logits, and what choosing from it depends on.

    ``position``: where in its text the new token will stand. ``prompt_token_ids`` and
    ``output_token_ids``: the text so far, looked at for penalties only; give the request's own
    growing list each time, for what was counted is kept with it. ``draft_token_ids``: tokens that
    stand between the output and this row if their drafts are accepted. ``masked_ids``: must not be
    chosen; if nothing else is left, they may be.
    """

    params: SamplingParams
    position: int
    prompt_token_ids: Sequence[int] = ()
    output_token_ids: Sequence[int] = ()
    masked_ids: Collection[int] = ()
    draft_token_ids: Sequence[int] = ()

    @property
    def plain(self) -> bool:
        """Whether the likeliest token of the model's own distribution is the choice."""
        return self.params.greedy and not self.params.shapes and not self.masked_ids


@dataclass(frozen=True, slots=True)
class LogitSummary:
    """What a fused step can tell of its logits while it has them at hand, over all tokens that
    can be sampled: the likeliest one's id ``[n]`` (the lowest of equals) and the logarithm of the
    sum of exponentials ``[n]``."""

    likeliest_n: Tensor
    logsumexp_n: Tensor


@dataclass(frozen=True, slots=True)
class Choice:
    """A token and the model's own log-probability of it (finite, at most 0).

    ``top``: ids and log-probabilities of the ``top_logprobs`` likeliest tokens by the model's own
    distribution, likeliest first and equals by id; tokens of no probability are left out, so every
    number is finite.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Sampler:
    """Chooses one token for each row of logits. A choice depends on its row alone."""

    def __init__(
        self,
        num_tokens: int,
        candidates: int = CANDIDATES,
        *,
        unknown_ids: Iterable[int] = (),
        device: torch.device = _CPU,
    ) -> None:
        """``num_tokens``: the tokenizer's ids are below it. ``unknown_ids`` are never chosen
        either; those from ``num_tokens`` on may be left out. ``device``: where the logits are, if
        not on the CPU."""
        self._num_tokens = num_tokens
        self._candidates = candidates
        holes = sorted(token for token in set(unknown_ids) if token < num_tokens)
        self._holes = torch.tensor(holes, device=device) if holes else None
        self._shaper = Shaper(num_tokens, device)

    @property
    def num_tokens(self) -> int:
        """Columns from here on are never looked at."""
        return self._num_tokens

    @property
    def has_holes(self) -> bool:
        """Whether some ids below ``num_tokens`` cannot be sampled."""
        return self._holes is not None

    def sample(
        self, logits_nv: Tensor, rows: Sequence[SampleRow], summary: LogitSummary | None = None
    ) -> list[Choice]:
        """One choice a row. The logits are the sampler's to write on.

        Raises:
            StepFailed: a row holds NaN or +inf, or only -inf: the model has overflowed.
        """
        logits_nv = logits_nv[:, : self._num_tokens].float()
        if self._holes is not None:
            logits_nv.index_fill_(1, self._holes, -math.inf)
        if summary is None:
            scores_nv = logits_nv.log_softmax(-1)
            ids_n = _likeliest(logits_nv)
        else:
            scores_nv = logits_nv
            ids_n = summary.likeliest_n.clone()
        self._choose_others(logits_nv, rows, ids_n)
        logprobs_n = scores_nv.gather(1, ids_n.unsqueeze(1)).squeeze(1)
        if summary is not None:
            logprobs_n = logprobs_n - summary.logsumexp_n
        logprobs = logprobs_n.tolist()
        if not all(map(math.isfinite, logprobs)):
            raise StepFailed("the model's logits are not finite: its numbers have overflowed")
        choices = [Choice(*pair) for pair in zip(ids_n.tolist(), logprobs, strict=True)]
        for place, row in enumerate(rows):
            if row.params.top_logprobs:
                shift = 0.0 if summary is None else float(summary.logsumexp_n[place])
                top = _top(scores_nv[place], shift, row.params.top_logprobs)
                choices[place] = Choice(choices[place].token_id, choices[place].logprob, top)
        return choices

    def _choose_others(self, logits_nv: Tensor, rows: Sequence[SampleRow], ids_n: Tensor) -> None:
        """Set the ids of the rows that are not plain. The logits stay as they are."""
        others = [place for place, row in enumerate(rows) if not row.plain]
        if not others:
            return
        own_nv = logits_nv[others]
        for logits_v, place in zip(own_nv, others, strict=True):
            self._shaper.shape_(logits_v, rows[place])
        greedy = [i for i, place in enumerate(others) if rows[place].params.greedy]
        if greedy:
            ids_n[[others[i] for i in greedy]] = _likeliest(own_nv[greedy])
        drawn = [place for place in others if not rows[place].params.greedy]
        if drawn:
            if greedy:
                own_nv = own_nv[[i for i, p in enumerate(others) if not rows[p].params.greedy]]
            chosen = draw_(
                own_nv,
                [rows[place].params for place in drawn],
                [uniform(rows[place].params.seed, rows[place].position) for place in drawn],
                self._candidates,
            )
            ids_n[drawn] = torch.tensor(chosen, device=ids_n.device)


def _likeliest(logits_nv: Tensor) -> Tensor:
    """Ids ``[n]``, the lowest of equals; NaN counts as the largest."""
    if logits_nv.device.type == "cpu":
        # The same answer as torch's, which takes ten times as long on a CPU.
        return torch.from_numpy(logits_nv.numpy().argmax(-1))
    return logits_nv.argmax(-1)


def _top(scores_v: Tensor, shift: float, count: int) -> tuple[tuple[int, float], ...]:
    """The ``count`` highest scores, less ``shift``, with their ids; equals by id."""
    ids, scores = heaviest(scores_v.cpu().numpy(), count)
    pairs = zip(ids[:count].tolist(), scores[:count].tolist(), strict=True)
    return tuple((token, score - shift) for token, score in pairs if score > -math.inf)
