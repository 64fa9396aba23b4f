"""Whatever is drafted, a request says what it says without drafts (float32)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.errors import InvalidRequest
from engine.inference.sampling_params import SamplingParams
from engine.scheduling.events import RequestFinished, RequestStarted, StepCompleted
from engine.scheduling.plan import Phase
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.request import FinishReason
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.speculation import SpeculationSettings
from tests.engine.inference.runs_for_tests import (
    GREEDY,
    Run,
    alone,
    random_ids,
    tiny_executor,
    tiny_reference,
)
from tests.engine.inference.speculation.drafting import (
    DRAFT,
    EARLY_EXIT,
    METHODS,
    NGRAM,
    drafting_executor,
    drafts_of,
    repetitive,
)

pytestmark = pytest.mark.usefixtures("one_thread")

# One token is far likelier than all others, so that the text repeats itself.
REPEATING = SamplingParams(logit_bias=((7, 60.0),))

PENALTIES = SamplingParams(
    0.8, seed=5, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4
)
WAYS = {
    "greedy": GREEDY,
    "hot": SamplingParams(1.0, seed=3),
    "truncated": SamplingParams(0.7, 40, 0.9, seed=11),
    "penalties": PENALTIES,
    "greedy-penalties": replace(PENALTIES, temperature=0.0),
    "repeating": REPEATING,
    "bias": SamplingParams(0.5, seed=2, logit_bias=((7, 3.0), (9, -50.0))),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("draft_seed", [0, 1])
def test_greedy_output_is_that_of_the_slow_path(method: str, draft_seed: int) -> None:
    for number in range(10):
        prompt = repetitive(20, number) if number % 2 else random_ids(1 + 7 * number, seed=number)
        executor = drafting_executor(draft_seed=draft_seed)
        got = alone(executor, prompt, 24, speculation=METHODS[method])
        assert got == tiny_reference().greedy(prompt, 24, frozenset())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_sampling_says_the_same_with_the_same_seed(method: str, way: str) -> None:
    for number, prompt in enumerate((random_ids(9, seed=1), repetitive(23, 2))):
        params = replace(WAYS[way], seed=100 + number)
        plain = alone(tiny_executor(), prompt, 30, params)
        for draft_seed in (0, 1):
            executor = drafting_executor(draft_seed=draft_seed)
            got = alone(executor, prompt, 30, params, speculation=METHODS[method])
            assert got == plain, draft_seed


@pytest.mark.parametrize("way", WAYS)
def test_a_drafter_that_is_the_model_itself_is_always_right(way: str) -> None:
    """All layers as the "early" exit, and the same model as the draft model."""
    prompt = repetitive(12, 4)
    for settings in (replace(EARLY_EXIT, exit_layer=2, draft_tokens=4), DRAFT):
        run = Run(drafting_executor())
        run.add("a", prompt, 21, WAYS[way], speculation=settings)
        run.finish()
        verified = drafts_of(run, "a")
        assert all(event.num_accepted == len(event.proposed) for event in verified)
        assert [len(event.proposed) for event in verified] == [4, 4, 4, 4]
        tokens = run.tokens("a")
        said = [token for event in verified for token in event.proposed]
        assert said == [token for index, token in enumerate(tokens) if index % 5]


def test_a_look_up_is_right_where_a_text_repeats_itself() -> None:
    run = Run(drafting_executor())
    run.add("a", [3, 4, 5], 12, REPEATING, speculation=NGRAM)
    run.finish()
    assert run.tokens("a") == [7] * 12
    # The first 7 is new, the second shows what follows a 7.
    accepted = [(len(event.proposed), event.num_accepted) for event in drafts_of(run, "a")]
    assert accepted == [(4, 4), (4, 4)]


@pytest.mark.parametrize("method", METHODS)
def test_log_probabilities_are_those_of_plain_decoding(method: str) -> None:
    prompt = repetitive(17, 3)
    params = SamplingParams(0.9, seed=1, top_logprobs=3)
    plain, fast = Run(tiny_executor()), Run(drafting_executor())
    plain.add("a", prompt, 20, params)
    fast.add("a", prompt, 20, params, speculation=METHODS[method])
    plain.finish()
    fast.finish()
    for slow, quick in zip(plain.produced("a"), fast.produced("a"), strict=True):
        assert quick.token_id == slow.token_id
        assert quick.logprob == pytest.approx(slow.logprob, abs=1e-4)
        assert [token for token, _ in quick.top] == [token for token, _ in slow.top]
        assert len(quick.top) == 3


@pytest.mark.parametrize("method", METHODS)
def test_drafts_beside_plain_requests_chunks_and_preemptions(method: str) -> None:
    prompts = {f"r{i}": repetitive(3 + 9 * i, i) for i in range(6)}
    ways = [GREEDY, SamplingParams(0.9, seed=8), PENALTIES]
    for budget, blocks in ((512, 64), (7, 64), (20, 14)):
        run = Run(
            drafting_executor(blocks, draft_seed=1, draft_blocks=12),
            SchedulerLimits(max_step_tokens=budget, max_running=4),
        )
        for i, (name, prompt) in enumerate(prompts.items()):
            settings = METHODS[method] if i % 3 else None
            run.add(name, prompt, 20, ways[i % 3], speculation=settings)
            run.loop.step()
            run.scheduler.check_integrity()
            if i == 4:
                run.loop.preempt("r2")
        run.finish()
        for i, (name, prompt) in enumerate(prompts.items()):
            assert run.tokens(name) == alone(tiny_executor(), prompt, 20, ways[i % 3]), name
        assert run.scheduler.pool.num_used == 0


@pytest.mark.parametrize("method", METHODS)
def test_drafts_over_prefix_hits_and_forks(method: str) -> None:
    system = repetitive(40, 6)
    run = Run(drafting_executor(draft_seed=1), prefix_cache=PrefixCache())
    wanted: dict[str, tuple[list[int], SamplingParams]] = {}
    for number in range(4):
        prompt = [*system, *random_ids(3, seed=number)]
        params = SamplingParams(0.9, seed=number)
        samples = {f"r{number}s{i}": SamplingParams(0.9, seed=50 + i) for i in range(2)}
        wanted |= {name: (prompt, p) for name, p in {f"r{number}": params, **samples}.items()}
        run.add(f"r{number}", prompt, 30, params, samples=samples, speculation=METHODS[method])
        run.finish()
        run.scheduler.check_integrity()
    # An answer that is asked to go on starts from blocks that drafts have filled.
    prompt, _ = wanted["r0"]
    longer = [*prompt, *run.tokens("r0")]
    run.add("longer", longer, 12, speculation=METHODS[method])
    run.finish()
    assert run.tokens("longer") == tiny_reference().greedy(longer, 12, frozenset())
    starts = {e.request_id: e for e in run.events if isinstance(e, RequestStarted)}
    assert starts["longer"].cached_tokens == (len(longer) - 1) // 16 * 16
    assert starts["r1s0"].forked_tokens == len(prompt) - 1
    for name, (prompt, params) in wanted.items():
        assert run.tokens(name) == alone(tiny_executor(), prompt, 30, params), name


@pytest.mark.parametrize("method", METHODS)
def test_stop_tokens_and_the_least_number_of_tokens(method: str) -> None:
    prompt = repetitive(11, 9)
    plain = alone(tiny_executor(), prompt, 20)
    stop = frozenset(plain[9:10])
    first = plain.index(plain[9])
    run = Run(drafting_executor())
    run.add("a", prompt, 20, stop=stop, speculation=METHODS[method])
    run.add("ignored", prompt, 20, stop=stop, speculation=METHODS[method], ignore_eos=True)
    run.add("masked", prompt, 20, stop=stop, speculation=METHODS[method], min_tokens=15)
    run.finish()
    assert run.tokens("a") == plain[: first + 1]
    assert run.tokens("ignored") == plain
    masked = run.tokens("masked")
    assert masked[:first] == plain[:first]
    assert not stop & set(masked[:15])
    assert masked == alone(tiny_executor(), prompt, 20, stop=stop, min_tokens=15)
    ends = {e.request_id: e.reason for e in run.events if isinstance(e, RequestFinished)}
    assert ends["a"] is FinishReason.STOP
    assert ends["ignored"] is FinishReason.LENGTH


def test_a_step_says_how_long_drafting_took_where_it_took_any() -> None:
    prompt = repetitive(11, 9)
    for settings, stage in ((NGRAM, False), (EARLY_EXIT, True), (DRAFT, True)):
        run = Run(drafting_executor())
        run.add("a", prompt, 12, REPEATING, speculation=settings)
        run.finish()
        steps = [event for event in run.events if isinstance(event, StepCompleted)]
        assert len(steps) < 12
        for step in steps:
            shape = step.sequences[0].shape
            assert ("draft" in step.stages) == (stage and shape.drafts > 0)
            assert set(step.stages) >= {"embed", "layers", "logits", "sample"}
            assert step.phase is (Phase.DECODE if shape.prefix_tokens else Phase.PREFILL)


def test_an_exit_behind_the_last_layer_and_a_missing_draft_model_are_refused() -> None:
    run = Run(tiny_executor())
    for settings in (replace(EARLY_EXIT, exit_layer=3), DRAFT):
        with pytest.raises(InvalidRequest) as caught:
            run.add("a", [1], 2, speculation=settings)
        assert caught.value.field == "speculation"
    half = SpeculationSettings(EARLY_EXIT.method)
    assert alone(tiny_executor(), [5, 6], 9, speculation=half) == alone(tiny_executor(), [5, 6], 9)
