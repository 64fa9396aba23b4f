"""Questions to the engine's worker that are not about generating, a few at a time.

The worker looks inside the model at one text at a time and beside its steps, so questions wait
here, where one whose asker has gone can still be let go of. What the tokenizer alone answers takes
milliseconds and waits in a line of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping

import anyio

from engine.errors import EngineUnavailable, QueueFull
from engine.inference.messages import Failed, Probe, Probed
from engine.refusals import refused
from webapp.live.engine_port import EnginePort
from webapp.settings import Settings
from webapp.simulations import rebuild_error

TEXT_KINDS = frozenset({"tokenize", "detokenize", "merges"})
_TEXTS_AT_ONCE = 4


class Questions:
    """Asks ``engine``; at most ``settings.probe_queue`` questions of a kind wait."""

    def __init__(self, engine: EnginePort, settings: Settings) -> None:
        self._engine = engine
        self._most = settings.probe_queue
        self._probes = _Line(1)
        self._texts = _Line(_TEXTS_AT_ONCE)

    async def ask(
        self, kind: str, arguments: Mapping[str, object], gone: Callable[[], Awaitable[bool]]
    ) -> dict[str, object]:
        """The worker's answer. ``kind`` and ``arguments`` as in ``engine.inference.probes``;
        nothing is asked for someone who is ``gone`` when it is their turn.

        Raises:
            QueueFull: too many are waiting.
            EngineUnavailable: the engine is not ready, or ended meanwhile.
            EngineError: whatever the engine refuses (names the field).
        """
        line = self._texts if kind in TEXT_KINDS else self._probes
        if line.length >= self._most:
            raise refused("probes_at_once", kind=QueueFull)
        line.length += 1
        try:
            async with line.places:
                return {} if await gone() else await self._ask(kind, arguments)
        finally:
            line.length -= 1

    async def _ask(self, kind: str, arguments: Mapping[str, object]) -> dict[str, object]:
        answer = await self._engine.ask(Probe(secrets.token_hex(8), kind, dict(arguments)))
        if isinstance(answer, Probed):
            return answer.document
        if isinstance(answer, Failed):
            if answer.code == "engine_restarted":
                raise EngineUnavailable(answer.message)
            raise rebuild_error(
                {
                    "code": answer.code,
                    "message": answer.message,
                    "field": answer.field,
                    "reason": answer.reason,
                    "values": answer.values,
                }
            )
        raise AssertionError("the engine answered a probe with something else")


class _Line:
    """Questions of one kind: so many at once, and how many there are."""

    def __init__(self, at_once: int) -> None:
        self.places = anyio.CapacityLimiter(at_once)
        self.length = 0
