"""The executor under the real loop."""

from __future__ import annotations

import math

import pytest
import torch

from engine.errors import InvalidRequest, StepFailed
from engine.inference.executor import TorchExecutor
from engine.inference.model.linear import PackedLinear
from engine.inference.model.load import load_transformer
from engine.inference.sampling import SamplingParams
from engine.inference.weights.tiny import tiny_random_checkpoint
from engine.scheduling.events import RequestFinished, RequestPreempted, StepCompleted
from engine.scheduling.request import FinishReason
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.inference.runs_for_tests import (
    CPU,
    GREEDY,
    Run,
    alone,
    plan,
    random_ids,
    sequence,
    tiny,
    tiny_executor,
    tiny_reference,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def test_tokens_are_those_of_full_recomputation() -> None:
    prompt = random_ids(9, seed=1)
    expected = tiny_reference().greedy(prompt, 40, frozenset())
    assert alone(tiny_executor(), prompt, 40) == expected


def test_logprobs_are_those_of_full_recomputation() -> None:
    prompt = random_ids(9, seed=1)
    run = Run(tiny_executor())
    run.add("a", prompt, 10, SamplingParams(0.8, seed=5))
    run.finish()
    text = [*prompt, *run.tokens("a")]
    exact = tiny_reference().logits(text).double().log_softmax(-1)
    for index, produced in enumerate(run.produced("a")):
        position = len(prompt) + index
        expected = exact[position - 1, produced.token_id].item()
        assert produced.logprob == pytest.approx(expected, abs=2e-4)


def test_stop_token_ends_the_text() -> None:
    prompt = random_ids(9, seed=1)
    tokens = alone(tiny_executor(), prompt, 40)
    stop = tokens[12]
    expected = tokens[: tokens.index(stop) + 1]
    assert alone(tiny_executor(), prompt, 40, stop=frozenset({stop})) == expected


@pytest.mark.parametrize("max_tokens", [1, 5, 20])
def test_exactly_max_tokens_are_counted(max_tokens: int) -> None:
    run = Run(tiny_executor())
    run.add("a", random_ids(4, seed=2), max_tokens)
    run.finish()
    assert len(run.tokens("a")) == max_tokens
    (finished,) = [event for event in run.events if isinstance(event, RequestFinished)]
    assert finished.completion_tokens == max_tokens
    assert finished.reason is FinishReason.LENGTH


def test_seeded_request_is_the_same_alone_and_beside_others() -> None:
    prompt = random_ids(6, seed=3)
    mine = SamplingParams(1.0, top_p=0.95, seed=42)
    expected = alone(tiny_executor(), prompt, 12, mine)
    for attempt in range(10):
        run = Run(tiny_executor())
        for mate in range(attempt % 4):
            run.add(
                f"mate {mate}", random_ids(5 + mate, mate), 9, SamplingParams(1.0, seed=attempt)
            )
        run.loop.step()
        run.add("mine", prompt, 12, mine)
        run.finish()
        assert run.tokens("mine") == expected
    other = alone(tiny_executor(), prompt, 12, SamplingParams(1.0, top_p=0.95, seed=43))
    assert other != expected


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(1.0, seed=9)])
def test_preempted_requests_end_with_the_same_tokens(params: SamplingParams) -> None:
    prompts = {f"r{i}": random_ids(20, seed=20 + i) for i in range(4)}
    expected = {name: alone(tiny_executor(), ids, 60, params) for name, ids in prompts.items()}
    run = Run(tiny_executor(num_blocks=11))
    for name, ids in prompts.items():
        run.add(name, ids, 60, params)
    run.finish()
    assert any(isinstance(event, RequestPreempted) for event in run.events)
    assert {name: run.tokens(name) for name in prompts} == expected
    run.scheduler.check_integrity()


def test_stages_are_the_parts_of_a_step() -> None:
    run = Run(tiny_executor())
    run.add("a", random_ids(30, seed=4), 3)
    run.finish()
    steps = [event for event in run.events if isinstance(event, StepCompleted)]
    for step in steps:
        assert list(step.stages) == ["embed", "layers", "logits", "sample"]
        assert all(seconds > 0 for seconds in step.stages.values())
        assert sum(step.stages.values()) <= step.duration


def test_a_chunk_that_samples_nothing_gives_no_sample() -> None:
    executor = tiny_executor()
    executor.add_request("a", GREEDY)
    result = executor.execute(plan(sequence(random_ids(5, 1), table=[0], samples=False)))
    assert result.samples == ()


