"""Refusals have codes: where a prompt is taken in, none is made of words alone."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import InvalidRequest, NeverFits
from engine.refusals import REFUSALS, refused, sentence
from engine.refusals_of_predictions import REFUSED_PREDICTIONS
from tests.architecture.tree import ROOT
from webapp.simulations import rebuild_error

PATHS = [
    "engine/inference/engine.py",
    "engine/inference/held_requests.py",
    "engine/inference/kv_cache/capabilities.py",
    "engine/inference/lane_memory.py",
    "engine/inference/lane_settings.py",
    "engine/inference/openings.py",
    "engine/inference/preparing.py",
    "engine/inference/quantization/file_blocks.py",
    "engine/inference/request_limits.py",
    "engine/inference/sampling_params.py",
    "engine/inference/stop_strings.py",
    "engine/inference/telling.py",
    "engine/inference/worker.py",
    "engine/scheduling/speculation.py",
    # What the pages of the simulator ask.
    "engine/catalog/names.py",
    "engine/catalog/precision.py",
    "engine/simulator/decoder_step.py",
    "engine/simulator/energy.py",
    "engine/simulator/features.py",
    "engine/simulator/layout.py",
    "engine/simulator/search/axes.py",
    "engine/simulator/search/axis_text.py",
    "engine/simulator/search/cheapest.py",
    "engine/simulator/serving/checks.py",
    "engine/simulator/serving/lengths.py",
    "engine/simulator/serving/scenario.py",
    "engine/simulator/serving/settings.py",
    "engine/simulator/serving/trace.py",
    "engine/simulator/serving/workload.py",
    "webapp/computing.py",
    "webapp/pages/own.py",
    "webapp/pages/serving_question.py",
    "webapp/schemas/serve.py",
]
KINDS = {"CapacityError", "EngineError", "InvalidRequest", "LanesFull", "NeverFits", "QueueFull"}


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node


@pytest.mark.parametrize("path", PATHS)
def test_whoever_takes_a_prompt_in_refuses_by_code(path: str) -> None:
    assert not [node.lineno for name, node in calls(ROOT / path) if name in KINDS]


def test_every_code_that_is_used_has_a_sentence_and_every_sentence_is_used() -> None:
    files = [path for package in ("engine", "webapp") for path in (ROOT / package).rglob("*.py")]
    source = [
        path.read_text(encoding="utf-8")
        for path in files
        if path.name not in ("refusals.py", "refusals_of_predictions.py")
    ]
    used = {
        node.args[0].value
        for path in files
        for name, node in calls(path)
        if name == "refused" and node.args and isinstance(node.args[0], ast.Constant)
    }
    assert not REFUSALS.keys() & REFUSED_PREDICTIONS.keys()
    known = REFUSALS.keys() | REFUSED_PREDICTIONS.keys()
    assert used <= known
    made_up = {
        f"{what}_{how}" for what in ("prefix_cache", "samples") for how in ("contiguous", "off")
    }
    unused = known - used - made_up
    assert not [name for name in unused if not any(f'"{name}"' in text for text in source)]


def test_a_refusal_carries_its_code_and_values() -> None:
    error = refused("context", kind=NeverFits, field="max_tokens", prompt=5, answer=6, context=10)
    assert isinstance(error, NeverFits)
    assert error.message == (
        "5 prompt tokens and 6 more exceed the context of 10; shorten the prompt or the answer"
    )
    assert (error.code, error.reason, error.field) == ("never_fits", "context", "max_tokens")
    assert error.values == {"prompt": 5, "answer": 6, "context": 10}


def test_a_sentence_without_its_values_is_a_fault_of_ours() -> None:
    with pytest.raises(KeyError):
        refused("context", prompt=5)
    assert InvalidRequest("plain").reason is None


def test_an_error_at_another_place_and_in_another_process_keeps_its_code() -> None:
    error = refused("values_at_most", field="x", high="10,000")
    moved = error.at("x_values")
    assert (type(moved), moved.field) == (InvalidRequest, "x_values")
    again = rebuild_error(json.loads(json.dumps(moved.document())))
    assert (type(again), again.message, again.field) == (InvalidRequest, error.message, "x_values")
    assert (again.reason, again.values) == ("values_at_most", {"high": "10,000"})
    assert sentence("values_at_most").format_map(again.values) == error.message
