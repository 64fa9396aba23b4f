"""Runs the calls that a lesson gives its readers, as they would."""

from __future__ import annotations

import os
import subprocess
import sys

from webapp.lessons.lesson import SCRIPTS
from webapp.rendering import ROOT


def run_script(name: str, service: str) -> str:
    """What ``scripts/<name>`` prints, asked of the service at that address; fails if it fails."""
    program = sys.executable if name.endswith(".py") else "sh"
    return subprocess.run(
        [program, str(SCRIPTS / name)],
        env={**os.environ, "SERVICE": service},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
