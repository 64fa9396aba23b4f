"""``python -m tests.benchmarks``: run, print, and write the results beside this file."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.benchmarks.runner import Bench
from tests.benchmarks.workload import FULL, QUICK

HEADING = "# Benchmark results\n\n"
LANES = ("float32", "bfloat16", "int8-g32-rtn", "int4-g32-rtn", "file")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--model", default="auto", help="auto, tiny, a GGUF file or a folder")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--lane", action="append", help="such as int4-g32-rtn; default: five")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="short workloads, to try it out")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent, help="folder for RESULTS.md, .json"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    bench = Bench(options.model, options.device, options.lane or LANES)
    report = bench.run(
        QUICK if options.quick else FULL,
        options.repeats,
        lambda text: print(text, file=sys.stderr, flush=True),
    )
    table = report.to_markdown()
    document = json.dumps(report.to_document(), indent=2, allow_nan=False)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "RESULTS.md").write_text(HEADING + table, encoding="utf-8")
    (options.output / "results.json").write_text(document + "\n", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
