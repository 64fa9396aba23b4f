"""Sampling against a slow reference written here, closed forms, and known distributions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product

import pytest
import torch

from engine.errors import InvalidRequest, StepFailed
from engine.inference.sampling import Sampler, SampleRow, SamplingParams
from engine.inference.sampling_draw import draw_, uniform
from engine.inference.sampling_params import MAX_SEED

pytestmark = pytest.mark.usefixtures("one_thread")

VOCABULARY = 1_000


def _logits(
    rows: int, seed: int, spread: float = 3.0, vocabulary: int = VOCABULARY
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(rows, vocabulary, generator=generator)


def _rows(params: Sequence[SamplingParams], positions: Iterable[int]) -> list[SampleRow]:
    return [SampleRow(*pair) for pair in zip(params, positions, strict=True)]


def _chi_square(counts: list[int], expected: list[float]) -> float:
    return sum((seen - want) ** 2 / want for seen, want in zip(counts, expected, strict=True))


# ── the slow reference: one row, plain Python, everything ranked ─────────────────────────────


def _kept(logits: list[float], params: SamplingParams) -> list[tuple[int, float]]:
    """Ids and probabilities that remain, likeliest first: each transform as it is documented."""
    top = max(logits)
    weights = [math.exp((value - top) / params.temperature) for value in logits]
    ranked = sorted(range(len(logits)), key=lambda i: (-weights[i], i))
    if params.top_k:
        ranked = ranked[: params.top_k]
    if params.top_p < 1:
        mass = sum(weights[i] for i in ranked)
        reached, few = 0.0, []
        for i in ranked:
            if reached >= params.top_p * mass:
                break
            few.append(i)
            reached += weights[i]
        ranked = few
    ranked = [i for i in ranked if weights[i] >= params.min_p * weights[ranked[0]]]
    mass = sum(weights[i] for i in ranked)
    return [(i, weights[i] / mass) for i in ranked]


def _slow_choice(logits: list[float], params: SamplingParams, position: int) -> int:
    if params.greedy:
        return max(range(len(logits)), key=lambda i: (logits[i], -i))
    draw, passed = uniform(params.seed, position), 0.0
    kept = _kept(logits, params)
    for token, probability in kept:
        passed += probability
        if passed > draw:
            return token
    return kept[-1][0]


GRID = [
    SamplingParams(t, k, p, m)
    for t, k, p, m in product((0.3, 1.0, 5.0), (0, 1, 40, 700), (0.2, 0.95, 1.0), (0.0, 0.1, 1.0))
]


@pytest.mark.parametrize("candidates", [8, 64, 256, VOCABULARY])
def test_batches_equal_the_slow_reference(candidates: int) -> None:
    params = [
        SamplingParams(p.temperature, p.top_k, p.top_p, p.min_p, seed=i) for i, p in enumerate(GRID)
    ]
    params += [SamplingParams()] * 5
    logits = _logits(len(params), seed=candidates)
    positions = list(range(7, 7 + len(params)))
    choices = Sampler(VOCABULARY, candidates).sample(logits, _rows(params, positions))
    for row, choice in enumerate(choices):
        expected = _slow_choice(logits[row].tolist(), params[row], positions[row])
        assert choice.token_id == expected, params[row]


def test_ties_rank_by_id_however_many_are_ranked() -> None:
    # Whole numbers, as coarse number formats give: hundreds of equal logits in each row.
    logits = _logits(60, seed=2).round()
    params = [SamplingParams(1.5, (0, 3, 90)[i % 3], (1.0, 0.7)[i % 2], seed=i) for i in range(60)]
    positions = [0] * 60
    expected = [_slow_choice(logits[i].tolist(), params[i], 0) for i in range(60)]
    for candidates in (4, 100, VOCABULARY):
        choices = Sampler(VOCABULARY, candidates).sample(logits, _rows(params, positions))
        assert [choice.token_id for choice in choices] == expected


def test_the_all_greedy_batch_equals_the_general_path() -> None:
    logits = _logits(16, seed=3)
    logits[4, 17] = logits[4, 900] = logits[4].max() + 1  # a tie goes to the lower id
    sampler = Sampler(VOCABULARY)
    greedy = sampler.sample(logits, _rows([SamplingParams()] * 16, [5] * 16))
    drawn = sampler.sample(
        logits, _rows([SamplingParams(1.0, top_k=1, seed=i) for i in range(16)], [5] * 16)
    )
    coldest = sampler.sample(logits, _rows([SamplingParams(5e-324, top_k=1)] * 16, [5] * 16))
    assert greedy == drawn == coldest
    assert greedy[4].token_id == 17


# ── distributions ────────────────────────────────────────────────────────────────────────────


@pytest.mark.kind("O09")
def test_top_p_of_one_keeps_everything() -> None:
    draws = 10_000
    params = [SamplingParams(1.0, top_p=1.0, seed=seed) for seed in range(draws)]
    choices = Sampler(4).sample(torch.zeros(draws, 4), _rows(params, [0] * draws))
    counts = [sum(choice.token_id == token for choice in choices) for token in range(4)]
    # 3 degrees of freedom: 16.27 is passed once in 1,000.
    assert _chi_square(counts, [draws / 4] * 4) < 16.27


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(1.0),
        SamplingParams(0.7),
        SamplingParams(1.0, top_k=5),
        SamplingParams(1.3, top_p=0.8),
        SamplingParams(1.0, min_p=0.2),
        SamplingParams(2.0, top_k=7, top_p=0.9, min_p=0.3),
    ],
    ids=str,
)
def test_frequencies_are_the_documented_ones(params: SamplingParams) -> None:
    draws = 8_000
    logits = _logits(1, seed=11, spread=1.0, vocabulary=12)
    # One seed and many positions here, many seeds and one position above.
    choices = Sampler(12).sample(logits.expand(draws, -1), _rows([params] * draws, range(draws)))
    expected = dict(_kept(logits[0].tolist(), params))
    counts = [sum(choice.token_id == token for choice in choices) for token in expected]
    assert sum(counts) == draws, "a token was drawn that the transforms remove"
    assert _chi_square(counts, [draws * p for p in expected.values()]) < 31.3  # 11 degrees, 1/1000


def test_the_counter_gives_uniform_independent_numbers() -> None:
    numbers = torch.tensor([[uniform(seed, i) for i in range(100)] for seed in range(100)])
    counts = torch.histc(numbers.float(), 20, 0.0, 1.0).tolist()
    assert _chi_square(counts, [500.0] * 20) < 43.8  # 19 degrees of freedom, once in 1,000
    neighbours = torch.corrcoef(torch.stack((numbers[:, :-1].flatten(), numbers[:, 1:].flatten())))
    assert abs(neighbours[0, 1]) < 0.04
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert uniform(42, 7) == uniform(42, 7) != uniform(7, 42)


# ── seeds ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.kind("O10")
def test_a_seeded_row_does_not_depend_on_its_batch_mates() -> None:
    logits = _logits(9, seed=5)
    mine = SamplingParams(1.0, top_p=0.95, seed=42)
    sampler = Sampler(VOCABULARY)
    for position in range(50):
        expected = sampler.sample(logits[:1], _rows([mine], [position]))
        mates = [SamplingParams(1.0 + position / 10, seed=position + i) for i in range(7)]
        for place in (0, 4, 8):
            order = [*range(1, 1 + place), 0, *range(1 + place, 9)]
            params = [*mates[:place], mine, *mates[place:], SamplingParams()][:9]
            params[place] = mine
            together = sampler.sample(logits[order], _rows(params, [position] * 9))
            assert together[place] == expected[0]


# ── log-probabilities ────────────────────────────────────────────────────────────────────────


@pytest.mark.kind("O11")
def test_logprobs_are_the_models_own() -> None:
    logits = _logits(1, seed=6)
    exact = logits[0].double().log_softmax(-1)
    for params in (
        SamplingParams(),
        SamplingParams(0.1, seed=3),
        SamplingParams(1.5, seed=4),
        SamplingParams(1.0, top_k=3, top_p=0.5, min_p=0.1, seed=5),
    ):
        (choice,) = Sampler(VOCABULARY).sample(logits, _rows([params], [0]))
        assert choice.logprob == pytest.approx(exact[choice.token_id].item(), abs=1e-5)


@pytest.mark.kind("O11")
def test_probabilities_sum_to_one_over_the_tokenizers_vocabulary() -> None:
    draws = 3_000
    logits = _logits(1, seed=7, spread=0.3, vocabulary=16).expand(draws, -1)
    params = [SamplingParams(1.0, seed=seed) for seed in range(draws)]
    choices = Sampler(10).sample(logits, _rows(params, [0] * draws))
    probability = {choice.token_id: math.exp(choice.logprob) for choice in choices}
    assert probability.keys() == set(range(10))
    assert sum(probability.values()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.kind("O35")
def test_padding_rows_are_never_sampled() -> None:
    logits = _logits(64, seed=8, vocabulary=128)
    logits[:, 120] = 50.0
    params = [SamplingParams(float(i % 3), seed=i) for i in range(64)]
    choices = Sampler(100).sample(logits, _rows(params, [0] * 64))
    exact = logits[:, :100].double().log_softmax(-1)
    for row, choice in enumerate(choices):
        assert choice.token_id < 100
        assert choice.logprob == pytest.approx(exact[row, choice.token_id].item(), abs=1e-5)


HOLES = (0, 7, 19, 60)


@pytest.mark.parametrize("score", [50.0, math.inf, math.nan])
def test_holes_in_the_vocabulary_are_as_good_as_not_there(score: float) -> None:
    """Choices and log-probabilities are those of logits without the columns of the holes."""
    logits = _logits(64, seed=12, vocabulary=128)
    logits[:, HOLES] = score
    params = [SamplingParams(float(i % 3), (0, 5)[i % 2], seed=i) for i in range(64)]
    # Ids above the tokenizer's last one may be told, too.
    sampler = Sampler(100, unknown_ids=[*HOLES, *range(100, 128)])
    choices = sampler.sample(logits, _rows(params, [0] * 64))
    known = [token for token in range(100) if token not in HOLES]
    dense = Sampler(len(known)).sample(logits[:, known], _rows(params, [0] * 64))
    for choice, expected in zip(choices, dense, strict=True):
        assert choice.token_id == known[expected.token_id]
        assert choice.logprob == pytest.approx(expected.logprob, abs=1e-5)


def test_tokens_of_no_probability_are_never_drawn_and_logprobs_stay_finite() -> None:
    logits = _logits(200, seed=9, vocabulary=50)
    logits[:, 10:] = -math.inf
    params = [SamplingParams(100.0, seed=i) for i in range(200)]
    choices = Sampler(50).sample(logits, _rows(params, [3] * 200))
    assert all(choice.token_id < 10 and math.isfinite(choice.logprob) for choice in choices)
    assert len({choice.token_id for choice in choices}) == 10


def test_the_last_number_below_one_draws_a_token_that_has_a_weight() -> None:
    """Sums that are added up in different orders differ in their last digits."""
    params = SamplingParams(temperature=1.0)
    for seed in range(100):
        logits = _logits(1, seed, vocabulary=2_000)
        logits[0, -3:] = -math.inf
        [token] = draw_(logits.clone(), [params], [1 - 2.0**-53])
        assert logits[0, token] > -math.inf


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(1.0), SamplingParams(1.0, 3)])
def test_overflow_is_an_error_and_not_a_token(value: float, params: SamplingParams) -> None:
    logits = _logits(3, seed=10)
    logits[1, 5] = value
    with pytest.raises(StepFailed, match="not finite"):
        Sampler(VOCABULARY).sample(logits, _rows([params] * 3, [0] * 3))


def test_a_row_of_minus_infinity_is_an_error() -> None:
    with pytest.raises(StepFailed, match="not finite"):
        Sampler(9).sample(torch.full((1, 9), -math.inf), _rows([SamplingParams(1.0)], [0]))


# ── validation ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", -0.1),
        ("temperature", 100.1),
        ("temperature", True),
        ("temperature", "0.5"),
        ("temperature", None),
        ("top_k", -1),
        ("top_k", 1.0),
        ("top_k", 1_001),
        ("top_p", 0.0),
        ("top_p", 1.0001),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", math.nan),
        ("seed", -1),
        ("seed", MAX_SEED + 1),
        ("seed", 1.5),
        ("seed", True),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 10.1),
        ("repetition_penalty", math.nan),
        ("presence_penalty", 2.1),
        ("presence_penalty", math.nan),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", math.inf),
        ("frequency_penalty", "1"),
        ("top_logprobs", 21),
        ("top_logprobs", -1),
        ("top_logprobs", True),
        ("logit_bias", {1: 2.0}),
        ("logit_bias", ((1,),)),
        ("logit_bias", ((1, math.nan),)),
        ("logit_bias", ((1, 100.1),)),
        ("logit_bias", ((1, True),)),
        ("logit_bias", ((VOCABULARY, 1.0),)),
        ("logit_bias", ((-1, 1.0),)),
        ("logit_bias", (("1", 1.0),)),
        ("logit_bias", ((5, 1.0), (5, 1.0))),
        ("logit_bias", tuple((i % VOCABULARY, 1.0) for i in range(1_025))),
    ],
)
def test_values_out_of_range_are_refused_by_name(field: str, value: object) -> None:
    params = SamplingParams(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest) as caught:
        params.validate(VOCABULARY)
    assert caught.value.field == field
    assert repr(value) not in caught.value.message


def test_the_ends_of_all_ranges_are_accepted() -> None:
    SamplingParams(0.0, 0, 1.0, 0.0, 0).validate()
    SamplingParams(100.0, VOCABULARY, 1e-9, 1.0, MAX_SEED).validate(VOCABULARY)
    SamplingParams(1, 5).validate()
    for penalty, bias in ((-2.0, -100.0), (2, 100)):
        SamplingParams(
            repetition_penalty=0.1 if penalty < 0 else 10,
            presence_penalty=penalty,
            frequency_penalty=penalty,
            logit_bias=((0, bias), (VOCABULARY - 1, bias)),
            top_logprobs=20,
        ).validate(VOCABULARY)
