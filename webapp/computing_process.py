"""One question in a process of its own: JSON in; a line with the error or null, and the answer.

Started by ``webapp.computing`` for answers that would hold the web process's interpreter. It ends
by itself, or is killed when it takes too long or nobody waits any more.
"""

from __future__ import annotations

import json
import os
import sys

from engine.errors import EngineError
from webapp.answers import Question, answer
from webapp.simulation_process import NICENESS


def main() -> None:
    """Reads one question from standard input and answers on standard output."""
    os.nice(NICENESS)
    question = Question(**json.loads(sys.stdin.read()))
    error: dict[str, object] | None = None
    content = b""
    try:
        content = answer(question)
    except EngineError as refused:
        error = refused.document()
    sys.stdout.buffer.write(json.dumps(error).encode() + b"\n" + content)


if __name__ == "__main__":
    main()
