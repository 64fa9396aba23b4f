"""Sampled tokens with drafts have the model's own distribution, computed by the slow path."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from engine.inference.sampling_params import SamplingParams
from engine.scheduling.events import DraftsVerified
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.inference.runs_for_tests import Run, tiny_reference
from tests.engine.inference.speculation.drafting import METHODS, drafting_executor
from tests.engine.scheduling.fakes import outputs_of

pytestmark = pytest.mark.usefixtures("one_thread")

SEEDS = 1_500
# A bias towards few tokens, so that drafts are accepted often, rejected often, and counted well.
BIAS = 30.0
TEMPERATURE = 4.0


def expected_pairs(prompt: list[int]) -> torch.Tensor:
    """Probabilities of the second and third token being each pair of the first six, ``[6, 6]``,
    given the first: by full recomputation."""
    model = tiny_reference()

    def after(text: list[int]) -> torch.Tensor:
        logits = model.logits(text)[-1].double()
        logits[:6] += BIAS
        return (logits / TEMPERATURE).softmax(-1)[:6]

    first = after(prompt)
    return torch.stack([p * after([*prompt, token]) for token, p in enumerate(first)])


@pytest.mark.parametrize("method", METHODS)
def test_chi_square_over_many_seeds(method: str) -> None:
    """Pairs of tokens of which the second was a draft, or what was sampled instead of it."""
    prompt = [0, 1, 2, 3, 4, 5, 1, 0, 2, 1, 5, 5, 3, 2]
    run = Run(drafting_executor(300, draft_seed=1, draft_blocks=300), SchedulerLimits(128, SEEDS))
    bias = tuple((token, BIAS) for token in range(6))
    for seed in range(SEEDS):
        params = SamplingParams(TEMPERATURE, seed=seed, logit_bias=bias)
        run.add(f"s{seed}", prompt, 3, params, speculation=METHODS[method])
    run.finish()
    tokens = outputs_of(run.events)
    counts = Counter((said[0], said[1]) for said in tokens.values())
    assert len(tokens) == SEEDS
    expected = expected_pairs(prompt) * SEEDS
    cells = [(i, j) for i in range(6) for j in range(6) if expected[i, j] >= 5]
    assert len(cells) > 20
    wanted = {cell: float(expected[cell]) for cell in cells}
    chi_square = sum((counts[cell] - wanted[cell]) ** 2 / wanted[cell] for cell in cells)
    # The rest of the pairs is one more cell, so there are as many degrees of freedom as cells.
    rest = SEEDS - sum(wanted.values())
    chi_square += (SEEDS - sum(counts[cell] for cell in cells) - rest) ** 2 / rest
    # Wilson and Hilferty's approximation of the chi-square distribution: beyond 4 sigma.
    k = len(cells)
    sigma = ((chi_square / k) ** (1 / 3) - (1 - 2 / (9 * k))) / (2 / (9 * k)) ** 0.5
    assert sigma < 4
    verified = [event for event in run.events if isinstance(event, DraftsVerified)]
    accepted = sum(event.num_accepted for event in verified)
    proposed = sum(len(event.proposed) for event in verified)
    assert 0.1 < accepted / proposed < 0.9
