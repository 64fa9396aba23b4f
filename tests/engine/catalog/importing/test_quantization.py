"""Quantized checkpoints: what their files say, in bits and bytes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from engine.catalog.importing.imported import ImportedModel, import_model
from engine.catalog.importing.kept import Part, read_kept
from engine.errors import InvalidRequest, UnsupportedModel
from tests.engine.catalog.importing.released import released

GPTQ = {
    "bits": 4,
    "group_size": 128,
    "quant_method": "gptq",
    "desc_act": False,
    "sym": True,
    "damp_percent": 0.1,
}


def _imported(model_id: str, quantization: dict[str, Any] | None) -> ImportedModel:
    return import_model(released(model_id, quantization_config=quantization))


def test_without_quantization_all_weights_have_the_files_dtype() -> None:
    found = import_model(released("llama-2-7b"))
    assert (found.weights.format, found.weights.others) == ("fp16", "fp16")
    assert found.weights.format_for(found.spec) == "fp16"
    assert found.weights.weight_bytes(found.spec) == 2 * found.spec.num_parameters
    assert import_model(released("gemma-2-2b")).weights.format == "fp32"


# Of the model cards: "the size of the checkpoint is 12.8 GiB" (gpt-oss-20b), 60.8 GiB (120b).
@pytest.mark.parametrize(("layers", "experts", "gib"), [(24, 32, 12.8), (36, 128, 60.8)])
def test_gpt_oss_is_as_large_as_published(layers: int, experts: int, gib: float) -> None:
    kinds = ["sliding_attention", "full_attention"] * (layers // 2)
    found = import_model(
        released(
            "gpt-oss-20b", num_hidden_layers=layers, num_local_experts=experts, layer_types=kinds
        )
    )
    assert found.weights.weight_bytes(found.spec) / 2**30 == pytest.approx(gib, abs=0.05)


def test_fp8_keeps_embeddings_head_and_router_and_multiplies_in_fp8() -> None:
    found = import_model(released("deepseek-v3"))
    spec, weights = found.spec, found.weights
    assert (weights.format, weights.others, weights.activations) == ("fp8-b128", "bf16", "fp8")
    counts = spec.parameters
    router = 58 * 256 * 7168
    norms = (2 * 61 + 1) * 7168
    kept = counts.embedding + counts.lm_head + router + norms
    expected = 16 * kept + (8 + 32 / 128**2) * (spec.num_parameters - kept)
    assert float(weights.bits(spec)) == pytest.approx(expected, rel=1e-12)
    assert weights.format_for(spec) == f"mixed-{expected / spec.num_parameters:.3f}"


def test_deepseek_v4_has_4_bit_experts_beside_fp8() -> None:
    found = import_model(released("deepseek-v4-flash"))
    assert (found.weights.format, found.weights.experts) == ("fp8-b128", "mxfp4")
    bits = float(found.weights.bits(found.spec)) / found.spec.num_parameters
    assert 4.25 < bits < 4.5


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_awq_and_gptq_keep_the_16_bit_head(method: str) -> None:
    found = _imported("llama-3.1-8b", {**GPTQ, "quant_method": method})
    spec = found.spec
    counts = spec.parameters
    norms = (2 * spec.num_layers + 1) * spec.hidden_size
    kept = counts.embedding + counts.lm_head + norms
    expected = 16 * kept + (4 + 20 / 128) * (spec.num_parameters - kept)
    assert float(found.weights.bits(spec)) == pytest.approx(expected, rel=1e-12)
    assert found.weights.activations is None


def _groups(weights: dict[str, Any], inputs: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        **more,
    }


INT4 = {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group", "symmetric": True}
FP4 = {"num_bits": 4, "type": "float", "group_size": 16}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
BLOCK = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}


@pytest.mark.parametrize(
    ("weights", "inputs", "stored", "activations"),
    [
        (INT4, None, "int4-g32-sym", None),
        ({**INT4, "symmetric": False, "group_size": 128}, None, "int4-g128", None),
        (FP4, FP4, "nvfp4", "nvfp4"),
        ({**FP4, "group_size": 32}, None, "mxfp4", None),
        (FP8, {"num_bits": 8, "type": "float", "strategy": "token"}, "fp8", "fp8"),
        (INT8, {"num_bits": 8, "type": "int", "strategy": "token"}, "int8", "int8"),
        (BLOCK, None, "fp8-b128", None),
    ],
)
def test_compressed_tensors(
    weights: dict[str, Any], inputs: dict[str, Any] | None, stored: str, activations: str | None
) -> None:
    found = _imported("llama-3.1-8b", _groups(weights, inputs)).weights
    assert (found.format, found.activations, found.kv) == (stored, activations, None)


def test_a_cache_in_8_bits_is_told() -> None:
    scheme = {"num_bits": 8, "type": "float", "dynamic": False}
    config = _groups(FP4, FP4, quant_method="modelopt", quant_algo="NVFP4", kv_cache_scheme=scheme)
    assert _imported("llama-3.1-8b", config).weights.kv == "fp8"


def test_parts_left_out_layer_by_layer_take_16_bits() -> None:
    every = [f"model.layers.{layer}.self_attn*" for layer in range(32)]
    by_layer = _imported("llama-3.1-8b", _groups(FP4, FP4, ignore=["lm_head", *every]))
    at_once = _imported("llama-3.1-8b", _groups(FP4, FP4, ignore=["lm_head", "re:.*self_attn.*"]))
    none = _imported("llama-3.1-8b", _groups(FP4, FP4))
    spec = none.spec
    attention = 32 * 4096 * (2 * 4096 + 2 * 1024)
    assert by_layer.weights.bits(spec) == at_once.weights.bits(spec)
    assert by_layer.weights.bits(spec) - none.weights.bits(spec) == attention * (16 - 4.5)
    half = _imported("llama-3.1-8b", _groups(FP4, FP4, ignore=["lm_head", *every[:16]]))
    assert half.weights.bits(spec) - none.weights.bits(spec) == attention * (16 - 4.5) / 2


@pytest.mark.parametrize(
    ("entry", "layer", "parts"),
    [
        ("lm_head", None, {Part.HEAD}),
        ("model.embed_tokens", None, {Part.EMBEDDING}),
        ("language_model.model.layers.3*", 3, {*Part} - {Part.HEAD, Part.EMBEDDING}),
        ("model.layers.1.", 1, {*Part} - {Part.HEAD, Part.EMBEDDING}),
        ("model.layers.*.mlp.router", None, {Part.ROUTER}),
        ("re:.*shared_experts.*", None, {Part.SHARED_EXPERTS}),
        ("re:.*mlp\\.(gate|up|gate_up|down)_proj.*", None, {Part.DENSE_MLP}),
        ("*.mlp.shared_expert.*", None, {Part.SHARED_EXPERTS}),
        ("model.layers.7.input_layernorm", 7, set()),
        ("model.layers.61.eh_proj", None, set()),
        ("model.visual*", None, set()),
        ("mtp.layers.0*", None, set()),
    ],
)
def test_names_of_modules(entry: str, layer: int | None, parts: set[Part]) -> None:
    kept = read_kept(entry, num_layers=61)
    assert kept is not None
    assert (kept.layer, kept.parts) == (layer, parts)


@pytest.mark.parametrize(
    "entry", ["model.layers.3.self_attn.q_proj", "mlp.up_proj", "", "*", "re:(a+)+$", "x" * 4000]
)
def test_other_names_are_refused(entry: str) -> None:
    assert read_kept(entry, num_layers=61) is None
    with pytest.raises(UnsupportedModel) as caught:
        _imported("llama-3.1-8b", _groups(FP4, None, ignore=[entry]))
    assert caught.value.field == "config.quantization_config.ignore"


NOT_UNDERSTOOD: list[tuple[dict[str, Any], str]] = [
    ({"quant_method": "quip"}, "quant_method"),
    ({**GPTQ, "bits": 3}, "bits"),
    ({**GPTQ, "group_size": 77}, "bits"),
    ({**GPTQ, "dynamic": {"layer.1": {"bits": 8}}}, "dynamic"),
    ({**GPTQ, "lm_head": True}, "lm_head"),
    ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "weight_block_size"),
    ({"quant_method": "fp8", "fmt": "e5m2"}, "fmt"),
    (_groups({**FP4, "group_size": 64}, None), "config_groups.group_0.weights.num_bits"),
    (_groups(INT8, None, quant_algo="MIXED_PRECISION"), "quant_algo"),
    (_groups(INT8, None, sparsity_config={"format": "sparse-24"}), "sparsity_config"),
]


@pytest.mark.parametrize(("config", "key"), NOT_UNDERSTOOD, ids=range(len(NOT_UNDERSTOOD)))
def test_other_quantization_is_refused_by_its_key(config: dict[str, Any], key: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        _imported("llama-3.1-8b", config)
    assert caught.value.field == f"config.quantization_config.{key}"


def test_two_groups_of_formats_are_refused() -> None:
    config = _groups(FP4, None)
    config["config_groups"]["group_1"] = config["config_groups"]["group_0"]
    with pytest.raises(UnsupportedModel) as caught:
        _imported("llama-3.1-8b", config)
    assert caught.value.field == "config.quantization_config.config_groups.group_1"


@pytest.mark.parametrize(
    "value", [7, "fp8", {"quant_method": 3}, {"quant_method": "gptq", "bits": True}]
)
def test_quantization_of_the_wrong_type_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        import_model(released("llama-3.1-8b", quantization_config=value))


def test_long_lists_are_read_quickly() -> None:
    names = [f"model.layers.{layer % 4000}.self_attn*" for layer in range(50_000)]
    config = _groups(FP4, None, ignore=names)
    assert len(json.dumps(config)) > 10**6
    start = time.process_time()
    _imported("llama-3.1-8b", config)
    assert time.process_time() - start < 2
