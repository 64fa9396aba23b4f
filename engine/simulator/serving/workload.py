"""What is asked of the service: how many requests, when, and how long they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import NamedTuple

from engine.refusals import refused
from engine.simulator.serving.arrivals import Arrivals, ClosedLoop
from engine.simulator.serving.checks import number, whole
from engine.simulator.serving.lengths import Lengths
from engine.simulator.serving.prompts import ID_SPACE
from engine.simulator.serving.trace import Trace, TraceRow

MAX_REQUESTS = 10_000_000


class Job(NamedTuple):
    """One request to come.

    ``arrival`` in seconds; None where a client of a closed loop asks it as soon as it may.
    ``shared`` are the ids of the parts of its prompt that others may have as well, in order.
    """

    arrival: float | None
    prompt_tokens: int
    output_tokens: int
    shared: tuple[range, ...] = ()


class WorkloadSize(NamedTuple):
    """How many requests, and prompt and output tokens of the mean one, about."""

    requests: int
    prompt: float
    output: float


@dataclass(frozen=True, slots=True)
class PrefixGroups:
    """Prompts that begin alike, as under a few system prompts.

    A request belongs, with the chance ``share``, to one of ``groups``, each with the same chance;
    the first ``tokens`` of its prompt are then those of the group, as far as the prompt is longer.

    Raises:
        InvalidRequest: a number is out of range (field "groups", "tokens" or "share").
    """

    groups: int
    tokens: int
    share: float = 1.0

    def __post_init__(self) -> None:
        whole(self.groups, 1, 1_000_000, "groups")
        whole(self.tokens, 1, 2_000_000, "tokens")
        number(self.share, 0, 1, "share")

    def draw(self, random: Random, prompt_tokens: int) -> tuple[range, ...]:
        """The shared beginning of one prompt."""
        drawn, group = random.random(), random.randrange(self.groups)
        tokens = min(self.tokens, prompt_tokens - 1)
        if drawn >= self.share or tokens < 1:
            return ()
        return (range(group * ID_SPACE, group * ID_SPACE + tokens),)


@dataclass(frozen=True, slots=True)
class Workload:
    """``requests`` of drawn arrivals and lengths. Each draws from a stream of its own, so that
    changing one of them leaves the others as they were.

    Raises:
        InvalidRequest: the number of requests is out of range (field "requests").
    """

    arrivals: Arrivals
    prompts: Lengths
    outputs: Lengths
    requests: int = 1000
    prefixes: PrefixGroups | None = None

    def __post_init__(self) -> None:
        whole(self.requests, 1, MAX_REQUESTS, "requests")

    @property
    def closed_loop(self) -> ClosedLoop | None:
        """The clients, where they wait for their answers."""
        return self.arrivals if isinstance(self.arrivals, ClosedLoop) else None

    @property
    def size(self) -> WorkloadSize:
        """Requests, and tokens of the mean one."""
        return WorkloadSize(self.requests, self.prompts.mean, self.outputs.mean)

    def jobs(self, seed: int) -> Iterator[Job]:
        """The requests in the order of arrival; the same for the same seed."""
        prompt, output, prefix = (
            Random(f"{seed}/{name}") for name in ("prompts", "outputs", "prefixes")
        )
        for arrival in islice(_times(self.arrivals, seed), self.requests):
            tokens = self.prompts.draw(prompt)
            shared = self.prefixes.draw(prefix, tokens) if self.prefixes else ()
            yield Job(arrival, tokens, self.outputs.draw(output), shared)


@dataclass(frozen=True, slots=True)
class TraceWorkload:
    """Requests as they were recorded, ``speed`` times as fast; the first ``requests`` at most.

    With ``arrivals`` only the lengths are taken from the trace, and it is repeated as often as
    ``requests`` asks for.

    Raises:
        InvalidRequest: a number is out of range, or the trace has no times and none are given.
    """

    trace: Trace
    speed: float = 1.0
    requests: int | None = None
    arrivals: Arrivals | None = None

    def __post_init__(self) -> None:
        number(self.speed, 1e-6, 1e6, "speed")
        if self.requests is not None:
            whole(self.requests, 1, MAX_REQUESTS, "requests")
        if self.arrivals is None and not self.trace.has_times:
            raise refused("no_arrivals", field="arrivals")

    @property
    def closed_loop(self) -> ClosedLoop | None:
        """The clients, where they wait for their answers."""
        return self.arrivals if isinstance(self.arrivals, ClosedLoop) else None

    @property
    def size(self) -> WorkloadSize:
        """Requests, and tokens of the mean one in the trace."""
        rows = self.trace.rows
        requests = len(rows) if self.requests is None else self.requests
        if self.arrivals is None:
            requests = min(requests, len(rows))
        prompt = sum(row.prompt_tokens for row in rows) / len(rows)
        return WorkloadSize(requests, prompt, sum(row.output_tokens for row in rows) / len(rows))

    def jobs(self, seed: int) -> Iterator[Job]:
        """The requests in the order of arrival; the same for the same seed."""
        rows = self.trace.rows
        if self.arrivals is None:
            origin = rows[0].arrival or 0.0
            for row in islice(rows, self.requests):
                yield self._job(row, ((row.arrival or 0.0) - origin) / self.speed)
            return
        count = self.requests or len(rows)
        for index, arrival in enumerate(islice(_times(self.arrivals, seed), count)):
            yield self._job(rows[index % len(rows)], arrival)

    def _job(self, row: TraceRow, arrival: float | None) -> Job:
        size = self.trace.prefix_block
        left = row.prompt_tokens
        shared: list[range] = []
        for key in row.prefix_keys:
            tokens = min(size, left)
            if tokens < 1:
                break
            shared.append(range(key * ID_SPACE, key * ID_SPACE + tokens))
            left -= tokens
        return Job(arrival, row.prompt_tokens, row.output_tokens, tuple(shared))


def _times(arrivals: Arrivals, seed: int) -> Iterator[float | None]:
    """Times of arrival without end; None each in a closed loop."""
    if isinstance(arrivals, ClosedLoop):
        while True:
            yield None
    time = 0.0
    for gap in arrivals.gaps(Random(f"{seed}/arrivals")):
        time += gap
        yield time


AnyWorkload = Workload | TraceWorkload
