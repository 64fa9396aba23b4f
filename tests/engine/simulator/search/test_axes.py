"""What a sweep refuses, and where it says the fault is."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import InvalidRequest, UnknownName, UnsupportedModel
from engine.simulator.search.axes import Axis, Sweep
from engine.simulator.search.cell import Cell
from engine.simulator.search.document import placed, read_sweep
from engine.simulator.search.sweep import run_sweep

BASE = Cell("llama-3.1-8b", "h100-sxm")


@pytest.mark.parametrize(
    ("axes", "field"),
    [
        ([Axis("btach", (1,))], "axes.0.knob"),
        ([Axis("batch", (1,)), Axis("batch", (2,))], "axes.1.knob"),
        ([Axis("batch", ())], "axes.0.values"),
        ([Axis("batch", (1, 0))], "axes.0.values.1"),
        ([Axis("batch", (1, 1.5))], "axes.0.values.1"),
        ([Axis("batch", (1,)), Axis("prompt_tokens", ("many",))], "axes.1.values.0"),
        ([Axis("weights", (4,))], "axes.0.values.0"),
        ([Axis("engine", ("vllm", "none-such"))], "axes.0.values.1"),
        ([Axis("times", ("real",))], "axes.0.values.0"),
        ([Axis("bandwidth_factor", (float("nan"),))], "axes.0.values.0"),
        ([Axis("bandwidth_factor", (float("inf"),))], "axes.0.values.0"),
        ([Axis("usd_per_hour", (-1.0,))], "axes.0.values.0"),
        (
            [Axis(k, (1,)) for k in ("batch", "prompt_tokens", "output_tokens", "devices")],
            "axes",
        ),
        ([Axis("batch", tuple(range(1, 1001))), Axis("prompt_tokens", (1,) * 251)], "axes"),
        ([Axis("devices", tuple(range(1, 1025))), Axis("kv", ("bf16", "fp8"))], "axes"),
    ],
)
def test_wrong_axes_name_their_place(axes: list[Axis], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Sweep(BASE, tuple(axes))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"batch": True}, "batch"),
        ({"context_tokens": -1}, "context_tokens"),
        ({"flops_factor": 0.0}, "flops_factor"),
        ({"launch_factor": "2"}, "launch_factor"),
        ({"activations": 8}, "activations"),
        ({"engine": "none-such"}, "engine"),
    ],
)
def test_wrong_knobs_are_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Cell("llama-3.1-8b", "h100-sxm", **changes)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "base"),
        ({"base": []}, "base"),
        ({"base": {"model": "llama-3.1-8b"}}, "base.hardware"),
        ({"base": {"model": 1, "hardware": "h100-sxm"}}, "base.model"),
        ({"base": {"model": "a", "hardware": "b", "btach": 1}}, "base"),
        ({"base": {"model": "a", "hardware": "b", "batch": 0}}, "base.batch"),
        ({"base": {"model": "a", "hardware": "b"}, "axes": {}}, "axes"),
        ({"base": {"model": "a", "hardware": "b"}, "axes": [1]}, "axes.0"),
        ({"base": {"model": "a", "hardware": "b"}, "axes": [{"values": [1]}]}, "axes.0.knob"),
        ({"base": {"model": "a", "hardware": "b"}, "axes": [{"knob": "kv"}]}, "axes.0.values"),
    ],
)
def test_wrong_documents_name_their_field(document: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_sweep(document)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("base", "axes", "field"),
    [
        (Cell("no-such", "h100-sxm"), [], "base.model"),
        (BASE, [Axis("model", ("llama-3.1-8b", "no-such"))], "axes.0.values"),
        (BASE, [Axis("batch", (1,)), Axis("hardware", ("no-such",))], "axes.1.values"),
        (Cell("llama-3.1-8b", "h100-sxm", kv="int3"), [Axis("batch", (1,))], "base.kv"),
    ],
)
def test_names_that_do_not_exist_are_found_when_it_runs(
    base: Cell, axes: list[Axis], field: str
) -> None:
    sweep = Sweep(base, tuple(axes))
    with pytest.raises(UnknownName) as caught:
        run_sweep(sweep)
    assert placed(caught.value, sweep).field == field


def test_an_error_without_a_knob_keeps_its_place() -> None:
    error = UnsupportedModel("no", field="elsewhere")
    assert placed(error, Sweep(BASE)) is error
