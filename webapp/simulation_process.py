"""One simulation in a process of its own: a scenario as JSON in, its document or an error out.

Started by ``webapp.simulations`` for runs that would hold the web process's interpreter for
seconds. It ends by itself, or is killed when it takes too long or nobody waits any more.
"""

from __future__ import annotations

import json
import os
import sys

from engine.errors import EngineError
from engine.simulator.scenario import Scenario, simulate

NICENESS = 10


def main() -> None:
    """Reads one scenario from standard input and answers on standard output."""
    os.nice(NICENESS)
    fields = json.loads(sys.stdin.read())
    try:
        answer: dict[str, object] = {
            "document": simulate(Scenario.from_document(fields)).to_document()
        }
    except EngineError as error:
        answer = {"error": error.document()}
    json.dump(answer, sys.stdout, allow_nan=False)


if __name__ == "__main__":
    main()
