"""What the catalogue and the simulator say about a loaded model is what the model itself says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from engine.catalog.model_spec import ModelSpec
from engine.catalog.models import get_model
from engine.inference.kv_cache.make import kv_bytes_per_token
from engine.inference.model.architecture import architecture_of
from engine.inference.weights.hf_config import hf_config
from tests.engine.inference.families_for_tests import FAMILIES, write_family

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_and_cache_bytes_are_those_of_the_model(name: str, tmp_path: Path) -> None:
    written = write_family(name, tmp_path)
    config = written.checkpoint.config
    spec = ModelSpec.dense(**architecture_of(config))
    assert spec.num_parameters == written.model.num_parameters()
    assert spec.kv_bytes_per_token(32) == kv_bytes_per_token(config, torch.float32)
    windows = [config.window_of(layer) for layer in range(config.num_layers)]
    long = 1_000
    assert spec.kv_cache_bytes(long, 32) == sum(
        2 * config.kv_size * 4 * min(long, window or long) for window in windows
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_it_survives_being_sent(name: str, tmp_path: Path) -> None:
    sent = architecture_of(write_family(name, tmp_path).checkpoint.config)
    assert json.loads(json.dumps(sent)) == sent
    assert all(type(value) in (str, int, bool, type(None)) for value in sent.values())


# Whose published structure is what transformers builds when it is told nothing.
@pytest.mark.parametrize(
    ("config_class", "model_class", "model_id"),
    [
        ("Gemma2Config", "Gemma2ForCausalLM", "gemma-2-2b"),
        ("GPT2Config", "GPT2LMHeadModel", "gpt2"),
    ],
)
def test_a_published_config_gives_the_catalogues_own_entry(
    config_class: str, model_class: str, model_id: str, tmp_path: Path
) -> None:
    import transformers

    getattr(transformers, config_class)(architectures=[model_class]).save_pretrained(tmp_path)
    config = hf_config(json.loads((tmp_path / "config.json").read_text()), {}, model_id)
    ours = ModelSpec.dense(**architecture_of(config))
    known = get_model(model_id)
    about = ("family", "nominal_params", "source", "notes", "verified")
    assert ours == dataclasses.replace(known, **{field: getattr(ours, field) for field in about})
    assert ours.num_parameters == config.num_parameters
