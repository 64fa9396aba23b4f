"""The cheapest deployment, against trying each one by one; fronts and loads against their laws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.catalog.hardware import get_hardware
from engine.errors import InvalidRequest, UnknownName
from engine.simulator.deployment import Deployment
from engine.simulator.layout import Layout
from engine.simulator.search.cell import Cell
from engine.simulator.search.cheapest import Requirement, cheapest
from engine.simulator.search.curves import structure_curves
from engine.simulator.search.estimate import cost_model
from engine.simulator.search.load import ServiceCurves, under_load
from engine.simulator.search.pareto import pareto_front
from engine.simulator.step_shape import scaled_shape
from engine.simulator.validation.loads import Curve, offered_load

NAMES = ("h100-sxm", "a100-80-sxm", "l4", "rtx-4090", "i9-13900k")
NEED = Requirement(
    "llama-3.1-8b", rate=4.0, prompt_tokens=800, output_tokens=200, ttft=0.5, itl=0.03,
    hardware=NAMES, devices=(1, 2),
)  # fmt: skip


def test_the_best_keep_all_limits_and_come_by_price() -> None:
    found = cheapest(NEED)
    assert len(found.best) + len(found.failed) == len(NAMES) * 2 * 2
    prices = [item.usd_per_hour for item in found.best if item.usd_per_hour is not None]
    assert prices == sorted(prices)
    for item in found.best:
        assert item.ttft is not None
        assert item.itl is not None
        assert item.ttft <= NEED.ttft
        assert item.itl <= NEED.itl
        assert item.max_batch >= 1
        price = get_hardware(item.hardware).price
        if price is None:
            assert item.usd_per_hour is None
        else:
            assert item.usd_per_hour == pytest.approx(price.low * item.devices * item.replicas)


def test_one_replica_fewer_misses_a_limit() -> None:
    """The number is the least: with fewer, each would have to answer more."""
    several = [item for item in cheapest(replace(NEED, rate=60.0)).best if item.replicas > 1]
    assert several
    for item in several:
        only = replace(
            NEED, rate=60.0, hardware=(item.hardware,), devices=(item.devices,),
            weights=(item.weights,), max_replicas=item.replicas - 1,
        )  # fmt: skip
        assert cheapest(only).failed[0].fails is not None


@pytest.mark.parametrize(
    ("changes", "hardware", "words"),
    [
        ({"model": "llama-3.1-70b", "devices": (1,)}, "rtx-4090", "weights do not fit"),
        ({"prompt_tokens": 120_000, "devices": (1,)}, "rtx-4090", "no room for the cache"),
        ({"ttft": 0.002}, "h100-sxm", "TTFT: a request alone"),
        ({"itl": 0.001}, "h100-sxm", "ITL: a request alone"),
        ({"rate": 10_000.0, "max_replicas": 2}, "h100-sxm", "2 replicas do not keep"),
    ],
)
def test_why_others_fail(changes: dict, hardware: str, words: str) -> None:
    found = cheapest(replace(NEED, weights=("bf16",), hardware=(hardware,), **changes))
    assert not found.best
    assert words in (found.failed[0].fails or "")


def test_a_price_that_is_not_known_comes_last() -> None:
    unpriced = next(name for name in ("i9-13900k",) if get_hardware(name).price is None)
    slow = replace(NEED, rate=0.01, ttft=500.0, itl=5.0, hardware=(unpriced, "h100-sxm"))
    found = cheapest(slow)
    assert found.best[-1].hardware == unpriced
    assert found.best[-1].usd_per_hour is None


def test_curves_are_those_of_the_cost_model_and_the_cache_of_the_deployment() -> None:
    base = Cell("llama-3.1-8b", "l4", devices=2, times="typical", prompt_tokens=800,
                output_tokens=200)  # fmt: skip
    curves = structure_curves(base, NAMES, 0.9)
    for row, name in enumerate(NAMES):
        model = cost_model(replace(base, hardware=name))
        for place, size in enumerate(curves.service.sizes.tolist()):
            slow = model.cost_of(scaled_shape(model.step, [(size, 900, 1)])).time
            assert curves.service.steps[row, place] == pytest.approx(slow, rel=1e-9)
        prefill = model.cost_of(scaled_shape(model.step, [(1, 0, 800)])).time
        assert curves.service.prefill[row] == pytest.approx(prefill, rel=1e-9)
        blocks = Deployment("llama-3.1-8b", name, Layout(tensor=2)).kv_blocks(1000)
        if curves.service.most[row] < 256:
            assert curves.service.most[row] == pytest.approx(blocks // math.ceil(1000 / 16), abs=1)


SIZES = np.array([1.0, 2, 4, 8, 16, 32, 64])


@given(rate=st.floats(0.01, 50), prefill=st.floats(0.001, 0.2), most=st.integers(1, 64))
def test_loads_agree_with_the_closed_form_of_one_curve(
    rate: float, prefill: float, most: int
) -> None:
    steps = 0.01 + 0.0005 * SIZES
    curves = ServiceCurves(
        SIZES, steps[None], np.array([prefill]), np.zeros(1), np.array([float(most)]), 100
    )
    found = under_load(curves, np.array([[rate]]))
    one = offered_load(
        Curve(tuple(SIZES), tuple(steps), prefill, prefill, 100), rate, float(most), None
    )
    if found.stable[0, 0]:
        assert found.itl[0, 0] == pytest.approx(one.tpot, rel=1e-6)
        # Little's law: what is under way is what arrives in the time that it stays.
        assert found.batch[0, 0] == pytest.approx(rate * 100 * found.itl[0, 0], rel=1e-6)
    else:
        assert rate * prefill > 0.95 or rate * 100 * steps[-1] / (1 - rate * prefill) >= most / 2


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=30))
def test_the_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    front = pareto_front(*(np.array(column, dtype=float) for column in zip(*points, strict=True)))

    def beaten(one: tuple[int, int]) -> bool:
        return any(p != one and p[0] <= one[0] and p[1] >= one[1] for p in points)

    assert {points[place] for place in front} == {p for p in points if not beaten(p)}
    costs = [points[place][0] for place in front]
    assert costs == sorted(costs)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"rate": 0}, "rate"),
        ({"ttft": math.nan}, "ttft"),
        ({"itl": -1}, "itl"),
        ({"max_replicas": 0}, "max_replicas"),
        ({"memory_utilization": 2}, "memory_utilization"),
        ({"devices": ()}, "devices"),
        ({"weights": ("bf16",) * 17}, "weights"),
        ({"output_tokens": 1}, "output_tokens"),
        ({"hardware": ()}, "hardware"),
    ],
)
def test_wrong_values_are_named(changes: dict, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        replace(NEED, **changes)
    assert caught.value.field == field


def test_unknown_devices_are_named() -> None:
    with pytest.raises(UnknownName) as caught:
        cheapest(replace(NEED, hardware=("h100-sxm", "b1000")))
    assert caught.value.field == "hardware"
