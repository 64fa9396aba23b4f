"""One long run in a process of its own: a question as JSON in, progress and the answer out.

Each line on standard output is one JSON object: ``{"answered": …, "simulated_s": …}`` now and
then, and at last ``{"document": …}`` or ``{"error": …}``. Started and, where nobody wants the
answer any more, killed by ``webapp.jobs``.
"""

from __future__ import annotations

import json
import os
import sys
import time

from engine.errors import EngineError
from engine.simulator.serving.simulation import simulate_serving
from webapp.schemas.serve import ServeRequest

NICENESS = 10
REPORT_EVERY_S = 0.25


class _Reporter:
    """Tells progress, but not more often than a page could show it."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, answered: int, simulated: float) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + REPORT_EVERY_S
            _tell({"answered": answered, "simulated_s": simulated})


def _tell(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line, allow_nan=False) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Reads one question from standard input and answers on standard output."""
    os.nice(NICENESS)
    question = ServeRequest.model_validate_json(sys.stdin.read())
    try:
        _tell({"document": simulate_serving(question.to_scenario(), _Reporter()).to_document()})
    except EngineError as error:
        _tell({"error": error.document()})


if __name__ == "__main__":
    main()
