"""The simulator's page: the form's choices, and the answer of one scenario or two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec, all_models
from engine.errors import EngineError
from engine.simulator.efficiency import engine_ids
from webapp.charts import Roof
from webapp.i18n import Texts
from webapp.line_chart import Plot
from webapp.operator_chart import OperatorsView, operators_view
from webapp.pages.elsewhere import hardware_by_category
from webapp.pages.refusal_words import RefusalWords, refusal_words
from webapp.pages.simulator_curves import curves
from webapp.pages.simulator_question import (
    ACTIVATIONS,
    CACHES,
    WEIGHTS,
    SimulatorQuestion,
)
from webapp.pages.simulator_side import SideView, side_view


@dataclass(frozen=True, slots=True)
class SimulatorForm:
    """What the form offers."""

    question: SimulatorQuestion
    models: tuple[ModelSpec, ...]
    hardware: Mapping[str, tuple[HardwareSpec, ...]]
    weights: tuple[str, ...] = WEIGHTS
    caches: tuple[str, ...] = CACHES
    activations: tuple[str, ...] = ACTIVATIONS
    engines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulatorAnswer:
    """The numbers of each side, the roofline of the first, and the curves of both.

    ``refusal``: why there is no answer, by field and in words.
    """

    question: SimulatorQuestion
    sides: tuple[SideView, ...] = ()
    operators: OperatorsView | None = None
    curves: tuple[Plot, ...] = ()
    refusal: RefusalWords | None = None


def simulator_form(question: SimulatorQuestion) -> SimulatorForm:
    """The form alone."""
    return SimulatorForm(question, all_models(), hardware_by_category(), engines=engine_ids())


def simulator_answer(question: SimulatorQuestion, said: Texts) -> SimulatorAnswer:
    """The answer, or why there is none."""
    try:
        sides = tuple(side_view(letter, side) for letter, side in question.sides)
        operators = _operators(sides[0])
        return SimulatorAnswer(question, sides, operators, curves(sides, said))
    except EngineError as error:
        return SimulatorAnswer(question, refusal=refusal_words(error, said))


def _operators(view: SideView) -> OperatorsView:
    roofline = view.roofline.roofline
    roof = Roof(roofline.bandwidth, roofline.matmul)
    return operators_view(
        roof, {"prefill": view.prefill.operators, "decode": view.decode.operators}
    )
