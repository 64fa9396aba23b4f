"""File types of llama.cpp, against the bits per weight that its own table gives."""

from __future__ import annotations

import pytest

from engine.catalog.gguf_files import FILE_TYPES, file_type_format, is_file_type
from engine.catalog.hardware import get_hardware
from engine.catalog.models import get_model
from engine.errors import UnsupportedModel
from engine.simulator.step_cost import StepCostModel

# README of llama.cpp's quantize: "Llama 2" by bits per weight, to two digits.
PUBLISHED = [
    ("llama-2-7b", "q4_k_s", 4.58),
    ("llama-2-7b", "q4_k_m", 4.84),
    ("llama-2-7b", "q5_k_s", 5.52),
    ("llama-2-7b", "q5_k_m", 5.68),
    ("llama-2-13b", "q4_k_s", 4.56),
    ("llama-2-13b", "q4_k_m", 4.83),
    ("llama-2-13b", "q5_k_s", 5.51),
    ("llama-2-13b", "q5_k_m", 5.67),
    ("llama-2-70b", "q4_k_m", 4.80),
    ("llama-2-70b", "q5_k_s", 5.50),
    ("llama-2-70b", "q5_k_m", 5.65),
]


@pytest.mark.parametrize(("model", "name", "bits"), PUBLISHED)
def test_bits_are_those_of_llama_cpps_table(model: str, name: str, bits: float) -> None:
    found = file_type_format(name, get_model(model)).bits
    assert found == pytest.approx(bits, abs=0.005 + 1e-9)


def test_the_later_table_to_three_digits() -> None:
    """Llama 3.1 8B in the README of 2025: 4.6672, 4.8944, 5.5704 and 5.7036."""
    spec = get_model("llama-3.1-8b")
    found = [file_type_format(name, spec).bits for name in FILE_TYPES]
    assert found == [4.667, 4.894, 5.570, 5.704]


def test_a_simulation_takes_the_name_of_a_file_type() -> None:
    spec = get_model("llama-3.1-8b")
    device = get_hardware("rtx-4090")
    model = StepCostModel(spec, device, weights="Q4_K_M")
    assert model.formats.weights.bits == 4.894
    assert model.formats.activations.name == "bf16"
    with pytest.raises(UnsupportedModel) as caught:
        StepCostModel(get_model("mixtral-8x7b"), device, weights="q4_k_m")
    assert caught.value.field == "weights"


@pytest.mark.parametrize("model", ["gpt2", "phi-4", "smollm2-135m", "deepseek-v3", "mixtral-8x7b"])
def test_models_whose_rules_are_not_known_are_refused(model: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        file_type_format("q4_k_m", get_model(model))
    assert caught.value.field == "weights"


def test_names_in_any_case() -> None:
    assert is_file_type("Q4_K_M")
    assert not is_file_type("q4_k")
