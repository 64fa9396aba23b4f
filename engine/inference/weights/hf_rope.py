"""The rotary embedding of a Hugging Face ``config.json``, from all the places where it may stand.

transformers has written the base as ``rope_theta`` and how it is stretched as ``rope_scaling``;
now both stand in ``rope_parameters``, for models with two kinds of layers once for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.rope_frequencies import (
    LinearScaling,
    Llama3Scaling,
    Rope,
    RopeScaling,
    YarnScaling,
)
from engine.inference.weights.hf_values import flag, integer, number, number_or_none
from engine.inference.weights.json_file import JsonObject

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_ALWAYS = frozenset({"rope_type", "type", "rope_theta", "partial_rotary_factor"})
_KEYS_OF_KIND: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": frozenset(
        {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
    ),
    "yarn": frozenset(
        {
            "factor", "original_max_position_embeddings", "attention_factor", "beta_fast",
            "beta_slow", "mscale", "mscale_all_dim", "truncate",
        }
    ),
}  # fmt: skip


def read_rope(document: Mapping[str, Any], usual_theta: float = 10_000.0) -> Rope:
    """The rotary embedding of all layers, or of those that see everything.

    Raises ``UnsupportedModel`` for a kind of stretching that is not run, ``FileFormatError`` for
    numbers that are missing, impossible or contradict each other.
    """
    found: list[float] = []
    scalings: list[RopeScaling] = []
    if "rope_theta" in document:
        found.append(number(document, "rope_theta"))
    for key in ("rope_scaling", "rope_parameters"):
        value = _of_layers(_object(document, key), _GLOBAL)
        if "rope_theta" in value:
            found.append(number(value, "rope_theta"))
        scaling = _scaling(key, value, document)
        if scaling is not None:
            scalings.append(scaling)
    if len(set(found)) > 1:
        raise FileFormatError("config.json: rope_theta is given twice and differs")
    if len(set(scalings)) > 1:
        raise FileFormatError("config.json: rope_scaling and rope_parameters differ")
    return Rope(found[0] if found else usual_theta, scalings[0] if scalings else None)


def read_local_theta(document: Mapping[str, Any], usual_theta: float) -> float:
    """The base of the layers with a window, which is never stretched. Raises as ``read_rope``."""
    value = _of_layers(_object(document, "rope_parameters"), _LOCAL)
    if _scaling("rope_parameters", value, document) is not None:
        raise UnsupportedModel(
            "config.json: rope_parameters stretches the layers with a window; it is not run here"
        )
    if "rope_theta" in value:
        return number(value, "rope_theta")
    return number(document, "rope_local_base_freq", usual_theta)


def has_two_ropes(document: Mapping[str, Any]) -> bool:
    """Whether the two kinds of layers have a rotary embedding each."""
    value = _object(document, "rope_parameters")
    return _GLOBAL in value or _LOCAL in value


def _object(document: Mapping[str, Any], key: str) -> JsonObject:
    value = document.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FileFormatError(f"config.json: {key} is not an object")
    return value


def _of_layers(value: JsonObject, kind: str) -> JsonObject:
    """The part for one kind of layers, where the object has a part for each."""
    if _GLOBAL not in value and _LOCAL not in value:
        return value if kind == _GLOBAL else {}
    if value.keys() - {_GLOBAL, _LOCAL}:
        raise UnsupportedModel("config.json: rope_parameters has parts that are not known here")
    return _object(value, kind)


def _scaling(key: str, value: JsonObject, document: Mapping[str, Any]) -> RopeScaling | None:
    kind, *others = [value[name] for name in ("rope_type", "type") if value.get(name)] or [
        "default"
    ]
    if kind == "dynamic":
        raise UnsupportedModel(
            f"config.json: {key} is of the kind dynamic, which turns all keys anew whenever the"
            " text grows; keys in a cache cannot follow, so it is not run here"
        )
    if not isinstance(kind, str) or kind not in _KEYS_OF_KIND or others not in ([], [kind]):
        raise UnsupportedModel(
            f"config.json: {key} stretches the rotary embedding in a way that is not run here"
        )
    unknown = value.keys() - _ALWAYS - _KEYS_OF_KIND[kind]
    if unknown or value.get("partial_rotary_factor") not in (None, 1.0):
        raise UnsupportedModel(
            f"config.json: {key} has a key that is not run here:"
            f" {min(unknown, default='partial_rotary_factor')[:80]}"
        )
    return None if kind == "default" else _SCALINGS[kind](value, document)


def _linear(value: JsonObject, document: Mapping[str, Any]) -> RopeScaling:
    return LinearScaling(number(value, "factor"))


def _llama3(value: JsonObject, document: Mapping[str, Any]) -> RopeScaling:
    return Llama3Scaling(
        factor=number(value, "factor"),
        low_freq_factor=number(value, "low_freq_factor"),
        high_freq_factor=number(value, "high_freq_factor"),
        original_context=_original_context(value, document),
    )


def _yarn(value: JsonObject, document: Mapping[str, Any]) -> RopeScaling:
    original_context = _original_context(value, document)
    factor = number_or_none(value, "factor")
    if factor is None:
        factor = integer(document, "max_position_embeddings") / max(original_context, 1)
    attention_factor = number_or_none(value, "attention_factor")
    if attention_factor is None:
        attention_factor = YarnScaling.usual_attention_factor(
            factor, number_or_none(value, "mscale"), number_or_none(value, "mscale_all_dim")
        )
    return YarnScaling(
        factor=factor,
        original_context=original_context,
        attention_factor=attention_factor,
        beta_fast=number_or_none(value, "beta_fast") or 32.0,
        beta_slow=number_or_none(value, "beta_slow") or 1.0,
        whole_pairs=flag(value, "truncate", True),
    )


_SCALINGS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn}


def _original_context(value: JsonObject, document: Mapping[str, Any]) -> int:
    usual = integer(document, "max_position_embeddings")
    return integer(value, "original_max_position_embeddings", usual)
