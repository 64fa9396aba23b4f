"""``python -m tests.benchmarks.pays``: run parts, print the page, write PAYS.md and pays.json."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engine.inference.loading import LoadedModel, load_model
from engine.inference.native.build import NativeUnavailable, build, find, writable_folder
from engine.inference.options import EngineOptions
from tests.benchmarks.pays import batching, cache, probes, speculation
from tests.benchmarks.pays.driver import MODES
from tests.benchmarks.pays.report import PARTS, Conditions, Section, write

Say = Callable[[str], None]

_MEASURES: dict[str, Callable[[LoadedModel, bool, Say], Section]] = {
    "cache": lambda m, quick, say: cache.measure(m, cache.QUICK if quick else cache.FULL, say),
    "batching": lambda m, quick, say: batching.measure(
        m, batching.QUICK if quick else batching.FULL, say
    ),
    "speculation": lambda m, quick, say: speculation.measure(
        m, speculation.QUICK if quick else speculation.FULL, say
    ),
    "probes": lambda m, quick, say: probes.measure(m, probes.QUICK if quick else probes.FULL, say),
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.pays", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--model", default="auto", help="auto, tiny, a GGUF file or a folder")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="short workloads, to try it out")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parents[1], help="folder for both files"
    )
    options = parser.parse_args(arguments)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part {part}: choose from {', '.join(PARTS)}")
    options.parts = options.parts or list(PARTS)
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if not options.quick:
        _build_native(say)
    model = load_model(
        EngineOptions(options.model, ",".join(MODES), options.device, calibrate="never")
    )
    page = ""
    for part in options.parts:
        conditions = Conditions.of(model, quick=options.quick)
        started = time.perf_counter()
        section = _MEASURES[part](model, options.quick, say)
        document = section.to_document(conditions, time.perf_counter() - started)
        page = write(options.output, {part: document})
    print(page)


def _build_native(say: Say) -> None:
    """Otherwise a thread compiles while steps are timed, and they change in the midst of it."""
    if find() is None:
        try:
            build(writable_folder())
        except NativeUnavailable as error:
            say(f"steps run in torch: {error}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main()