@pytest.mark.parametrize(("device", "waits"), [("cuda", 1), ("cpu", 0)])
def test_a_step_that_samples_nothing_waits_for_the_gpu(
    device: str, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[object] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(TorchExecutor, "device", device)
    executor = tiny_executor()
    executor.add_request("a", GREEDY)
    executor.execute(plan(sequence(random_ids(5, 1), table=[0], samples=False)))
    assert len(waited) == waits


def test_samples_come_in_the_order_of_the_plan() -> None:
    executor = tiny_executor()
    lengths = {"short": 3, "chunk": 10, "long": 30, "middle": 17}
    for block, (name, length) in enumerate(lengths.items()):
        executor.add_request(name, GREEDY)
        table = range(4 * block, 4 * block + 4)
        executor.execute(plan(sequence(random_ids(length, block), table=table, request_id=name)))
    parts = [
        sequence([7], start=3, table=range(0, 4), request_id="short"),
        sequence([8, 9], start=10, table=range(4, 8), request_id="chunk"),
        sequence([7], start=30, table=range(8, 12), request_id="long"),
        sequence([7], start=17, table=range(12, 16), request_id="middle"),
    ]
    result = executor.execute(plan(*parts))
    assert [sample.request_id for sample in result.samples] == list(lengths)
    for block, (sample, part) in enumerate(zip(result.samples, parts, strict=True)):
        text = [*random_ids(part.start, block), *part.token_ids]
        assert sample.token_id == int(tiny_reference().logits(text)[-1].argmax())


def test_what_it_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_NATIVE", "off")
    for dtype, itemsize in ((torch.float32, 4), (torch.bfloat16, 2)):
        executor = TorchExecutor(tiny(dtype), num_blocks=3)
        config = tiny().config
        matrices = config.num_parameters - 64 * 5  # five norms, kept in float32
        assert executor.weight_bytes == matrices * itemsize + 64 * 5 * 4
        assert executor.kv_bytes_per_token == 2 * 2 * 2 * 16 * itemsize
        assert (executor.num_blocks, executor.block_size) == (3, 16)
        assert executor.dtype == str(dtype).split(".")[1]
        assert executor.device == "cpu"


@pytest.mark.parametrize("packed", [False, True])
def test_tied_weights_count_as_often_as_they_are_stored(
    packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain head reads the embedding's table itself; a packed one has a copy of it."""
    monkeypatch.setattr(PackedLinear, "supports", lambda dtype, device: packed)
    monkeypatch.setenv("FIRSTTOKEN_NATIVE", "off")
    transformer = load_transformer(tiny_random_checkpoint(tied_embeddings=True), torch.float32, CPU)
    config = transformer.config
    table = config.vocab_size * config.hidden_size
    numbers = config.num_parameters + (table if packed else 0)
    assert TorchExecutor(transformer, num_blocks=1).weight_bytes == 4 * numbers


def test_requests_are_checked_when_added_and_forgotten_when_released() -> None:
    executor = tiny_executor()
    with pytest.raises(InvalidRequest) as caught:
        executor.add_request("a", SamplingParams(temperature=math.nan))
    assert caught.value.field == "temperature"
    executor.add_request("a", GREEDY)
    executor.release("a")
    executor.release("a")
    executor.release("never seen")


# ── failure ──────────────────────────────────────────────────────────────────────────────────


def test_overflow_ends_its_step_and_leaves_nothing_behind() -> None:
    executor = tiny_executor(num_blocks=8)
    victim = random_ids(20, seed=5)
    expected = alone(tiny_executor(), victim, 20)
    executor.add_request("a", GREEDY)
    for (layer,) in executor._cache.store.planes:
        layer[:, :, :5] = math.nan  # as an overflow in an earlier chunk would leave it
    with pytest.raises(StepFailed, match="not finite"):
        executor.execute(plan(sequence(random_ids(9, 6), start=5, table=[0, 1])))
    assert all(layer.isfinite().all() for (layer,) in executor._cache.store.planes)

    # Two requests, so that the padded path reads what lies beyond the shorter one's end.
    run = Run(executor)
    run.add("long", random_ids(40, seed=7), 20)
    run.add("victim", victim, 20)
    run.finish()
    assert run.tokens("victim") == expected


def test_a_cache_that_holds_longer_sequences_than_the_transformer_knows_is_refused() -> None:
    short = load_transformer(tiny_random_checkpoint(), torch.float32, CPU, max_positions=64)
    assert short.max_positions == 64
    assert alone(TorchExecutor(short, num_blocks=4), random_ids(60, seed=1), 4)
    with pytest.raises(ValueError, match="more positions"):
        TorchExecutor(short, num_blocks=5)
    # Beyond the model's context nobody goes, however large the cache.
    TorchExecutor(tiny(), num_blocks=10 * tiny().config.max_context // 16)


def test_plans_that_cannot_be_run_are_refused() -> None:
    executor = tiny_executor()
    executor.add_request("a", GREEDY)
    for broken in (
        plan(),
        plan(sequence([], table=[0])),
        plan(sequence(random_ids(17, 1), table=[0])),
        plan(sequence([1], start=16, table=[0])),
    ):
        with pytest.raises(ValueError, match=r"needs at least|too few blocks"):
            executor.execute(broken)


def test_limits_of_the_loop_chunk_a_long_prompt() -> None:
    prompt = random_ids(100, seed=8)
    expected = alone(tiny_executor(), prompt, 15)
    run = Run(tiny_executor(), SchedulerLimits(max_step_tokens=13))
    run.add("a", prompt, 15)
    run.finish()
    assert run.tokens("a") == expected
