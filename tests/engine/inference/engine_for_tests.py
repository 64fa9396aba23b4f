"""An engine on the tiny model, and all that it said: shared by tests of the engine."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from engine.inference import messages as m
from engine.inference.engine import Engine
from engine.inference.lane_orders import LaneOrder
from engine.inference.loading import LoadedModel
from engine.inference.options import EngineOptions
from engine.scheduling.limits import SchedulerLimits

T = TypeVar("T")

TINY = EngineOptions(
    model="tiny", device="cpu", dtypes="float32", kv_tokens=1024, calibrate="never"
)


class Bench:
    """An engine, all it said, and lanes opened at once when they are asked for."""

    def __init__(self, model: LoadedModel) -> None:
        self.heard: list[m.Message] = []
        limits = SchedulerLimits(max_step_tokens=64, max_context=model.config.max_context)
        self.engine = Engine(model, limits, self.heard.append)

    def take(self, generate: m.Generate) -> None:
        prepared = self.engine.prepare(generate, time.perf_counter())
        if self.engine.missing_lane(prepared) is None:
            self.engine.submit(prepared)
            return
        to_open = self.engine.hold(prepared)
        if to_open is not None:
            self.engine.add_lane(self.engine.open_lane(to_open))

    def hold(self, generate: m.Generate) -> LaneOrder:
        """Ask for a lane that is not open and that nobody has asked for yet."""
        order = self.engine.hold(self.engine.prepare(generate, time.perf_counter()))
        assert order is not None
        return order

    def run(self, *requests: m.Generate) -> list[m.Message]:
        for generate in requests:
            self.take(generate)
        while self.engine.has_work:
            self.engine.step()
        return self.heard

    def of(self, kind: type[T], request_id: str = "a") -> list[T]:
        return [
            x
            for x in self.heard
            if isinstance(x, kind) and getattr(x, "request_id", "") == request_id
        ]

    def ids(self, request_id: str = "a", sample: int = 0) -> list[int]:
        return [t.id for t in self.of(m.Token, request_id) if t.sample == sample]


def ask(request_id: str = "a", **fields: Any) -> m.Generate:
    return m.Generate(request_id, **{"prompt": "one two three one two", "max_tokens": 12, **fields})
