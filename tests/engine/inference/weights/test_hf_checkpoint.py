"""Hugging Face folders: shards, ties and configs, against what transformers itself writes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.weights import open_checkpoint
from tests.engine.inference.weights.hf_folders import (
    CONFIG,
    HIDDEN,
    LAYERS,
    VOCAB,
    tensors,
    tokenizer_json,
    write_folder,
    write_index,
    write_shards,
)

OUR_PARTS = {
    "attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm",
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
    "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip


def names() -> dict[str, str]:
    mapping = {"embed": "model.embed_tokens.weight", "final_norm": "model.norm.weight"}
    for i in range(LAYERS):
        mapping |= {f"layers.{i}.{a}": f"model.layers.{i}.{b}.weight" for a, b in OUR_PARTS.items()}
    return mapping


def head(seed: int = 9) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((VOCAB, HIDDEN), dtype=np.float32)


def test_a_folder_in_one_file(tmp_path):
    checkpoint = open_checkpoint(write_folder(tmp_path / "my-model"))
    config = checkpoint.config
    assert (config.name, config.family) == ("my-model", "llama")
    assert config.rope_theta == 100_000.0
    assert config.norm_eps == 1e-5
    assert (config.max_context, config.head_dim, config.eos_token_ids) == (256, 8, (2,))
    assert config.tied_embeddings
    assert checkpoint.source_format == "F32"
    assert checkpoint.file_bytes == (tmp_path / "my-model/model.safetensors").stat().st_size
    weights = tensors()
    assert set(checkpoint.names) == names().keys()
    for ours, theirs in names().items():
        np.testing.assert_array_equal(checkpoint.tensor(ours), weights[theirs])
    assert checkpoint.tokenizer().encode(" the") == checkpoint.tokenizer().encode_prompt(" the")


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_that_transformers_wrote(tied, tmp_path):
    """Today's transformers writes ``dtype`` and ``rope_parameters`` where it used to write other
    keys; its random weights come back exactly."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "max_position_embeddings", "vocab_size")  # fmt: skip
    config = LlamaConfig(
        **{key: CONFIG[key] for key in keys},
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5},
        dtype="bfloat16",
    )
    model = LlamaForCausalLM(config).bfloat16()
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.source_format == "BF16"
    assert checkpoint.config.rope_theta == 5e5
    assert checkpoint.config.tied_embeddings is tied
    assert checkpoint.config.num_parameters == model.num_parameters()
    state = model.state_dict()
    for ours, theirs in (names() if tied else names() | {"lm_head": "lm_head.weight"}).items():
        np.testing.assert_array_equal(checkpoint.tensor(ours), state[theirs].float().numpy())


def test_shards_hold_the_same_as_one_file(tmp_path):
    folder = write_folder(tmp_path)
    whole = {name: open_checkpoint(folder).tensor(name) for name in names()}
    write_shards(folder, tensors(), 3)
    sharded = open_checkpoint(folder)
    for name, weight in whole.items():
        np.testing.assert_array_equal(sharded.tensor(name), weight)
    sizes = [path.stat().st_size for path in folder.glob("*.safetensors")]
    assert len(sizes) == 3
    assert sharded.file_bytes == sum(sizes)


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "model.bin",
        "a\\b.safetensors", 7, None, ["a.safetensors"],
    ],
)  # fmt: skip
def test_a_shard_is_a_plain_file_name(name, tmp_path):
    folder = write_folder(tmp_path / "inside")
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    write_index(folder, dict.fromkeys(tensors(), name))
    with pytest.raises(FileFormatError, match="plain"):
        open_checkpoint(folder)


def test_shards_hold_exactly_what_the_index_says(tmp_path):
    folder = write_folder(tmp_path)
    weight_map = write_shards(folder, tensors(), 2)
    write_index(folder, dict(list(weight_map.items())[1:]))
    with pytest.raises(FileFormatError, match="other tensors"):
        open_checkpoint(folder)
    write_index(folder, weight_map | {"model.norm.weight": "missing.safetensors"})
    with pytest.raises(FileFormatError, match="missing"):
        open_checkpoint(folder)


