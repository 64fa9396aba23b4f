"""Penalties, biases and masks against a slow reference in numpy and against transformers."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.inference.sampling import LogitSummary, Sampler, SampleRow, SamplingParams
from engine.inference.sampling_draw import uniform
from engine.inference.sampling_shaping import Shaper

pytestmark = pytest.mark.usefixtures("one_thread")

VOCABULARY = 300
CPU = torch.device("cpu")


def _logits(rows: int, seed: int, vocabulary: int = VOCABULARY) -> torch.Tensor:
    return 3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


def _ids(count: int, seed: int, vocabulary: int = VOCABULARY) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    # Squared, so that some tokens come often.
    return (torch.rand(count, generator=generator) ** 2 * vocabulary).long().tolist()


def _shaped(logits_v: torch.Tensor, row: SampleRow) -> torch.Tensor:
    copy = logits_v.clone()
    Shaper(len(logits_v), CPU).shape_(copy, row)
    return copy


def _slow(logits_v: torch.Tensor, row: SampleRow) -> npt.NDArray[np.float64]:
    """The documented order, token by token."""
    params = row.params
    output = [*row.output_token_ids, *row.draft_token_ids]
    shaped = logits_v.double().numpy().copy()
    for token in {*row.prompt_token_ids, *output}:
        value = shaped[token]
        factor = params.repetition_penalty
        shaped[token] = value * factor if value < 0 else value / factor
    for token, count in Counter(output).items():
        shaped[token] -= params.frequency_penalty * count + params.presence_penalty
    for token, bias in params.logit_bias:
        shaped[token] += bias
    shaped[list(row.masked_ids)] = -math.inf
    return shaped


EVERYTHING = SamplingParams(
    repetition_penalty=1.3,
    presence_penalty=0.7,
    frequency_penalty=-0.4,
    logit_bias=((3, 5.5), (250, -100.0), (0, 0.25)),
)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(repetition_penalty=1.5),
        SamplingParams(repetition_penalty=0.5),
        SamplingParams(presence_penalty=1.5),
        SamplingParams(frequency_penalty=0.3),
        SamplingParams(logit_bias=((7, 100.0), (8, -3.0))),
        EVERYTHING,
    ],
    ids=lambda params: "-".join(
        name
        for name in ("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias")
        if getattr(params, name) != getattr(SamplingParams(), name)
    ),
)
def test_each_transform_is_the_documented_one(params: SamplingParams) -> None:
    for seed in range(20):
        logits_v = _logits(1, seed)[0]
        row = SampleRow(
            params,
            0,
            _ids(seed * 5, seed),
            _ids(seed * 3, seed + 100),
            masked_ids=(4, 17),
            draft_token_ids=_ids(seed % 4, seed + 200),
        )
        np.testing.assert_allclose(_shaped(logits_v, row), _slow(logits_v, row), atol=2e-5)


@pytest.mark.kind("O49")
def test_a_negative_logit_is_multiplied_so_that_a_repeat_becomes_less_likely() -> None:
    row = SampleRow(SamplingParams(repetition_penalty=1.5), 1, prompt_token_ids=[0])
    assert _shaped(torch.tensor([-1.0, -2.0]), row).tolist() == [-1.5, -2.0]
    assert _shaped(torch.tensor([3.0, -2.0]), row).tolist() == [2.0, -2.0]


def test_a_bias_is_added_after_the_penalties_and_a_mask_beats_it() -> None:
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=1.0, logit_bias=((0, 100.0),))
    row = SampleRow(params, 1, output_token_ids=[0])
    assert _shaped(torch.tensor([4.0, 1.0]), row).tolist() == [4 / 2 - 1 + 100, 1.0]
    masked = SampleRow(params, 1, output_token_ids=[0], masked_ids=[0])
    assert _shaped(torch.tensor([4.0, 1.0]), masked).tolist() == [-math.inf, 1.0]


# ── transformers, where it has the same definition ───────────────────────────────────────────


def test_the_repetition_penalty_is_that_of_transformers() -> None:
    logits_v, prompt, output = _logits(1, 1)[0], _ids(40, 2), _ids(30, 3)
    oracle = RepetitionPenaltyLogitsProcessor(1.7)
    expected = oracle(torch.LongTensor([[*prompt, *output]]), logits_v[None].clone())[0]
    row = SampleRow(SamplingParams(repetition_penalty=1.7), 0, prompt, output)
    torch.testing.assert_close(_shaped(logits_v, row), expected)


def test_a_bias_is_that_of_transformers() -> None:
    logits_v = _logits(1, 1)[0]
    biases = ((5, 3.0), (299, -100.0))
    oracle = SequenceBiasLogitsProcessor([[[token], bias] for token, bias in biases])
    expected = oracle(torch.LongTensor([_ids(9, 2)]), logits_v[None].clone())[0]
    row = SampleRow(SamplingParams(logit_bias=biases), 0, _ids(9, 2))
    torch.testing.assert_close(_shaped(logits_v, row), expected)


def test_masked_stop_tokens_are_those_of_transformers() -> None:
    logits_v, prompt = _logits(1, 1)[0], _ids(9, 2)
    oracle = MinNewTokensLengthLogitsProcessor(len(prompt), 5, [2, 11], device="cpu")
    expected = oracle(torch.LongTensor([prompt]), logits_v[None].clone())[0]
    row = SampleRow(SamplingParams(), 0, prompt, masked_ids=[2, 11])
    torch.testing.assert_close(_shaped(logits_v, row), expected)


@pytest.mark.parametrize("seed", range(60))
def test_draws_come_from_the_distribution_of_transformers(seed: int) -> None:
    """The token at the drawn share of its distribution, likeliest first, is ours."""
    picks = np.random.default_rng(seed)
    params = SamplingParams(
        temperature=float(picks.uniform(0.2, 3)),
        top_k=int(picks.choice([0, 3, 50])),
        top_p=float(picks.choice([1.0, 0.9, 0.4])),
        min_p=float(picks.choice([0.0, 0.05, 0.5])),
        seed=seed,
        repetition_penalty=float(picks.choice([1.0, 1.4])),
    )
    oracle = LogitsProcessorList([TemperatureLogitsWarper(params.temperature)])
    if params.top_k:
        oracle.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        oracle.append(TopPLogitsWarper(params.top_p))
    oracle.append(MinPLogitsWarper(params.min_p))
    if params.repetition_penalty != 1:
        oracle.insert(0, RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    logits_nv, text = _logits(20, seed), _ids(30, seed)
    rows = [SampleRow(params, position, text[:10], text[10:]) for position in range(20)]
    choices = Sampler(VOCABULARY).sample(logits_nv.clone(), rows)
    shares_nv = oracle(torch.LongTensor([text] * 20), logits_nv.clone()).double().softmax(-1)
    ranked_nv, ids_nv = shares_nv.sort(descending=True, stable=True)
    for position, choice in enumerate(choices):
        passed = ranked_nv[position].cumsum(-1) > uniform(seed, position)
        assert choice.token_id == int(ids_nv[position][passed.int().argmax()])


# ── counts that are kept up with a growing text ──────────────────────────────────────────────


class _Watched(list[int]):
    """A list that adds up how many items are read from it."""

    num_read = 0

    def __getitem__(self, index):
        read = super().__getitem__(index)
        self.num_read += len(read) if isinstance(index, slice) else 1
        return read

    def __iter__(self):
        self.num_read += len(self)
        return super().__iter__()


def test_a_growing_text_is_counted_once() -> None:
    logits_v, prompt = _logits(1, 5)[0], _ids(2_000, 6)
    output, shaper = _Watched(), Shaper(VOCABULARY, CPU)
    for step, token in enumerate(_ids(400, 7)):
        drafts = _ids(step % 5, step)  # rejected, all of them
        row = SampleRow(EVERYTHING, 0, prompt, output, draft_token_ids=drafts)
        shaped = logits_v.clone()
        shaper.shape_(shaped, row)
        if step % 40 == 0:
            slow = SampleRow(EVERYTHING, 0, prompt, list(output), draft_token_ids=drafts)
            output.num_read -= len(output)
            np.testing.assert_allclose(shaped, _slow(logits_v, slow), atol=2e-4)
        output.append(token)
    assert output.num_read == 399


def test_more_texts_than_are_kept_are_counted_anew() -> None:
    logits_v, shaper = _logits(1, 5)[0], Shaper(VOCABULARY, CPU)
    outputs = [_ids(5, seed) for seed in range(300)]
    for _ in range(2):
        for output in outputs:
            row = SampleRow(EVERYTHING, 0, (1, 2), output)
            shaped = logits_v.clone()
            shaper.shape_(shaped, row)
            np.testing.assert_allclose(shaped, _slow(logits_v, row), atol=2e-5)
            output.append(output[0])


def test_texts_that_share_a_part_are_told_apart() -> None:
    logits_v, shaper, output = _logits(1, 5)[0], Shaper(VOCABULARY, CPU), ()
    other = SamplingParams(repetition_penalty=4.0)
    for params, prompt in ((EVERYTHING, [1, 2]), (EVERYTHING, [3]), (other, [3])):
        row = SampleRow(params, 0, prompt, output)
        shaped = logits_v.clone()
        shaper.shape_(shaped, row)
        np.testing.assert_allclose(shaped, _slow(logits_v, row), atol=2e-5)


def test_texts_with_tokens_that_have_no_logit_are_shaped_all_the_same() -> None:
    params = SamplingParams(repetition_penalty=2.0, logit_bias=((9, 50.0), (1, 1.0)))
    row = SampleRow(params, 0, [0, 7], [8, 1], masked_ids=[9], draft_token_ids=[6])
    assert _shaped(torch.tensor([2.0, 4.0, 1.0]), row).tolist() == [1.0, 3.0, 1.0]


# ── whole choices ────────────────────────────────────────────────────────────────────────────


def _mixed_rows() -> list[SampleRow]:
    text = _ids(50, 1)
    return [
        SampleRow(SamplingParams(), 50),
        SampleRow(SamplingParams(1.0, seed=3), 50),
        SampleRow(SamplingParams(0.7, top_p=0.9, seed=4, presence_penalty=2.0), 50, text, [5, 5]),
        SampleRow(SamplingParams(repetition_penalty=5.0, top_logprobs=20), 50, text, [7]),
        SampleRow(SamplingParams(logit_bias=((42, 100.0),)), 50),
        SampleRow(SamplingParams(1.0, seed=8, top_logprobs=3), 50, masked_ids=(1, 2, 3)),
        SampleRow(SamplingParams(top_logprobs=1), 50),
    ]


def test_a_row_gets_alone_what_it_gets_among_others() -> None:
    rows = _mixed_rows()
    logits_nv = _logits(len(rows), 11)
    together = Sampler(VOCABULARY).sample(logits_nv.clone(), rows)
    for order in (range(len(rows)), reversed(range(len(rows)))):
        sampler = Sampler(VOCABULARY)
        for place in order:
            (alone,) = sampler.sample(logits_nv[place : place + 1].clone(), [rows[place]])
            assert alone == together[place]
    assert together[4].token_id == 42


def test_a_summary_made_elsewhere_gives_the_same_choices() -> None:
    rows = _mixed_rows()
    logits_nv = _logits(len(rows), 11, vocabulary=VOCABULARY + 20)
    logits_nv[:, VOCABULARY:] = 90.0
    own = logits_nv[:, :VOCABULARY]
    summary = LogitSummary(own.argmax(-1), own.double().logsumexp(-1).float())
    kept = summary.likeliest_n.clone()
    expected = Sampler(VOCABULARY).sample(logits_nv.clone(), rows)
    choices = Sampler(VOCABULARY).sample(logits_nv, rows, summary)
    assert torch.equal(summary.likeliest_n, kept)
    for choice, other in zip(choices, expected, strict=True):
        assert choice.token_id == other.token_id
        assert choice.logprob == pytest.approx(other.logprob, abs=1e-5)
        assert [i for i, _ in choice.top] == [i for i, _ in other.top]
        np.testing.assert_allclose([p for _, p in choice.top], [p for _, p in other.top], atol=1e-5)


def test_plain_rows_cost_nothing_of_what_others_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: Shaper, logits_v: torch.Tensor, row: SampleRow) -> None:
        raise AssertionError("a plain row was shaped")

    monkeypatch.setattr(Shaper, "shape_", never)
    logits_nv = _logits(4, 3)
    rows = [SampleRow(SamplingParams(), 9, _ids(5, 1), _ids(5, 2))] * 4
    choices = Sampler(VOCABULARY).sample(logits_nv.clone(), rows)
    assert [choice.token_id for choice in choices] == logits_nv.argmax(-1).tolist()


def test_masked_tokens_are_not_chosen_unless_nothing_else_is_left() -> None:
    logits_nv = _logits(200, 4, vocabulary=6)
    params = [SamplingParams(float(i % 2), seed=i) for i in range(200)]
    rows = [SampleRow(p, i, masked_ids=(0, 3, 4)) for i, p in enumerate(params)]
    choices = Sampler(6).sample(logits_nv.clone(), rows)
    assert {choice.token_id for choice in choices} == {1, 2, 5}
    everything = [SampleRow(p, i, masked_ids=range(6)) for i, p in enumerate(params)]
    unmasked = [SampleRow(p, i) for i, p in enumerate(params)]
    assert Sampler(6).sample(logits_nv.clone(), everything) == Sampler(6).sample(
        logits_nv, unmasked
    )


@pytest.mark.parametrize("hole", [120, 50])
def test_no_bias_lets_a_token_through_that_no_text_has(hole: int) -> None:
    """120 is above the tokenizer's last id, 50 a hole below it."""
    logits_nv = _logits(40, 8, vocabulary=128)
    rows = [
        SampleRow(SamplingParams(float(i % 3), seed=i, logit_bias=((hole, 100.0),)), i)
        for i in range(40)
    ]
    for row in rows:
        row.params.validate(128)
    choices = Sampler(100, unknown_ids=[50]).sample(logits_nv.clone(), rows)
    unbiased = [SampleRow(SamplingParams(float(i % 3), seed=i), i) for i in range(40)]
    assert choices == Sampler(100, unknown_ids=[50]).sample(logits_nv, unbiased)


