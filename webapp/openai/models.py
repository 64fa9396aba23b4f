"""Names of what runs here: the model as it is, and with each of its open lanes' weights."""

from __future__ import annotations

from engine.inference.messages import EngineInfo
from webapp.problems import FieldError, Problem
from webapp.schemas.openai_answers import ModelCard

SEPARATOR = ":"


def served(info: EngineInfo, since: int) -> list[ModelCard]:
    """The model with the engine's own choice of weights first, then ``name:weights`` of each that
    is ready. ``since``: Unix time."""
    weights = dict.fromkeys(lane.weights for lane in info.lanes)
    names = [info.model_name, *(f"{info.model_name}{SEPARATOR}{name}" for name in weights)]
    return [ModelCard(id=name, created=since, owned_by="firsttoken") for name in names]


def weights_of(name: str, info: EngineInfo) -> str | None:
    """The weights that a model's name asks for; None leaves them to the engine.

    Weights that are not open yet may be named too: the engine opens them or says what there is.

    Raises:
        Problem: 404, if another model is named.
    """
    if name == info.model_name:
        return None
    model, separator, weights = name.rpartition(SEPARATOR)
    if separator and model == info.model_name and weights:
        return weights
    detail = f"There is no such model here; {info.model_name} is served, see /v1/models."
    raise Problem(404, "model_not_found", detail, [FieldError("/model", "model_not_found", detail)])
