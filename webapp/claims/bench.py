"""What a check works with: the engine, the simulator, and the reader's language."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import EngineError, EngineUnavailable
from engine.inference.messages import (
    Accepted,
    Done,
    Drafted,
    EngineInfo,
    Failed,
    Generate,
    Preempted,
    Probe,
    Probed,
    Step,
    Token,
)
from webapp.computing import Computer
from webapp.i18n import Texts
from webapp.live.engine_port import READY, EnginePort
from webapp.prediction import StepPredictor
from webapp.simulations import SimulationRunner


def new_id() -> str:
    """An id for a request of a check; nobody else's can be the same."""
    return f"check-{uuid.uuid4().hex}"


@dataclass(slots=True)
class Run:
    """Everything that one prompt on the real engine told; times as in the messages."""

    accepted: Accepted | None = None
    steps: list[Step] = field(default_factory=list[Step])
    tokens: list[Token] = field(default_factory=list[Token])
    drafts: list[Drafted] = field(default_factory=list[Drafted])
    preempted: list[Preempted] = field(default_factory=list[Preempted])
    done: Done | None = None

    @property
    def token_ids(self) -> list[int]:
        """The answer."""
        return [token.id for token in self.tokens]

    @property
    def ttft_ms(self) -> float:
        """Time to first token."""
        if self.done is None or self.done.ttft_ms is None:
            raise EngineError("the run gave no token")
        return self.done.ttft_ms

    @property
    def itl_ms(self) -> float:
        """Mean gap between tokens."""
        if self.done is None or not self.done.itl_ms:
            raise EngineError("the run gave fewer than two tokens")
        return sum(self.done.itl_ms) / len(self.done.itl_ms)


@dataclass(frozen=True, slots=True)
class Bench:
    """Tools of a check. ``said`` holds the texts of the reader's language."""

    engine: EnginePort
    predictor: StepPredictor
    simulations: SimulationRunner
    computer: Computer
    said: Texts

    @property
    def info(self) -> EngineInfo:
        """What runs here.

        Raises:
            EngineUnavailable: the engine is not ready.
        """
        info = self.engine.info
        if self.engine.state != READY or info is None:
            raise EngineUnavailable(self.engine.reason)
        return info

    async def generate(self, request: Generate) -> Run:
        """Run a request (its id from ``new_id``) to its end.

        Raises:
            EngineError: the engine refused it or is not there.
        """
        run = Run()
        async for message in self.engine.generate(request):
            match message:
                case Accepted():
                    run.accepted = message
                case Step():
                    run.steps.append(message)
                case Token():
                    run.tokens.append(message)
                case Drafted():
                    run.drafts.append(message)
                case Preempted():
                    run.preempted.append(message)
                case Done():
                    run.done = message
                case Failed():
                    raise EngineError(message.message)
                case _:
                    pass
        return run

    async def probe(self, kind: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """One answer of ``engine.inference.probes``.

        Raises:
            EngineError: the engine refused it or is not there.
        """
        question = Probe(new_id(), kind, dict(arguments))
        answer = await self.engine.ask(question)
        if isinstance(answer, Probed):
            return answer.document
        raise EngineError(answer.message if isinstance(answer, Failed) else "no answer to a probe")
