"""Random mixes of everything a scheduler does, on the real model in float32, against the slow path.

Prompts, chunk sizes, batch mates, preemptions, prefix hits, forks, aborts, drafts of every kind,
changing limits, the cache off: each request says what the reference model says alone, which keeps
no cache and computes every token from the whole text. FIRSTTOKEN_MIXES sets how many mixes run.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest

from engine.errors import InvalidRequest
from engine.inference.executor import TorchExecutor
from engine.inference.sampling import Sampler, SampleRow
from engine.inference.sampling_params import SamplingParams
from engine.inference.speculation.draft_model import DraftModel
from engine.scheduling.events import (
    DraftsVerified,
    RequestFinished,
    RequestPreempted,
    RequestStarted,
)
from engine.scheduling.policies import POLICIES
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.request import FinishReason
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from tests.engine.inference.runs_for_tests import (
    GREEDY,
    VOCABULARY,
    Run,
    random_ids,
    tiny,
    tiny_reference,
)

pytestmark = pytest.mark.usefixtures("one_thread")

MIXES = int(os.environ.get("FIRSTTOKEN_MIXES", "25"))

SYSTEM = random_ids(36, seed=77)


def slowly(prompt: list[int], max_tokens: int, params: SamplingParams) -> list[int]:
    """One request alone on the reference model, with a sampler of its own."""
    if params == GREEDY:
        return tiny_reference().greedy(prompt, max_tokens, frozenset())
    sampler = Sampler(VOCABULARY)
    output: list[int] = []
    while len(output) < max_tokens:
        text = [*prompt, *output]
        row = SampleRow(params, len(text), tuple(prompt), tuple(output))
        output.append(sampler.sample(tiny_reference().logits(text)[-1:], [row])[0].token_id)
    return output


@dataclass
class Mix:
    """One program: what was asked for, and what happened on the way."""

    seed: int
    rng: random.Random = field(init=False)
    wanted: dict[str, tuple[list[int], int, SamplingParams]] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        rng = self.rng
        self.off = rng.random() < 0.15
        draft = DraftModel(
            tiny(seed=rng.choice([0, 1])),
            vocab_size=VOCABULARY,
            num_blocks=rng.choice([4, 12, 40]),
        )
        executor = TorchExecutor(tiny(), num_blocks=rng.choice([8, 12, 20, 40]), draft_model=draft)
        caches = [None, PrefixCache(), PrefixCache(lambda previous, _tokens: previous % 3)]
        self.run = Run(executor, self.limits(), rng.choice(caches))
        self.run.loop.configure(policy=POLICIES[rng.choice(sorted(POLICIES))]())

    def limits(self) -> SchedulerLimits:
        rng = self.rng
        return SchedulerLimits(
            max_running=rng.choice([1, 2, 4, 8]),
            max_step_tokens=rng.choice([1, 2, 5, 16, 33, 64]),
            keep_computed=not self.off,
        )

    def speculation(self) -> SpeculationSettings | None:
        if self.off or self.rng.random() < 0.35:
            return None
        method = self.rng.choice(list(SpeculationMethod))
        return SpeculationSettings(
            method,
            self.rng.choice([1, 2, 4, 7]),
            exit_layer=(
                self.rng.choice([None, 1, 2]) if method is SpeculationMethod.EARLY_EXIT else None
            ),
        )

    def params(self) -> SamplingParams:
        rng = self.rng
        if rng.random() < 0.4:
            return GREEDY
        penalised = rng.random() < 0.4
        return SamplingParams(
            rng.choice([0.0, 0.7, 1.0]),
            top_k=rng.choice([0, 40]),
            seed=rng.getrandbits(40),
            repetition_penalty=1.2 if penalised else 1.0,
            frequency_penalty=0.5 if penalised else 0.0,
            # Texts that repeat themselves are what look-ups are right about.
            logit_bias=((9, 8.0), (10, 8.0)) if rng.random() < 0.3 else (),
        )

    def add(self, name: str) -> None:
        rng = self.rng
        own = random_ids(rng.choice([1, 2, 13, 20]), seed=self.seed)
        prompt = [*SYSTEM[: rng.choice([0, 0, 16, 36])], *own]
        max_tokens = rng.choice([1, 3, 12, 24])
        samples = {f"{name}-{i}": self.params() for i in range(rng.choice([0, 0, 0, 1, 2]))}
        params = self.params()
        self.run.add(
            name,
            prompt,
            max_tokens,
            params,
            samples=samples,
            session_id=rng.choice("st"),
            priority=rng.randrange(3),
            speculation=self.speculation(),
        )
        for each, own_params in {name: params, **samples}.items():
            self.wanted[each] = (prompt, max_tokens, own_params)

    def disturb(self) -> None:
        """Something that must not change what anybody says."""
        rng, loop = self.rng, self.run.loop
        live = [*loop.scheduler.running, *loop.scheduler.waiting]
        chance = rng.random()
        if chance < 0.25:
            loop.preempt(rng.choice(sorted(self.wanted)))
        elif chance < 0.35:
            name = rng.choice(sorted(self.wanted))
            if loop.abort(name):
                self.ended.add(name)
        elif chance < 0.5 and live:
            source = rng.choice(live)
            name = f"{source.request_id}-fork{len(self.wanted)}"
            prompt, max_tokens, params = self.wanted[source.request_id]
            self.run.executor.add_request(name, params)
            loop.fork(source.request_id, name)
            self.wanted[name] = (prompt, max_tokens, params)
            self.said[name] = len(source.output_token_ids)
        elif chance < 0.65:
            # The longest request needs five.
            usable = rng.randint(5, self.run.executor.num_blocks)
            try:
                loop.configure(limits=self.limits(), usable_blocks=usable)
            except InvalidRequest:  # somebody here needs more blocks: as it was
                loop.configure(limits=self.limits())

    def play(self) -> None:
        for number in range(5):
            self.add(f"r{number}")
            for _ in range(self.rng.randrange(8)):
                self.run.loop.step()
                self.run.scheduler.check_integrity()
            self.disturb()
        steps = 0
        while self.run.loop.step():
            self.run.scheduler.check_integrity()
            steps += 1
            assert steps < 5_000
            if self.rng.random() < 0.05:
                self.disturb()

    def check(self) -> None:
        pool = self.run.scheduler.pool
        assert pool.num_used == 0
        assert pool.num_free + pool.num_cached == pool.num_blocks
        ends = {e.request_id: e for e in self.run.events if isinstance(e, RequestFinished)}
        assert ends.keys() == self.wanted.keys()
        for name, (prompt, max_tokens, params) in self.wanted.items():
            said = self.said.get(name, 0)
            got = self.run.tokens(name)
            assert ends[name].completion_tokens == said + len(got)
            if name not in self.ended:
                assert ends[name].reason is FinishReason.LENGTH
                assert said + len(got) == max_tokens
            expected = slowly(prompt, said + len(got), params)
            assert got == expected[said:], (self.seed, name)


@pytest.mark.parametrize("seed", range(MIXES))
def test_everybody_says_what_the_slow_path_says(seed: int) -> None:
    mix = Mix(seed)
    mix.play()
    mix.check()


def test_the_mixes_have_everything_in_them() -> None:
    """What is said to be tested does happen, in a dozen of them."""
    hits = forks = preempted = accepted = rejected = aborted = off = 0
    for seed in range(12):
        mix = Mix(seed)
        mix.play()
        off += mix.off
        for event in mix.run.events:
            if isinstance(event, RequestStarted):
                hits += event.cached_tokens > 0
                forks += event.forked_tokens > 0
            elif isinstance(event, RequestPreempted):
                preempted += 1
            elif isinstance(event, DraftsVerified):
                accepted += event.num_accepted
                rejected += len(event.proposed) - event.num_accepted
            elif isinstance(event, RequestFinished):
                aborted += event.reason is FinishReason.ABORT
    assert min(hits, forks, preempted, accepted, rejected, aborted, off) > 0
