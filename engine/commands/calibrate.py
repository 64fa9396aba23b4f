"""``python -m engine calibrate``: measure this machine and make it an entry of the catalogue."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from engine.catalog.this_machine import Calibration, calibration_path
from engine.catalog.units import bytes_label, si_label, significant
from engine.errors import EngineError


def calibrate(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Measure read bandwidth and FLOP/s here, in seconds, and keep them for predictions."""
    # Imported here: torch takes a second to load, and --help should not wait for it.
    from engine.inference.calibration import calibrate_now

    try:
        calibration = calibrate_now(device)
    except EngineError as error:
        raise typer.BadParameter(error.message, param_hint="--device") from error
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
        "path": str(calibration_path()),
    }


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
        f"Kept in {calibration_path()}; the catalogue now lists this machine."
    )


def _percent(spread: float | None) -> str:
    return "—" if spread is None else f"{spread:.0%}"
