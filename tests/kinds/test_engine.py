"""Kinds of bugs in one process: the engine as an object, the tiny random model, real steps."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import StepFailed
from engine.inference import messages as m
from engine.inference.executor import TorchExecutor
from engine.inference.loading import LoadedModel, load_model
from engine.inference.model.load import load_transformer
from engine.inference.sampling import SamplingParams
from engine.inference.weights import open_checkpoint
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from tests.engine.inference.engine_for_tests import TINY, Bench, ask
from tests.engine.inference.runs_for_tests import (
    CPU,
    Run,
    alone,
    logits,
    new_cache,
    random_ids,
    sequence,
    tiny,
    tiny_executor,
)
from tests.engine.inference.weights.hf_folders import tensors, write_folder

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model(TINY)


@pytest.fixture
def bench(model: LoadedModel) -> Bench:
    return Bench(model)


# ── blocks ───────────────────────────────────────────────────────────────────────────────────


class Ends:
    """Requests that end in every way there is, on one engine."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bench = bench
        self._patch = monkeypatch
        self._rng = random.Random(5)
        self._number = 0

    def start(self, **fields: Any) -> str:
        self._number += 1
        name = f"r{self._number}"
        prompt = "".join(self._rng.choices("ab cd", k=self._rng.randrange(1, 60)))
        self._bench.take(ask(name, prompt=prompt, **{"max_tokens": 6, **fields}))
        return name

    def stop(self) -> None:
        self.start(stop_token_ids=tuple(self._rng.sample(range(512), 200)), temperature=2.0)

    def stop_string(self) -> None:
        self.start(stop=("e", " ", "a", "t"), temperature=1.0)

    def length(self) -> None:
        self.start(ignore_eos=True)

    def samples(self) -> None:
        self.start(n=3, temperature=1.0)

    def found(self) -> None:
        self.start(prefix_cache=True)

    def drafted(self) -> None:
        self.start(speculation=SpeculationSettings(SpeculationMethod.NGRAM, 4))

    def abort_queued(self) -> None:
        self._bench.engine.abort(self.start())

    def abort_running(self) -> None:
        name = self.start(ignore_eos=True)
        for _ in range(self._rng.randrange(1, 5)):
            self._bench.engine.step()
        self._bench.engine.abort(name)

    def refused(self) -> None:
        self.start(max_tokens=8_000)

    def error(self) -> None:
        self.start()
        for lane in self._bench.engine._lanes:
            with self._patch.context() as patch:
                patch.setattr(lane.opened.executor, "execute", _fail)
                if lane.loop.has_work:
                    with pytest.raises(StepFailed):
                        lane.loop.step()


def _fail(plan: object) -> object:
    raise RuntimeError("a test asked for this")


