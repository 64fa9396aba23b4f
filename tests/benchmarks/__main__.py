"""``python -m tests.benchmarks``: run lane by lane, print, and keep the results beside this file.

The results are written after each lane. A run that was cut is gone on with by ``--keep``; with
``--keep --lane``, those lanes are measured again and the others stay.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine.inference.device import open_device
from engine.inference.loading import find_model
from tests.benchmarks.book import Book, OtherResults
from tests.benchmarks.engines import Lane
from tests.benchmarks.runner import LaneBench
from tests.benchmarks.workload import FULL, QUICK

LANES = ("float32", "bfloat16", "int8-g32-rtn", "int4-g32-rtn", "file")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--model", default="auto", help="auto, tiny, a GGUF file or a folder")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--lane", action="append", help="such as int4-g32-rtn; default: five")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="short workloads, to try it out")
    parser.add_argument("--keep", action="store_true", help="keep the lanes that are there")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent, help="folder for RESULTS.md, .json"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    plan = QUICK if options.quick else FULL
    checkpoint = find_model(options.model).open()
    about = {
        "model": checkpoint.config.name,
        "source_format": checkpoint.source_format,
        "device": open_device(options.device).kind,
        "workloads": plan.names,
    }
    try:
        book = Book(options.output, about, keep=options.keep)
    except OtherResults as error:
        sys.exit(f"{error}: leave out --keep, or give another --output")
    page = ""
    for name in options.lane or [lane for lane in LANES if lane not in book]:
        bench = LaneBench(Lane(options.model, options.device, name))
        run = bench.run(plan, options.repeats, _say)
        page = book.add(run.to_document(), LANES)
        # Its weights make room before the next lane's are loaded.
        del bench
    print(page or "every lane is there already")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
