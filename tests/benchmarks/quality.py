"""``python -m tests.benchmarks.quality``: the table of all weight formats and KV caches.

Lanes that quality.json already has, made of the same model and text, are kept, so that the table
can be made in pieces. ``--kv`` makes the section of KV caches by length of the text, and no lanes.
``--speeds`` makes the column of decode speeds for the lanes that are there, as the engine serves
them; on a machine at rest, or the numbers say little.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from engine.inference.device import open_device
from engine.inference.lane_settings import KVSettings, WeightSettings, parse_kv, parse_weights
from engine.inference.loading import find_model
from engine.inference.quantization.report import DEFAULT_TOKENS, LaneReport, report_quality
from tests.benchmarks.engines import Lane
from tests.benchmarks.kv_contexts import KVContexts, measure_contexts
from tests.benchmarks.quality_page import to_markdown
from tests.benchmarks.workload import Workload

SHARED = ("tensor", "channel", "g128", "g64", "g32")
METHODS = ("rtn", "awq", "gptq")
KV_CACHES = ("paged-int8", "paged-int4", "paged-window-256-sinks-4")

_DECODE, _TURNS = Workload(batch=1, prompt_tokens=64, new_tokens=64), 3

Pair = tuple[WeightSettings, KVSettings]


def all_lanes() -> list[Pair]:
    """Every scheme of INT8 and INT4 in each method, the float formats, the file's own blocks."""
    names = ["bfloat16", "file"]
    names += [f"{b}-{s}-{m}" for b in ("int8", "int4") for s in SHARED for m in METHODS]
    lanes = [(parse_weights(name), KVSettings()) for name in names]
    return lanes + [(parse_weights("float32"), parse_kv(name)) for name in KV_CACHES]


def label(weights: str, kv: str) -> str:
    """The name that ``--only`` searches."""
    return f"{weights} {kv}"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.quality", description=__doc__)
    parser.add_argument("--model", default="auto", help="auto, tiny, a GGUF file or a folder")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--tokens", type=int, default=DEFAULT_TOKENS)
    parser.add_argument("--only", default="", help="a regular expression over 'weights cache'")
    parser.add_argument("--kv", action="store_true", help="KV caches by context, and no lanes")
    parser.add_argument("--again", action="store_true", help="measure lanes that are there, too")
    parser.add_argument(
        "--speeds", action="store_true", help="decode speeds of the lanes that are there, alone"
    )
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent, help="folder of QUALITY.md and .json"
    )
    return parser.parse_args(arguments)


class Table:
    """The document on disk, rewritten after each lane."""

    def __init__(self, folder: Path, conditions: dict[str, Any]) -> None:
        self._folder = folder
        path = folder / "quality.json"
        before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        same = all(before.get(key) == value for key, value in conditions.items())
        self._lanes: dict[str, dict[str, Any]] = (
            {label(lane["weights"], lane["kv"]): lane for lane in before["lanes"]}
            if same and before
            else {}
        )
        self.document = {**(before if same else {}), **conditions}

    def has(self, pair: Pair) -> bool:
        return label(pair[0].name, pair[1].name) in self._lanes

    def add(self, report: LaneReport) -> None:
        """Keep a lane's quality. The speed of its samples is not kept: they ran beside others."""
        name = label(report.weights, report.kv)
        before = self._lanes.get(name, {})
        speed = before.get("decode_tokens_per_s")
        self._lanes[name] = {**asdict(report), "decode_tokens_per_s": speed}
        self.write()

    def add_speeds(self, speed_of: Callable[[str], float], only: str) -> None:
        """Fill in the decode speeds of lanes that have the plain cache."""
        plain = KVSettings().name
        for name, lane in self._lanes.items():
            if lane["kv"] == plain and re.search(only, name):
                lane["decode_tokens_per_s"] = speed_of(lane["weights"])
                self.write()

    def set_kv_contexts(self, rows: Sequence[KVContexts]) -> None:
        """Replace the section of KV caches by context."""
        self.document["kv_contexts"] = {"date": _today(), "rows": [asdict(row) for row in rows]}
        self.write()

    def write(self) -> None:
        order = [label(weights.name, kv.name) for weights, kv in all_lanes()]
        self.document["lanes"] = [self._lanes[name] for name in order if name in self._lanes]
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.document, indent=1, ensure_ascii=False) + "\n"
        (self._folder / "quality.json").write_text(text, encoding="utf-8")
        # From the text, so that the page says what the file says.
        page = to_markdown(json.loads(text))
        (self._folder / "QUALITY.md").write_text(page, encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    source, device = find_model(options.model), open_device(options.device)
    checkpoint = source.open()
    conditions = {
        "model": checkpoint.config.name,
        "source_format": checkpoint.source_format,
        "device": device.kind,
        "device_name": device.name,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "asked_tokens": options.tokens,
    }
    table = Table(options.output, conditions)
    if options.kv:
        table.set_kv_contexts(
            measure_contexts(
                checkpoint, device=device.torch_device, num_tokens=options.tokens, say=_say
            )
        )
        return
    if options.speeds:
        table.add_speeds(
            lambda name: decode_speed(options.model, options.device, name), options.only
        )
        return
    lanes = [
        (weights, kv)
        for weights, kv in all_lanes()
        if re.search(options.only, label(weights.name, kv.name))
        and (options.again or not table.has((weights, kv)))
    ]
    if not lanes:
        table.write()
        return
    table.document["date"] = _today()
    report = report_quality(
        checkpoint,
        lanes,
        device=device.torch_device,
        num_tokens=options.tokens,
        random_weights=source.random_weights,
        say=_say,
        lane_done=table.add,
    )
    table.document |= {key: value for key, value in report.to_document().items() if key != "lanes"}
    table.write()


def decode_speed(model: str, device: str, weights: str) -> float:
    """Tokens per second of one sequence, steps as they are served: the median of some runs."""
    _say(f"{weights}: decode speed")
    ours = Lane(model, device, weights).open_ours()
    ours.run(_DECODE.warm_up)
    return _DECODE.tokens / statistics.median(ours.run(_DECODE).seconds for _ in range(_TURNS))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


if __name__ == "__main__":
    main()