# ── top log-probabilities ────────────────────────────────────────────────────────────────────


def _tops(
    rows: Sequence[SampleRow], logits_nv: torch.Tensor
) -> list[tuple[tuple[int, float], ...]]:
    choices = Sampler(logits_nv.shape[1]).sample(logits_nv.clone(), rows)
    return [choice.top for choice in choices]


def test_top_logprobs_are_the_models_own_whatever_is_done_to_the_draw() -> None:
    logits_nv = _logits(1, 9)
    exact = logits_nv[0].double().log_softmax(-1)
    expected, ids = exact.sort(descending=True)
    for params in (
        SamplingParams(top_logprobs=20),
        SamplingParams(0.1, seed=1, top_logprobs=20),
        SamplingParams(1.5, top_k=2, top_p=0.5, seed=2, top_logprobs=20),
        SamplingParams(
            repetition_penalty=3.0, logit_bias=((1, 50.0),), presence_penalty=2.0, top_logprobs=20
        ),
    ):
        row = SampleRow(params, 0, _ids(30, 1), _ids(30, 2), masked_ids=[int(ids[0])])
        (top,) = _tops([row], logits_nv)
        assert [token for token, _ in top] == ids[:20].tolist()
        np.testing.assert_allclose([p for _, p in top], expected[:20], atol=1e-5)


def test_equally_likely_tokens_are_told_by_id() -> None:
    logits_nv = torch.zeros(1, 40)
    logits_nv[0, 30] = 1.0
    (top,) = _tops([SampleRow(SamplingParams(top_logprobs=5), 0)], logits_nv)
    assert [token for token, _ in top] == [30, 0, 1, 2, 3]
    assert _tops([SampleRow(SamplingParams(), 0)], logits_nv) == [()]


@pytest.mark.kind("O43")
def test_tokens_of_no_probability_are_not_told_so_every_number_is_valid_json() -> None:
    logits_nv = _logits(1, 9, vocabulary=12)
    logits_nv[0, 4:] = -math.inf
    row = SampleRow(SamplingParams(top_logprobs=20), 0, masked_ids=[1])
    (choice,) = Sampler(10, unknown_ids=[0, 11]).sample(logits_nv, [row])
    assert {token for token, _ in choice.top} == {1, 2, 3}
    assert json.loads(json.dumps(choice.top, allow_nan=False)) == [list(p) for p in choice.top]
    assert sum(math.exp(p) for _, p in choice.top) == pytest.approx(1, abs=1e-5)
