"""``python -m webapp``: serves First Token."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from webapp.serving import CannotListen, serve
from webapp.settings import Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until it is told to stop; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m webapp", description="Serves First Token, a language model to look into."
    )
    parser.add_argument("--host", help="address or name to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on, 0 for a free one (8000)")
    parser.add_argument("--root-path", help="prefix under which a proxy serves it, such as /lab")
    parser.add_argument("--model", help="auto, tiny, or a path to weights")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"))
    given = {
        name: value
        for name, value in vars(parser.parse_args(arguments)).items()
        if value is not None
    }
    try:
        settings = Settings(**given)
    except ValidationError as error:
        for detail in error.errors(include_input=False, include_url=False):
            name = ".".join(str(part) for part in detail["loc"])
            print(f"error: {name}: {detail['msg']}", file=sys.stderr)
        return 2
    try:
        serve(settings)
    except CannotListen as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT  # the server has shut down; this is how it says why
    return 0


if __name__ == "__main__":
    sys.exit(main())