@pytest.mark.kind("O05")
def test_five_hundred_requests_that_end_in_every_way_leave_every_block_free(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Ends(bench, monkeypatch)
    ways = [
        ends.stop, ends.stop_string, ends.length, ends.samples, ends.found, ends.drafted,
        ends.abort_queued, ends.abort_running, ends.refused, ends.error,
    ]  # fmt: skip
    for _ in range(50):
        random.Random(len(bench.heard)).shuffle(ways)
        for way in ways:
            way()
        while bench.engine.has_work:
            bench.engine.step()
        for lane in bench.engine._lanes:
            pool = lane.loop.scheduler.pool
            lane.loop.scheduler.check_integrity()
            assert pool.num_used == 0
            assert pool.num_free + pool.num_cached == lane.opened.executor.num_blocks
            assert not lane.teller.samples
            assert not lane.opened.executor._params
    # Each sample has an end of its own, but where its request was refused or a step failed.
    ends_told = [x for x in bench.heard if isinstance(x, m.Done) and not x.samples_left]
    ends_told += [x for x in bench.heard if isinstance(x, m.Failed)]
    assert len(ends_told) == 500
    reasons = Counter(x.code if isinstance(x, m.Failed) else x.finish_reason for x in ends_told)
    assert reasons.keys() == {"stop", "length", "abort", "never_fits", "step_failed"}
    assert min(reasons.values()) >= 40, reasons


@pytest.mark.kind("O07")
@pytest.mark.parametrize(
    "block_hash",
    [lambda _previous, _tokens: 0, lambda _previous, tokens: hash(tokens)],
    ids=["constant", "own tokens only"],
)
def test_colliding_hashes_hand_over_no_keys_and_values_of_another_text(block_hash: Any) -> None:
    run = Run(tiny_executor(), prefix_cache=PrefixCache(block_hash))
    begins = [random_ids(16, seed=seed) for seed in range(3)]
    same = random_ids(40, seed=9)
    for number in range(12):
        # The second and third block are the same in all; what stands before them is not.
        prompt = [*begins[number % 3], *same[: 33 + number % 5]]
        run.add(f"r{number}", prompt, 12)
        run.finish()
        assert run.tokens(f"r{number}") == alone(tiny_executor(), prompt, 12)
    assert run.scheduler.pool.num_cached > 0


# ── sampling ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.kind("O10")
def test_a_seeded_request_is_the_same_beside_mates_without_a_seed(bench: Bench) -> None:
    mine = {"temperature": 1.0, "top_p": 0.95, "seed": 42, "max_tokens": 8}
    bench.run(ask("alone", **mine))
    seeds: set[int] = set()
    for number in range(50):
        bench.run(
            ask(f"before{number}", temperature=1.3, seed=None),
            ask(f"mine{number}", **mine),
            ask(f"after{number}", temperature=0.7, seed=None, max_tokens=4),
        )
        assert bench.ids(f"mine{number}") == bench.ids("alone")
        assert max(step.batch for step in bench.of(m.Step, f"mine{number}")) == 3
        seeds |= {bench.of(m.Accepted, f"{name}{number}")[0].seed for name in ("before", "after")}
    assert len(seeds) == 100


@pytest.mark.kind("O11")
def test_log_probabilities_are_the_models_own_at_any_temperature(bench: Bench) -> None:
    bench.run(ask("greedy", top_logprobs=20, max_tokens=1))
    expected = bench.of(m.Token, "greedy")[0].top
    assert len(expected) == 20
    for number, fields in enumerate(
        (
            {"temperature": 0.1},
            {"temperature": 1.5},
            {"temperature": 1.5, "top_p": 0.3},
            {"temperature": 1.0, "top_k": 2, "min_p": 0.5, "repetition_penalty": 2.0},
        )
    ):
        name = f"drawn{number}"
        bench.run(ask(name, top_logprobs=20, max_tokens=1, seed=number, **fields))
        (token,) = bench.of(m.Token, name)
        assert token.top == expected
        by_id = {token_id: logprob for token_id, _, logprob in expected}
        assert token.logprob == pytest.approx(by_id.get(token.id, token.logprob))


@pytest.mark.kind("O35")
@pytest.mark.parametrize("native", ["auto", "off"])
def test_padding_rows_that_score_highest_are_never_chosen_by_a_step(
    native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that run natively and those of torch mask in places of their own."""
    monkeypatch.setenv("FIRSTTOKEN_NATIVE", native)
    known = 100
    masked = TorchExecutor(tiny(), num_blocks=64, num_tokens=known)
    prompt = random_ids(20, seed=2, vocabulary=known)
    bias = ((120, 100.0),)
    for params in (
        SamplingParams(),
        SamplingParams(logit_bias=bias),
        SamplingParams(5.0, seed=3),
        SamplingParams(1.0, top_k=4, seed=4, logit_bias=bias),
    ):
        tokens = alone(masked, prompt, 40, params)
        assert len(tokens) == 40
        assert max(tokens) < known
    whole = alone(tiny_executor(), prompt, 40, SamplingParams(logit_bias=bias))
    assert set(whole) == {120}, "without the mask, the bias would choose it"


@pytest.mark.kind("O43")
@pytest.mark.parametrize("native", ["auto", "off"])
def test_asking_for_more_likeliest_tokens_than_there_are_gives_numbers_only(
    native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but ten ids are holes, whose log-probabilities are minus infinity."""
    monkeypatch.setenv("FIRSTTOKEN_NATIVE", native)
    executor = TorchExecutor(tiny(), num_blocks=64, unknown_ids=range(10, 512))
    run = Run(executor)
    run.add("a", random_ids(20, seed=2, vocabulary=10), 12, SamplingParams(top_logprobs=20))
    run.finish()
    produced = run.produced("a")
    assert len(produced) == 12
    for token in produced:
        assert len(token.top) == 10
        assert json.loads(json.dumps(token.top, allow_nan=False))
        assert sum(math.exp(logprob) for _, logprob in token.top) == pytest.approx(1)


# ── weights ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.kind("O38")
def test_either_of_two_tied_weights_gives_the_same_model(tmp_path: Path) -> None:
    embedded = tensors()
    headed = {**embedded, "lm_head.weight": embedded["model.embed_tokens.weight"]}
    del headed["model.embed_tokens.weight"]
    rows: list[torch.Tensor] = []
    for name, weights in (("embed", embedded), ("head", headed)):
        checkpoint = open_checkpoint(write_folder(tmp_path / name, weights=weights))
        transformer = load_transformer(checkpoint, torch.float32, CPU)
        part = sequence(random_ids(20, seed=1), table=range(2))
        rows.append(logits(transformer, new_cache(transformer), part)["a"])
    assert torch.equal(rows[0], rows[1])
    assert rows[0].std() > 0.1
