"""How rotary embeddings are stretched, against transformers: near, far, and far beyond the context
that the model was trained on. A stretching that is ignored shows only at long positions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.errors import FileFormatError
from engine.inference.model.rope import RotaryTable
from engine.inference.model.rope_frequencies import (
    LinearScaling,
    Llama3Scaling,
    Rope,
    YarnScaling,
)
from engine.inference.weights.hf_rope import read_local_theta, read_rope
from tests.engine.inference.runs_for_tests import CPU

HEAD_DIM, ORIGINAL = 64, 2_048
POSITIONS = [0, 1, 1_000, ORIGINAL, ORIGINAL + 1_000, ORIGINAL + 8_000]

SCALED: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL},
    "yarn, context of the file": {"rope_type": "yarn", "factor": 4.0},
    "yarn, mscale": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": ORIGINAL,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
    },
    "yarn, everything": {
        "rope_type": "yarn",
        "factor": 16.0,
        "original_max_position_embeddings": ORIGINAL,
        "attention_factor": 1.3,
        "beta_fast": 20.0,
        "beta_slow": 2.0,
        "truncate": False,
    },
}


def _document(parameters: dict[str, Any], theta: float) -> dict[str, Any]:
    return {
        "max_position_embeddings": 4 * ORIGINAL,
        "rope_parameters": parameters | {"rope_theta": theta},
    }


@pytest.mark.kind("O36")
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
@pytest.mark.parametrize("parameters", SCALED.values(), ids=SCALED.keys())
def test_turns_equal_those_of_transformers(parameters: dict[str, Any], theta: float) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    document = _document(parameters, theta)
    config = LlamaConfig(head_dim=HEAD_DIM, **_document(dict(parameters), theta))
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.tensor([POSITIONS]))
    theirs = torch.complex(cos, sin)[0, :, : HEAD_DIM // 2]

    table = RotaryTable(read_rope(document), HEAD_DIM, POSITIONS[-1] + 1, CPU)
    ours = table.at(torch.tensor(POSITIONS))[:, 0]
    plain = RotaryTable(Rope(theta), HEAD_DIM, POSITIONS[-1] + 1, CPU)
    ignored = plain.at(torch.tensor(POSITIONS))[:, 0]
    for row, position in enumerate(POSITIONS):
        assert _similarity(ours[row], theirs[row]) > 0.9999, position
        # transformers multiplies positions in float32, which costs it digits far out.
        torch.testing.assert_close(ours[row], theirs[row], atol=2e-3, rtol=0)
    assert _similarity(ignored[-1], theirs[-1]) < 0.99


def _similarity(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = torch.view_as_real(a).flatten(), torch.view_as_real(b).flatten()
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


def test_gemma3_turns_its_two_kinds_of_layers_as_transformers_does() -> None:
    from transformers import Gemma3TextConfig
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding

    parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    }
    embedding = Gemma3RotaryEmbedding(
        Gemma3TextConfig(head_dim=HEAD_DIM, rope_parameters=parameters)
    )
    document = {"rope_parameters": parameters}
    ropes = {
        "full_attention": read_rope(document),
        "sliding_attention": Rope(read_local_theta(document, 1.0)),
    }
    old_keys = {
        "rope_theta": 1e6,
        "rope_local_base_freq": 10_000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    assert read_rope(old_keys) == ropes["full_attention"]
    assert Rope(read_local_theta(old_keys, 1.0)) == ropes["sliding_attention"]
    for kind, rope in ropes.items():
        cos, sin = embedding(torch.zeros(1), torch.tensor([POSITIONS]), kind)
        theirs = torch.complex(cos, sin)[0, :, : HEAD_DIM // 2]
        table = RotaryTable(rope, HEAD_DIM, POSITIONS[-1] + 1, CPU)
        ours = table.at(torch.tensor(POSITIONS))[:, 0]
        torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=0)


def test_a_file_of_the_old_kind_says_the_same() -> None:
    new = {"max_position_embeddings": 99, "rope_parameters": SCALED["llama3"] | {"rope_theta": 7.0}}
    old = {key: value for key, value in SCALED["llama3"].items() if key != "rope_type"}
    document = {"rope_theta": 7.0, "rope_scaling": old | {"type": "llama3"}}
    assert read_rope(document | {"max_position_embeddings": 99}) == read_rope(new)


def test_yarn_takes_its_factor_from_the_two_contexts() -> None:
    """As files of DeepSeek have it: the factor is null."""
    parameters = {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": ORIGINAL}
    scaling = read_rope(_document(parameters, 1e4)).scaling
    assert isinstance(scaling, YarnScaling)
    assert scaling.factor == 4.0


def test_frequencies_in_closed_form() -> None:
    assert Rope(100.0).frequencies(4) == [1.0, pytest.approx(0.1)]
    assert Rope(100.0, LinearScaling(2.0)).frequencies(4) == [0.5, pytest.approx(0.05)]
    # 2 pi positions a turn: 1000 / (2 pi) turns in the original context, far above the bound.
    kept = Rope(1e9, Llama3Scaling(8.0, 1.0, 4.0, 1_000)).frequencies(4)
    assert kept[0] == 1.0
    assert kept[1] == pytest.approx(1e9**-0.5 / 8)


def test_an_attention_factor_lengthens_what_is_turned() -> None:
    rope = Rope(100.0, YarnScaling(2.0, 64, attention_factor=1.5))
    turns = RotaryTable(rope, 8, 40, CPU).at(torch.arange(40))
    torch.testing.assert_close(turns.abs(), torch.full((40, 1, 4), 1.5))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rope(1.0),
        lambda: Rope(float("inf")),
        lambda: LinearScaling(0.0),
        lambda: Llama3Scaling(8.0, 4.0, 1.0, 64),
        lambda: Llama3Scaling(8.0, 1.0, 4.0, 0),
        lambda: YarnScaling(float("nan"), 64, 1.0),
        lambda: YarnScaling(2.0, 64, 1.0, beta_slow=-1.0),
    ],
)
def test_numbers_that_turn_nothing_are_refused(make: Any) -> None:
    with pytest.raises(FileFormatError):
        make()
