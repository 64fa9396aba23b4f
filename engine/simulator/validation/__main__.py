"""The validation as a command: score the stored rows, or others, or calibrate again."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from engine.errors import EngineError
from engine.simulator.validation.calibration import calibrate
from engine.simulator.validation.measurement import read_measurements
from engine.simulator.validation.report import DATA, REPORT, markdown, write_report
from engine.simulator.validation.scoring import make_plans, score
from engine.simulator.validation.service_report import services_section
from engine.simulator.validation.service_scores import score_services

ACTIONS = ("report", "calibrate", "serving")
_HELP = "serving prints the section on services under load alone"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when all is well."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.simulator.validation",
        description="Score predictions against published measurements and write the report.",
    )
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="report", help=_HELP)
    parser.add_argument("--rows", type=Path, help="a CSV of other rows: the report is printed")
    options = parser.parse_args(arguments)
    try:
        if options.action == "serving":
            print(services_section(score_services()))
            return 0
        rows = read_measurements(options.rows)
        if options.action == "calibrate":
            plans, _ = make_plans(rows)
            calibrate(plans, datetime.now(UTC).date())
        elif options.rows is None:
            write_report(score(rows), score_services())
            print(f"wrote {REPORT} and {DATA}")
        else:
            print(markdown(score(rows)), end="")
    except EngineError as error:
        print(f"validation: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
