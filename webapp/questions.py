"""Questions to the engine's worker that are not about generating, a few at a time.

The worker looks inside the model at one text at a time and beside its steps, so questions wait
here, where one whose asker has gone can still be let go of. What the tokenizer alone answers takes
milliseconds and waits in a line of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial

from engine.errors import EngineUnavailable, QueueFull
from engine.inference.messages import Failed, Probe, Probed
from engine.refusals import refused
from webapp.live.engine_port import EnginePort
from webapp.settings import Settings
from webapp.simulations import rebuild_error
from webapp.waiting import Gone, Line

TEXT_KINDS = frozenset({"tokenize", "detokenize", "merges"})
_TEXTS_AT_ONCE = 4


class Questions:
    """Asks ``engine``; at most ``settings.probe_queue`` questions of a kind wait."""

    def __init__(self, engine: EnginePort, settings: Settings) -> None:
        self._engine = engine
        full = partial(refused, "probes_at_once", kind=QueueFull)
        self._probes = Line(1, settings.probe_queue, full)
        self._texts = Line(_TEXTS_AT_ONCE, settings.probe_queue, full)

    async def ask(
        self, kind: str, arguments: Mapping[str, object], gone: Gone
    ) -> dict[str, object]:
        """The worker's answer. ``kind`` and ``arguments`` as in ``engine.inference.probes``;
        nothing is asked for someone who is ``gone`` when it is their turn.

        Raises:
            QueueFull: too many are waiting.
            EngineUnavailable: the engine is not ready, or ended meanwhile.
            EngineError: whatever the engine refuses (names the field), or the asker has gone.
        """
        line = self._texts if kind in TEXT_KINDS else self._probes
        async with line.place(gone):
            return await self._ask(kind, arguments)

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
