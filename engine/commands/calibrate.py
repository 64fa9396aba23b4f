"""``python -m engine calibrate``: measure this machine and make it an entry of the catalogue.

With ``--lanes`` the engine itself is measured as well, lane by lane, which takes a minute or two.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Annotated

import typer

from engine.catalog.lane_calibration import LaneCalibration
from engine.catalog.this_machine import Calibration, calibration_path
from engine.catalog.units import bytes_label, si_label, significant
from engine.errors import EngineError


def calibrate(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    lanes: Annotated[
        bool, typer.Option("--lanes", help="Measure the engine too, in five formats of weights.")
    ] = False,
    lane: Annotated[
        list[str] | None, typer.Option(help="Measure this lane, such as int4-g32-awq; repeatable.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="For lanes: auto, tiny, a GGUF file or a model folder.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Measure read bandwidth and FLOP/s here, in seconds, and keep them for predictions."""
    try:
        calibration = _measure(device, lane or [], model, every_lane=lanes)
    except EngineError as error:
        field = {"weights": "lane", "kv_cache": "lane", "model": "model"}.get(error.field or "")
        raise typer.BadParameter(error.message, param_hint=f"--{field or 'device'}") from error
    except OSError as error:
        typer.echo(f"the result cannot be kept: {error.strerror}; set FIRSTTOKEN_STATE", err=True)
        raise typer.Exit(1) from error
    except RuntimeError as error:
        # What torch raises when a device's memory is full; its first line says so.
        typer.echo(f"could not measure: {str(error).splitlines()[0]}", err=True)
        raise typer.Exit(1) from error
    typer.echo(
        json.dumps(_document(calibration), indent=2) if as_json else _for_people(calibration)
    )


def _measure(device: str, lanes: Sequence[str], model: str, *, every_lane: bool) -> Calibration:
    # Imported here: torch takes a second to load, and --help should not wait for it.
    from engine.inference.calibration import calibrate_now, ensure_calibrated
    from engine.inference.lane_calibration import calibrate_lanes, offered_lanes
    from engine.inference.options import EngineOptions

    options = EngineOptions(model=model, device=device)
    names = [*lanes, *(offered_lanes(options) if every_lane else ())]
    if not names:
        return calibrate_now(device)
    calibration = ensure_calibrated(device)
    return calibrate_lanes(names, options, calibration, lambda line: typer.echo(line, err=True))


def ridge_points(calibration: Calibration) -> dict[str, float]:
    """FLOP/byte above which each number format is bound by arithmetic: FLOP/s over byte/s."""
    return {
        name: rate / calibration.bandwidth_bytes_per_s
        for name, rate in calibration.flops_per_s.items()
    }


def _document(calibration: Calibration) -> dict[str, object]:
    def measured(value: float, unit: str, spread: float | None = None) -> dict[str, object]:
        quantity: dict[str, object] = {"value": value, "unit": unit, "kind": "measured"}
        return quantity if spread is None else quantity | {"spread": spread}

    spread = calibration.spread
    return {
        "device": calibration.device_kind,
        "device_name": calibration.device_name,
        "threads": calibration.threads,
        "torch_version": calibration.torch_version,
        "date": calibration.date,
        "memory": measured(calibration.memory_bytes, "B"),
        "bandwidth": measured(calibration.bandwidth_bytes_per_s, "B/s", spread.get("bandwidth")),
        "flops": {
            name: measured(rate, "FLOP/s", spread.get(name))
            for name, rate in calibration.flops_per_s.items()
        },
        "ridge_points": {
            name: measured(ridge, "FLOP/B") for name, ridge in ridge_points(calibration).items()
        },
        "lanes": [
            {
                "lane": lane.lane,
                "model": lane.model.get("id"),
                "date": lane.date,
                "native_rows": lane.native_rows,
                "steps": len(lane.steps),
                "batch_1_decode": measured(_decode_seconds(lane), "s"),
            }
            for lane in calibration.lanes
        ],
        "path": str(calibration_path()),
    }


def _decode_seconds(lane: LaneCalibration) -> float:
    """The median of a decode step of one sequence over the shortest context that was measured."""
    alone = [step for step in lane.steps if step.rows == 1]
    return statistics.median(min(alone, key=lambda step: step.prefix_tokens).seconds)


def _for_people(calibration: Calibration) -> str:
    spread = calibration.spread
    rows = [("", "measured", "spread", "ridge point")]
    rows.append(
        (
            "read bandwidth",
            si_label(calibration.bandwidth_bytes_per_s, "B/s"),
            _percent(spread.get("bandwidth")),
            "",
        )
    )
    ridges = ridge_points(calibration)
    for name, rate in calibration.flops_per_s.items():
        rows.append(
            (
                f"{name} matrix product",
                si_label(rate, "FLOP/s"),
                _percent(spread.get(name)),
                f"{significant(ridges[name])} FLOP/B",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    table = "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    threads = f", {calibration.threads} threads" if calibration.device_kind == "cpu" else ""
    return (
        f"{calibration.device_name} ({calibration.device_kind}{threads}), "
        f"{bytes_label(calibration.memory_bytes)} of memory, torch {calibration.torch_version}\n\n"
        f"{table}\n\n"
        "Spread is the fastest minus the slowest run, over the median.\n"
        f"{_lanes_for_people(calibration)}\n"
        f"Kept in {calibration_path()}; the catalogue now lists this machine."
    )


def _lanes_for_people(calibration: Calibration) -> str:
    if not calibration.lanes:
        return "Predictions are ideal; calibrate --lanes measures what is typical as well."
    return "\n".join(
        f"{lane.lane} of {lane.model.get('id')}: typical predictions, from {len(lane.steps)} kinds "
        f"of steps on {lane.date}; one sequence decodes in {_decode_seconds(lane) * 1e3:.1f} ms"
        for lane in calibration.lanes
    )


def _percent(spread: float | None) -> str:
    return "—" if spread is None else f"{spread:.0%}"
