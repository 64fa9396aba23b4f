"""The numbers of the quality report, against closed forms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from engine.inference.quantization.quality import (
    Judge,
    LogitsOf,
    Quality,
    kl_divergence,
    negative_log_likelihood,
)

WINDOWS = [[0, 1, 2, 1], [2, 0], [1, 1, 0]]


def always(*probabilities: float, scale: float = 1.0, shift: float = 0.0) -> LogitsOf:
    """A model that says the same at every position."""

    def logits_of(token_ids: Sequence[int]) -> torch.Tensor:
        row = torch.tensor(probabilities).log() * scale + shift
        return row.expand(len(token_ids), -1).clone()

    return logits_of


def judged(reference: LogitsOf, other: LogitsOf) -> Quality:
    with Judge(reference, WINDOWS) as judge:
        return judge.judge(other)


def test_the_divergence_of_known_distributions() -> None:
    p = torch.tensor([[0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]])
    q = torch.tensor([[0.25, 0.5, 0.25], [1 / 3, 1 / 3, 1 / 3]])
    expected = torch.tensor([0.5 * math.log(2) - 0.25 * math.log(2), 0.0])
    torch.testing.assert_close(kl_divergence(p.log(), q.log()), expected)


def test_divergence_is_torchs_own() -> None:
    torch.manual_seed(0)
    p, q = torch.randn(40, 300).log_softmax(-1), torch.randn(40, 300).log_softmax(-1)
    theirs = torch.nn.functional.kl_div(q, p, reduction="none", log_target=True).sum(-1)
    torch.testing.assert_close(kl_divergence(p, q), theirs, rtol=1e-5, atol=1e-6)


def test_the_first_token_of_a_window_is_not_predicted() -> None:
    logprobs = torch.tensor([[0.5, 0.25, 0.25]]).log().expand(4, -1)
    nats = negative_log_likelihood(logprobs, [0, 1, 0, 2])
    assert nats == pytest.approx(math.log(4) + math.log(2) + math.log(4))


def test_a_model_against_itself() -> None:
    model = always(0.5, 0.25, 0.25)
    result = judged(model, always(0.5, 0.25, 0.25, shift=3.0))
    assert result.num_positions == 9
    assert result.mean_kl == pytest.approx(0, abs=1e-7)
    assert result.p99_kl == pytest.approx(0, abs=1e-7)
    assert result.top1_agreement == 1.0
    # Tokens 1, 2, 1; 0; 1, 0 follow: four of probability 1/4 and two of 1/2.
    expected = math.exp((4 * math.log(4) + 2 * math.log(2)) / 6)
    assert result.perplexity == pytest.approx(expected)
    assert result.reference_perplexity == pytest.approx(expected)


def test_against_another_model() -> None:
    with Judge(always(0.5, 0.25, 0.25), WINDOWS) as judge:
        result = judge.judge(always(0.25, 0.5, 0.25))
        again = judge.judge(always(0.25, 0.5, 0.25))
    assert again == result
    assert result.mean_kl == pytest.approx(0.25 * math.log(2), rel=1e-5)
    assert result.top1_agreement == 0.0
    # Four tokens have the probability 1/2 (1, 1, 1 and no 2): 1, 2, 1; 0; 1, 0.
    assert result.perplexity == pytest.approx(math.exp((3 * math.log(2) + 3 * math.log(4)) / 6))


def test_positions_are_compared_with_their_own() -> None:
    """A model that differs at one position of one window only."""

    def other(token_ids: Sequence[int]) -> torch.Tensor:
        logits = always(0.5, 0.25, 0.25)(token_ids)
        if list(token_ids) == WINDOWS[1]:
            logits[1] = torch.tensor([0.25, 0.5, 0.25]).log()
        return logits

    result = judged(always(0.5, 0.25, 0.25), other)
    assert result.mean_kl == pytest.approx(0.25 * math.log(2) / 9, rel=1e-5)
    assert result.top1_agreement == pytest.approx(8 / 9)
    assert result.p99_kl > result.mean_kl


def test_a_broken_model_is_told_and_no_error() -> None:
    result = judged(always(0.5, 0.25, 0.25), always(0.6, 0.2, 0.2, scale=3e3))
    assert result.perplexity == math.inf
    assert result.mean_kl > 100


@pytest.mark.parametrize("windows", [[], [[1]], [[1, 2], [3]]])
def test_windows_with_nothing_to_predict_are_refused(windows: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="at least two tokens"):
        Judge(always(0.5, 0.5), windows)
