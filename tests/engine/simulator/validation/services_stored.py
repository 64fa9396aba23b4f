"""The stored scores of the measured services, put together again from the report's JSON."""

from __future__ import annotations

import json
from typing import Any

from engine.simulator.validation.report import DATA
from engine.simulator.validation.service_scores import ServiceScore
from engine.simulator.validation.services import Latencies, read_services


def stored_serving() -> dict[str, Any]:
    return json.loads(DATA.read_text(encoding="utf-8"))["serving"]


def stored_scores() -> list[ServiceScore]:
    runs = {run.id: run for run in read_services()}
    return [
        ServiceScore(runs[item["id"]], Latencies(**item["shipped"]), Latencies(**item["unseen"]))
        for item in stored_serving()["runs"]
    ]
