"""The lanes that are open: each with a scheduler, a loop, and someone to tell its events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from engine.errors import InvalidRequest
from engine.inference.lane_facts import lane_info
from engine.inference.lane_settings import KVLayout, LaneSettings
from engine.inference.lanes import OpenedLane
from engine.inference.loading import LoadedModel
from engine.inference.messages import Configure, LaneInfo, Message
from engine.inference.telling import Facts, Teller
from engine.inference.timeline import Timeline
from engine.scheduling.blocks import BlockPool
from engine.scheduling.events import Event
from engine.scheduling.limits import SchedulerLimits
from engine.scheduling.loop import SchedulingLoop, WallClock
from engine.scheduling.policies import POLICIES
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)

MAX_LANES_ON_DEMAND = 4
"""Lanes beside those that are open from the start; the one unused for longest makes room."""


@dataclass(slots=True)
class Lane:
    """One lane at work. ``last_used`` orders lanes by the last request that came. ``native_rows``
    as they were last told: they change once, when the native library has been built."""

    loop: SchedulingLoop
    teller: Teller
    opened: OpenedLane
    on_demand: bool
    last_used: int = 0
    native_rows: int = 0

    @property
    def info(self) -> LaneInfo:
        """The lane as it is now: weights take more once native steps have their own."""
        return lane_info(self.opened, on_demand=self.on_demand)

    def close(self) -> None:
        """Part loop and teller, which know each other: their memory is free at once then, and not
        only when Python's collector finds the circle."""
        self.loop.emit = _nobody_listens
        self.teller.detach()


def _nobody_listens(event: Event) -> None:
    raise AssertionError(f"a closed lane told {type(event).__name__}")


@dataclass(frozen=True, slots=True)
class Knobs:
    """What all lanes obey. ``usable_blocks`` None: all that a lane has."""

    limits: SchedulerLimits
    policy: str = "first-come"
    usable_blocks: int | None = None


def changed(knobs: Knobs, change: Configure) -> Knobs:
    """The knobs with what the message asks for.

    Raises:
        InvalidRequest: there is no such policy, or with such a limit nothing could ever run.
    """
    if change.policy is not None and change.policy not in POLICIES:
        raise InvalidRequest(f"choose one of {', '.join(POLICIES)}", field="policy")
    limits = {
        name: value
        for name, value in (
            ("max_running", change.max_running),
            ("max_step_tokens", change.max_step_tokens),
        )
        if value is not None
    }
    return Knobs(
        limits=replace(knobs.limits, **limits),
        policy=change.policy or knobs.policy,
        usable_blocks=knobs.usable_blocks if change.usable_blocks is None else change.usable_blocks,
    )


class LaneSet:
    """Open lanes by name, in the order in which they were opened."""

    def __init__(
        self,
        model: LoadedModel,
        knobs: Knobs,
        timeline: Timeline,
        emit: Callable[[Message], None],
    ) -> None:
        self.knobs = knobs
        self._timeline = timeline
        self._model = model
        self._emit = emit
        self._uses = 0
        self._lanes = {o.settings.name: self._make(o, on_demand=False) for o in model.lanes}

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def get(self, name: str) -> Lane | None:
        """The lane of that name, if it is open."""
        return self._lanes.get(name)

    def use(self, name: str) -> Lane:
        """The open lane of that name, for a request that comes now."""
        self._uses += 1
        lane = self._lanes[name]
        lane.last_used = self._uses
        return lane

    def add(self, opened: OpenedLane) -> None:
        """Take in a lane that a request asked for."""
        self._lanes[opened.settings.name] = self._make(opened, on_demand=True)

    def make_room(self, being_opened: int) -> int | None:
        """Close lanes on demand that nobody uses, the longest unused first, until one more fits
        beside those that are being opened: how many were closed, None if that is not possible."""
        on_demand = [lane for lane in self if lane.on_demand]
        idle = sorted(
            (lane for lane in on_demand if not lane.loop.has_work), key=lambda lane: lane.last_used
        )
        excess = len(on_demand) + being_opened + 1 - MAX_LANES_ON_DEMAND
        if excess > len(idle):
            return None
        to_close = idle[: max(excess, 0)]
        for lane in to_close:
            name = lane.opened.settings.name
            log.info("lane %s is closed", name)
            lane.close()
            del self._lanes[name]
        return len(to_close)

    def turn(self, knobs: Knobs) -> None:
        """Turn the knobs of all lanes, and of those that are opened later.

        Raises:
            InvalidRequest: no lane has so many blocks, or a live request could never finish then.
                Some lanes may have obeyed.
        """
        most = max(lane.loop.scheduler.pool.num_blocks for lane in self)
        if knobs.usable_blocks is not None and knobs.usable_blocks > most:
            raise InvalidRequest(f"choose 1 to {most} KV blocks", field="usable_blocks")
        self.knobs = knobs
        for lane in self:
            self._obey(lane)

    def _obey(self, lane: Lane) -> None:
        knobs, scheduler = self.knobs, lane.loop.scheduler
        usable, blocks = knobs.usable_blocks, scheduler.pool.num_blocks
        lane.loop.configure(
            limits=limits_of(lane.opened.settings, knobs.limits),
            # A new one starts without what the old one knew of who was served.
            policy=None if scheduler.policy.name == knobs.policy else POLICIES[knobs.policy](),
            # Lanes differ in how many blocks they have; where there are fewer, all may be used.
            usable_blocks=blocks if usable is None else min(usable, blocks),
        )

    def _make(self, opened: OpenedLane, *, on_demand: bool) -> Lane:
        settings, executor, knobs = opened.settings, opened.executor, self.knobs
        pool = BlockPool(
            executor.num_blocks,
            executor.block_size,
            prefix_cache=PrefixCache() if settings.prefix_cache else None,
        )
        scheduler = Scheduler(pool, limits_of(settings, knobs.limits), POLICIES[knobs.policy]())
        model = self._model
        facts = Facts(model.config.name, model.device, executor.dtype, settings.name)
        teller = Teller(facts, model.tokenizer, self._timeline, self._emit)
        drafters = executor.make_drafters()
        loop = SchedulingLoop(scheduler, executor, WallClock(), teller.tell, drafters)
        teller.attach(loop.finish)
        lane = Lane(loop, teller, opened, on_demand, native_rows=executor.native_rows)
        if knobs.usable_blocks is not None:
            self._obey(lane)
        return lane


def limits_of(settings: LaneSettings, limits: SchedulerLimits) -> SchedulerLimits:
    """The limits as a lane of these settings obeys them."""
    if settings.kv.layout is not KVLayout.OFF:
        return limits
    # A step takes a whole text, and all others wait for it: so no text may be longer than a step.
    longest = min(limits.max_context, limits.max_step_tokens)
    return replace(limits, keep_computed=False, max_context=longest)
