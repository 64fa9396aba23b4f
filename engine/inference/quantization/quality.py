"""How far a model's answers are from those of a reference, on a text that neither was fitted to.

KL divergence says it best: KL(P ‖ Q) = Σ P ln(P / Q) in nats, of the reference's distribution P
and the other's Q over the next token, at every position. Perplexity may fall by luck, and the
likeliest token often stays while its probability moves; a KL of 0 is the same distribution.

Shapes: t tokens of a window · v vocabulary.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

LogitsOf = Callable[[Sequence[int]], Tensor]
"""Token ids of a window to float32 logits ``[t, v]``: row i scores the token after position i."""


@dataclass(frozen=True, slots=True)
class Quality:
    """Over ``num_positions`` positions. ``mean_kl`` and ``p99_kl`` in nats; ``top1_agreement``:
    the share of positions where both put the same token first."""

    num_positions: int
    perplexity: float
    reference_perplexity: float
    mean_kl: float
    p99_kl: float
    top1_agreement: float


def kl_divergence(reference_tv: Tensor, other_tv: Tensor) -> Tensor:
    """KL(P ‖ Q) in nats at every position ``[t]``, from log-probabilities of P and Q."""
    return torch.sum(reference_tv.exp() * (reference_tv - other_tv), dim=-1)


def negative_log_likelihood(logprobs_tv: Tensor, token_ids: Sequence[int]) -> float:
    """Sum over the tokens of a window, without its first, which nothing precedes; in nats."""
    following = torch.tensor(token_ids[1:]).unsqueeze(1)
    return -float(logprobs_tv[:-1].gather(1, following).double().sum())


class Judge:
    """Compares any number of models with one reference, which runs over the text only once.

    What it said is kept in a temporary file (4 bytes for each position and token of the
    vocabulary), so that a large vocabulary does not fill the memory. To be used in ``with``.
    """

    def __init__(self, reference: LogitsOf, windows: Sequence[Sequence[int]]) -> None:
        """``windows`` of at least two tokens each.

        Raises:
            ValueError: a window has nothing to predict, or there is none.
        """
        if not windows or any(len(window) < 2 for window in windows):
            raise ValueError("a text to judge on needs windows of at least two tokens")
        self._windows = windows
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._vocabulary = 0
        self._likelihood = 0.0
        for window in windows:
            logprobs_tv = reference(window).float().log_softmax(-1).cpu()
            self._vocabulary = logprobs_tv.shape[1]
            self._likelihood += negative_log_likelihood(logprobs_tv, window)
            self._file.write(logprobs_tv.contiguous().numpy().data)
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def judge(self, other: LogitsOf) -> Quality:
        """Run another model over the same text."""
        divergences: list[Tensor] = []
        likelihood = 0.0
        same = 0
        row = 0
        for window in self._windows:
            reference_tv = self._said(row, len(window))
            other_tv = other(window).float().log_softmax(-1).cpu()
            divergences.append(kl_divergence(reference_tv, other_tv))
            likelihood += negative_log_likelihood(other_tv, window)
            same += int((reference_tv.argmax(-1) == other_tv.argmax(-1)).sum())
            row += len(window)
        kl = torch.cat(divergences).double()
        predicted = row - len(self._windows)
        return Quality(
            num_positions=row,
            perplexity=_perplexity(likelihood / predicted),
            reference_perplexity=_perplexity(self._likelihood / predicted),
            mean_kl=float(kl.mean()),
            p99_kl=float(kl.quantile(0.99)),
            top1_agreement=same / row,
        )

    def _said(self, first_row: int, count: int) -> Tensor:
        rows = np.memmap(
            self._file,
            np.float32,
            "r+",
            offset=4 * first_row * self._vocabulary,
            shape=(count, self._vocabulary),
        )
        return torch.from_numpy(rows)


def _perplexity(nats: float) -> float:
    # A model that is quite broken may be beyond what a float can hold.
    return math.exp(nats) if nats < 700 else math.inf
