"""How far a lane is, as lines on standard error, for commands that take a while."""

from __future__ import annotations

import time

import typer

from engine.inference.lane_orders import OpeningStage, Report

TELL_EVERY = 2.0
"""Seconds between two lines; what is done sooner is not worth one."""


def stderr_report() -> Report:
    """A report of how far quantising is. Standard output stays for the answer."""
    told = time.monotonic()

    def report(stage: OpeningStage, share: float, part: str) -> None:
        nonlocal told
        now = time.monotonic()
        if stage is OpeningStage.QUANTIZING and part and now - told >= TELL_EVERY:
            told = now
            typer.echo(f"quantizing: {share:.0%} done, at {part}", err=True)

    return report