@pytest.mark.parametrize("weights", [None, {}], ids=["no weights", "pickles only"])
def test_pickles_are_never_read(weights, tmp_path):
    folder = write_folder(tmp_path)
    (folder / "model.safetensors").unlink()
    if weights is not None:
        (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(FileFormatError, match=r"model\.safetensors"):
        open_checkpoint(folder)


class TestTied:
    """With tied embeddings either name stands for both; nothing is dropped without a word."""

    @pytest.mark.kind("O38")
    def test_only_the_head_is_stored(self, tmp_path):
        weights = tensors()
        weights["lm_head.weight"] = weights.pop("model.embed_tokens.weight")
        checkpoint = open_checkpoint(write_folder(tmp_path, weights=weights))
        np.testing.assert_array_equal(checkpoint.tensor("embed"), weights["lm_head.weight"])
        assert "lm_head" not in checkpoint.names

    def test_both_are_stored_and_equal(self, tmp_path):
        weights = tensors()
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
        checkpoint = open_checkpoint(write_folder(tmp_path, weights=weights))
        np.testing.assert_array_equal(checkpoint.tensor("embed"), weights["lm_head.weight"])

    def test_both_are_stored_and_differ(self, tmp_path):
        folder = write_folder(tmp_path, weights=tensors() | {"lm_head.weight": head()})
        with pytest.raises(FileFormatError, match="tie_word_embeddings"):
            open_checkpoint(folder)

    @pytest.mark.kind("O38")
    def test_untied_without_a_head_is_an_error_that_names_it(self, tmp_path):
        folder = write_folder(tmp_path, CONFIG | {"tie_word_embeddings": False})
        with pytest.raises(FileFormatError, match="lm_head is missing"):
            open_checkpoint(folder)

    def test_untied_with_a_head(self, tmp_path):
        config = CONFIG | {"tie_word_embeddings": False}
        folder = write_folder(tmp_path, config, tensors() | {"lm_head.weight": head()})
        np.testing.assert_array_equal(open_checkpoint(folder).tensor("lm_head"), head())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architectures", ["MixtralForCausalLM"]),
        ("architectures", ["LlamaForCausalLM", "Other"]),
        ("architectures", None),
        ("attention_bias", True),
        ("mlp_bias", True),
        ("hidden_act", "gelu"),
        ("rope_scaling", {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}),
        ("rope_parameters", {"rope_type": "proportional", "factor": 4.0}),
        ("rope_parameters", {"rope_type": "dynamic", "factor": 2.0}),
        ("rope_scaling", {"type": "linear", "rope_type": "yarn", "factor": 2.0}),
        ("rope_scaling", {"type": "linear", "factor": 2.0, "beta_fast": 32}),
        ("rope_scaling", {"type": ["linear"], "factor": 2.0}),
        ("rope_parameters", {"full_attention": {"rope_type": "default"}}),
        ("rope_parameters", {"rope_type": "default", "partial_rotary_factor": 0.5}),
        ("rope_interleaved", True),
        ("sliding_window", 128),
        ("quantization_config", {"quant_method": "gptq"}),
        ("partial_rotary_factor", 0.5),
        ("pretraining_tp", 2),
        ("layer_types", ["sliding_attention"]),
        ("a_key_of_next_year", 1.5),
    ],
)
def test_a_key_that_changes_the_model_is_refused_by_name(key, value, tmp_path):
    folder = write_folder(tmp_path, CONFIG | {key: value})
    with pytest.raises(UnsupportedModel, match=key):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_attention_heads", "4"), ("num_attention_heads", 0), ("num_attention_heads", True),
        ("num_key_value_heads", 3), ("hidden_size", None), ("hidden_size", 2**70),
        ("vocab_size", -1), ("rms_norm_eps", "1e-5"), ("rms_norm_eps", 0), ("rope_theta", 10**400),
        ("tie_word_embeddings", 1), ("eos_token_id", "2"), ("eos_token_id", 512),
        ("rope_scaling", "linear"), ("rope_parameters", {"rope_theta": 7.0}),
        ("rope_scaling", {"type": "linear"}), ("rope_scaling", {"type": "linear", "factor": -1.0}),
        ("rope_scaling", {"type": "yarn", "factor": "4"}),
        ("rope_scaling", {"type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
                          "high_freq_factor": 1.0, "original_max_position_embeddings": 64}),
        ("model_type", "mistral"),
    ],
)  # fmt: skip
def test_impossible_values_are_refused(key, value, tmp_path):
    folder = write_folder(tmp_path, CONFIG | {key: value})
    with pytest.raises(FileFormatError):
        open_checkpoint(folder)


def test_mistral_without_a_window_is_the_same_architecture(tmp_path):
    config = CONFIG | {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    folder = write_folder(tmp_path, config | {"sliding_window": None, "head_dim": 8})
    assert open_checkpoint(folder).config.family == "mistral"


def test_end_tokens_of_the_generation_config_come_first(tmp_path):
    folder = write_folder(tmp_path, generation_config={"eos_token_id": [2, 0], "do_sample": True})
    assert open_checkpoint(folder).config.eos_token_ids == (2, 0)


def test_stored_rotary_frequencies_are_read_over(tmp_path):
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)}
    assert open_checkpoint(write_folder(tmp_path, weights=tensors() | extra)).names


def test_an_extra_tensor_is_refused_by_name(tmp_path):
    extra = {"model.layers.0.self_attn.q_proj.bias": np.ones(32, np.float32)}
    with pytest.raises(UnsupportedModel, match=r"layers\.0\.q_bias"):
        open_checkpoint(write_folder(tmp_path, weights=tensors() | extra))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"a": NaN}', b"[" * 10_000])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_malformed_json_is_refused(name, content, tmp_path):
    folder = write_folder(tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(FileFormatError, match=name):
        open_checkpoint(folder).tokenizer()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_missing_file_is_named(name, tmp_path):
    folder = write_folder(tmp_path)
    (folder / name).unlink()
    with pytest.raises(FileFormatError, match=name):
        open_checkpoint(folder)


def test_a_path_where_nothing_is(tmp_path):
    with pytest.raises(FileFormatError, match="no file or folder"):
        open_checkpoint(tmp_path / "nothing")
