"""One scheduling loop for two executors: schedule, run, book, tell.

With a torch executor and a wall clock the loop serves real requests; with a roofline executor and
a virtual clock it predicts the same requests. Both tell the same events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from engine.errors import InvalidRequest, StepFailed
from engine.refusals import refused
from engine.scheduling.drafting import Drafter
from engine.scheduling.events import (
    Configured,
    DraftsVerified,
    Event,
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    RequestStarted,
    SequenceStep,
    StepCompleted,
    TokenProduced,
)
from engine.scheduling.limits import SchedulerLimits
from engine.scheduling.plan import Sample, ScheduledSequence, StepPlan, StepResult
from engine.scheduling.policies import Policy
from engine.scheduling.request import FinishReason, Request, RequestState
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings


class Executor(Protocol):
    """Runs a plan. ``release`` tells that a request has ended and its state can be dropped."""

    def execute(self, plan: StepPlan) -> StepResult: ...

    def release(self, request_id: str) -> None: ...


class Clock(Protocol):
    """Seconds. ``advance`` moves a virtual clock and does nothing to a wall clock."""

    def now(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


class WallClock:
    """The monotonic clock of this process."""

    def now(self) -> float:
        return time.perf_counter()

    def advance(self, seconds: float) -> None:
        """Time passes by itself."""


class VirtualClock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def advance_to(self, time: float) -> None:
        """Move on to a time that is not in the past."""
        self._now = max(self._now, time)


class SchedulingLoop:
    """Drives one scheduler and one executor; every change is told through ``emit``, in order.

    ``drafters``: who makes the drafts of each method that requests may ask for.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        clock: Clock,
        emit: Callable[[Event], None],
        drafters: Mapping[SpeculationMethod, Drafter] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self.clock = clock
        self.emit = emit
        self.drafters = dict(drafters or {})

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    def add(
        self, request: Request, sample_ids: Sequence[str] = (), *, arrived: float | None = None
    ) -> None:
        """Queue a request at the clock's time, or as one that ``arrived`` before, during a step.

        ``sample_ids``: ids of further samples of the same prompt, which is computed once for all;
        either all are taken or none is.

        Raises:
            InvalidRequest, NeverFits, QueueFull: see ``Scheduler.add``; or nobody makes drafts in
                the way that is asked for. Nothing is told then.
        """
        self._check_speculation(request.speculation)
        ids = [request.request_id, *sample_ids]
        if len(set(ids)) < len(ids) or any(self.scheduler.get(name) for name in sample_ids):
            raise refused("id_in_use", field="request_id")
        now = self.clock.now() if arrived is None else arrived
        request.arrival_time = now
        position = self.scheduler.add(request, num_samples=len(ids))
        self.emit(RequestQueued(now, request.request_id, position, request.num_prompt_tokens))
        for sample_id in sample_ids:
            self.fork(request.request_id, sample_id)

    def _check_speculation(self, settings: SpeculationSettings | None) -> None:
        if settings is None:
            return
        drafter = self.drafters.get(settings.method)
        if drafter is None:
            raise InvalidRequest(
                f"nobody drafts by {settings.method} here; choose another way or none",
                field="speculation",
            )
        drafter.check(settings)

    def fork(self, request_id: str, new_id: str) -> None:
        """Queue a request that goes on from a live one's text; it has the tokens told so far.

        Raises:
            InvalidRequest, QueueFull: see ``Scheduler.fork``; nothing is told then.
        """
        now = self.clock.now()
        fork, position = self.scheduler.fork(request_id, new_id)
        fork.arrival_time = now
        self.emit(RequestQueued(now, new_id, position, fork.num_prompt_tokens, request_id))

    def preempt(self, request_id: str) -> bool:
        """Put a running request back into the queue; False if it is not running."""
        lost = self.scheduler.preempt(request_id)
        if lost is None:
            return False
        self.emit(RequestPreempted(self.clock.now(), request_id, lost))
        return True

    def finish(self, request_id: str, reason: FinishReason) -> bool:
        """End a live request; False if there is none of that id (any more)."""
        request = self.scheduler.finish(request_id, reason)
        if request is None:
            return False
        self._tell_finished(request)
        return True

    def abort(self, request_id: str) -> bool:
        """End a request because its owner no longer wants it."""
        return self.finish(request_id, FinishReason.ABORT)

    def configure(
        self,
        *,
        limits: SchedulerLimits | None = None,
        policy: Policy | None = None,
        usable_blocks: int | None = None,
    ) -> None:
        """Change what the scheduler gives, between two steps; see ``Scheduler.configure``.

        Raises:
            InvalidRequest: a live request could never finish then. Nothing is told.
        """
        scheduler = self.scheduler
        scheduler.configure(limits=limits, policy=policy, usable_blocks=usable_blocks)
        self.emit(
            Configured(
                self.clock.now(),
                scheduler.limits,
                scheduler.policy.name,
                scheduler.pool.num_usable,
            )
        )

    def _propose(self, request: Request) -> Sequence[int]:
        if request.speculation is None:
            return ()
        return self.drafters[request.speculation.method].propose(request)

    def step(self, *, beside: bool = False) -> bool:
        """Plan and run one step; False if there was nothing to run.

        ``beside``: only requests that start are planned and told, see ``Scheduler.plan``.

        Raises:
            StepFailed: the executor raised. The requests of the step have ended with an error,
                the others go on with the next step.
        """
        planned = self.scheduler.plan(self._propose if self.drafters else None, beside=beside)
        start = self.clock.now()
        for request, lost in planned.preempted:
            self.emit(RequestPreempted(start, request.request_id, lost))
        for started in planned.started:
            request = started.request
            self.emit(
                RequestStarted(
                    start,
                    request.request_id,
                    start - request.arrival_time,
                    started.cached_tokens,
                    started.forked_tokens,
                )
            )
        plan = planned.plan
        if plan is None:
            return False
        result = self._execute(plan)
        if result.duration is not None:
            self.clock.advance(result.duration)
        end = self.clock.now()
        duration = end - start if result.duration is None else result.duration
        self._book(plan, result, start, end, duration)
        return True

    def _execute(self, plan: StepPlan) -> StepResult:
        try:
            return self.executor.execute(plan)
        except Exception as error:
            for sequence in plan.sequences:
                self.finish(sequence.request_id, FinishReason.ERROR)
            raise StepFailed(f"step {plan.step} failed: {type(error).__name__}") from error

    def _book(
        self, plan: StepPlan, result: StepResult, start: float, end: float, duration: float
    ) -> None:
        pool = self.scheduler.pool
        # Counted before anybody gives a block back.
        used, cached = pool.num_used, pool.num_cached
        sampled = self.scheduler.commit(plan, result)
        ran = _as_they_ran(plan, result)
        shapes = plan.shape if ran is plan.sequences else [s.shape for s in ran]
        self.emit(
            StepCompleted(
                time=start,
                step=plan.step,
                duration=duration,
                phase=plan.phase,
                sequences=tuple(
                    [
                        SequenceStep(s.request_id, s.phase, shape, len(s.block_table))
                        for s, shape in zip(ran, shapes, strict=True)
                    ]
                ),
                stages=result.stages,
                kv_blocks_used=used,
                kv_blocks_total=pool.num_usable,
                num_running=len(self.scheduler.running),
                num_waiting=len(self.scheduler.waiting),
                kv_blocks_cached=cached,
                kv_blocks_copied=len(plan.copies),
            )
        )
        drafts = {s.request_id: tuple(s.drafts) for s in ran if s.num_drafts}
        stays = self.scheduler.limits.keep_computed
        ended: list[tuple[Request, FinishReason]] = []
        for request, samples in sampled:
            proposed = drafts.get(request.request_id)
            if proposed:
                self.emit(DraftsVerified(end, request.request_id, proposed, len(samples) - 1))
            reason = self._book_tokens(request, samples, end)
            if result.drafts or proposed or not stays:
                self.scheduler.settle(request)
            if reason is not None:
                ended.append((request, reason))
        for request, reason in ended:
            if request.state is not RequestState.FINISHED:
                self.finish(request.request_id, reason)

    def _book_tokens(
        self, request: Request, samples: Sequence[Sample], time: float
    ) -> FinishReason | None:
        """Book and tell the tokens of a step until one ends the request, and say how it ends.

        Whoever is told a token may finish the request for it; then the rest is dropped, too.
        """
        after_draft = False
        for request_id, token_id, logprob, top in samples:
            if request.state is RequestState.FINISHED:
                break
            reason = self.scheduler.append(request, token_id, after_draft=after_draft)
            index = len(request.output_token_ids) - 1
            self.emit(TokenProduced(time, request_id, index, token_id, logprob, top))
            if reason is not None:
                return reason
            after_draft = True
        return None

    def _tell_finished(self, request: Request) -> None:
        self.executor.release(request.request_id)
        if request.speculation is not None:
            self.drafters[request.speculation.method].release(request.request_id)
        reason = request.finish_reason
        if reason is None:
            raise AssertionError("a request was told finished before it was")
        self.emit(
            RequestFinished(
                self.clock.now(),
                request.request_id,
                reason,
                request.num_prompt_tokens,
                len(request.output_token_ids),
            )
        )


def _as_they_ran(plan: StepPlan, result: StepResult) -> Sequence[ScheduledSequence]:
    """The sequences with the drafts that were made: an executor may make fewer than it may."""
    drafts = result.drafts
    if not drafts:
        return plan.sequences
    return [
        sequence.with_drafts(drafts[sequence.request_id])
        if sequence.request_id in drafts
        else sequence
        for sequence in plan.sequences
    ]
