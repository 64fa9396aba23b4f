"""``python -m tests.benchmarks.machine``: score predictions for this machine, lane by lane.

Wants `python -m engine calibrate --lanes` before it, in the same state folder. Lanes that are not
run now stay in the report as they were.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from engine.catalog.this_machine import Calibration, calibrated_hardware, load_calibration
from engine.inference.calibration import measure_machine
from engine.inference.device import open_device
from engine.inference.lane_calibration import LANES
from engine.inference.lane_facts import lane_info
from engine.inference.loading import load_model
from engine.inference.native.switch import wait_for_library
from engine.inference.options import EngineOptions
from engine.simulator.machine.ideal import LaneFormats, LaneRoofline
from engine.simulator.machine.typical import (
    NUMBER_FORMATS,
    LaneTypical,
    dense_spec,
    fitted,
    matching_lane,
)
from engine.simulator.validation.this_machine import DATA
from tests.benchmarks.machine.grid import CELLS, QUICK_CELLS, Cell
from tests.benchmarks.machine.report import LaneRun, read_runs, to_json, to_markdown
from tests.benchmarks.machine.scoring import score
from tests.benchmarks.machine.timing import DECODE_STEPS, CellTimer, TimedSteps

_HERE = Path(__file__).parent.parent


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.machine", description=__doc__)
    parser.add_argument("--model", default="auto", help="auto, tiny, a GGUF file or a folder")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--lane", action="append", help="such as int4-g32-rtn; default: five")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few small cells, to try it out")
    parser.add_argument("--output", type=Path, help="a folder for both files, instead of theirs")
    return parser.parse_args(arguments)


def run_lane(name: str, options: argparse.Namespace, calibration: Calibration) -> LaneRun:
    """Time all cells of a lane in turns, and price them.

    Raises ``SystemExit`` where the lane has not been calibrated.
    """
    cells = QUICK_CELLS if options.quick else CELLS
    wait_for_library()
    room = max(cell.batch * (cell.tokens + DECODE_STEPS + 16) for cell in cells)
    loaded = load_model(
        EngineOptions(
            model=options.model,
            device=options.device,
            dtypes=name,
            kv_tokens=room,
            calibrate="never",
        )
    )
    executor = loaded.lanes[0].executor
    info = lane_info(loaded.lanes[0], on_demand=False)
    formats = LaneFormats(
        info.weight_format, info.kv_format, NUMBER_FORMATS[info.dtype], info.native_rows
    )
    lane = matching_lane(calibration, loaded.architecture, formats)
    if lane is None:
        sys.exit(f"{name} has not been calibrated: python -m engine calibrate --lane {name}")
    device = open_device(options.device)
    now = measure_machine(device)
    timer = CellTimer(executor, loaded.tokenizer.vocab_size, loaded.config.max_context)
    runs: dict[Cell, list[TimedSteps]] = {cell: [] for cell in cells}
    for _ in range(options.repeats):
        for cell in cells:
            runs[cell].append(timer.run(cell))
    hardware = calibrated_hardware(calibration.with_best_rates(now))
    ideal = LaneRoofline(dense_spec(loaded.architecture), hardware, formats)
    typical = LaneTypical(ideal, fitted(calibration, lane))
    return LaneRun(
        lane=info.name,
        model=loaded.config.name,
        calibrated=lane.date,
        scored=datetime.now(UTC).isoformat(timespec="seconds"),
        bandwidth_calibrated=calibration.bandwidth_bytes_per_s,
        bandwidth_scored=now.bandwidth_bytes_per_s,
        machine={
            "device": device.kind,
            "device_name": device.name,
            "threads": device.threads,
            "torch": loaded.torch_version,
            "bandwidth": hardware.bandwidth,
            "flops_per_s": dict(hardware.dense_flops),
        },
        scores=tuple(score(info.name, cell, runs[cell], ideal, typical) for cell in cells),
    )


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    calibration = load_calibration()
    if calibration is None:
        sys.exit("this machine has not been calibrated: python -m engine calibrate --lanes")
    path, tables = DATA, _HERE / "MACHINE.md"
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        path, tables = options.output / DATA.name, options.output / tables.name
    runs = read_runs(path)
    for name in options.lane or LANES:
        print(f"running {name}", file=sys.stderr, flush=True)
        run = run_lane(name, options, calibration)
        runs[run.lane] = run
        path.write_text(to_json([*runs.values()]) + "\n", encoding="utf-8")
    table = to_markdown([*runs.values()])
    tables.write_text(table, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
