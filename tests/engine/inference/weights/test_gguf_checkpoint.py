"""GGUF keys and tensors under our names: the same model as transformers builds from the file."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.weights import open_checkpoint
from engine.inference.weights.default import installed_file
from engine.inference.weights.dequantize import dequantize
from engine.inference.weights.fetch import SMOLLM2
from tests.engine.inference.weights.gguf_files import (
    FFN,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    VOCAB,
    metadata,
    tensors,
    write_gguf,
)


def without(keys: dict, *names: str) -> dict:
    return {key: value for key, value in keys.items() if key not in names}


def test_the_config_is_what_the_keys_say(tmp_path):
    config = open_checkpoint(write_gguf(tmp_path / "A-B-135M.Q4_1.gguf")).config
    assert config.name == "A-B-135M"
    assert (config.num_layers, config.hidden_size, config.intermediate_size) == (
        LAYERS,
        HIDDEN,
        FFN,
    )
    assert (config.num_attention_heads, config.num_kv_heads, config.head_dim) == (4, 2, HEAD_DIM)
    assert (config.vocab_size, config.max_context, config.rope_theta) == (VOCAB, 256, 10_000.0)
    assert config.norm_eps == pytest.approx(1e-5, rel=1e-6)
    assert config.tied_embeddings
    assert config.eos_token_ids == (2,)
    assert config.bos_token_id is None


def test_an_output_tensor_means_untied(tmp_path):
    head = np.random.default_rng(1).standard_normal((VOCAB, HIDDEN), dtype=np.float32)
    path = write_gguf(tmp_path / "t.gguf", weights=tensors() | {"output.weight": head})
    checkpoint = open_checkpoint(path)
    assert not checkpoint.config.tied_embeddings
    np.testing.assert_array_equal(checkpoint.tensor("lm_head"), head)


def test_defaults_of_missing_keys(tmp_path):
    names = ("llama.rope.dimension_count", "llama.vocab_size", "llama.rope.freq_base")
    config = open_checkpoint(write_gguf(tmp_path / "t.gguf", without(metadata(), *names))).config
    assert config.head_dim == HIDDEN // HEADS
    assert config.vocab_size == VOCAB
    assert config.rope_theta == 10_000.0


@pytest.mark.parametrize("layout", ["float32", "float16", "quantised"])
def test_the_weights_are_those_that_transformers_loads(layout, tmp_path):
    """transformers reads the same file with its own code, q and k included."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    weights = tensors(seed=2)
    matrices = [name for name, weight in weights.items() if weight.ndim == 2]
    kinds = {}
    if layout == "float16":
        weights |= {name: weights[name].astype(np.float16) for name in matrices}
    if layout == "quantised":
        kinds = dict.fromkeys(matrices, gguf.GGMLQuantizationType.Q4_1)
        kinds["token_embd.weight"] = gguf.GGMLQuantizationType.Q8_0
    path = write_gguf(tmp_path / "tiny.gguf", weights=weights, quantised=kinds)
    ours = open_checkpoint(path)
    config = LlamaConfig(**load_gguf_checkpoint(path)["config"])
    model = LlamaForCausalLM(config)
    loaded = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    state = {name: value.float().numpy() for name, value in loaded.items()}
    parts = {
        "attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm",
        "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
        "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    }  # fmt: skip
    names = {"embed": "model.embed_tokens.weight", "final_norm": "model.norm.weight"}
    for i in range(LAYERS):
        names |= {f"layers.{i}.{a}": f"model.layers.{i}.{b}.weight" for a, b in parts.items()}
    assert set(ours.names) == names.keys()
    for name, their_name in names.items():
        np.testing.assert_array_equal(ours.tensor(name), state[their_name], err_msg=name)
    assert ours.source_format == {"quantised": "Q4_1", "float16": "F16", "float32": "F32"}[layout]


@pytest.mark.parametrize(("part", "heads"), [("q", HEADS), ("k", KV_HEADS)])
def test_rows_go_from_pairs_to_halves(part, heads, tmp_path):
    """Written out row by row: rotation pair p of a head lies in rows p and p + head_dim / 2."""
    stored = tensors()[f"blk.0.attn_{part}.weight"]
    loaded = open_checkpoint(write_gguf(tmp_path / "t.gguf")).tensor(f"layers.0.{part}")
    for head in range(heads):
        for pair in range(HEAD_DIM // 2):
            row = head * HEAD_DIM
            np.testing.assert_array_equal(loaded[row + pair], stored[row + 2 * pair])
            np.testing.assert_array_equal(
                loaded[row + pair + HEAD_DIM // 2], stored[row + 2 * pair + 1]
            )


def test_raw_blocks_have_the_same_row_order(tmp_path):
    kinds = {"blk.0.attn_q.weight": gguf.GGMLQuantizationType.Q4_1}
    checkpoint = open_checkpoint(write_gguf(tmp_path / "t.gguf", quantised=kinds))
    raw = checkpoint.raw("layers.0.q")
    assert raw.storage.name == "Q4_1"
    assert raw.shape == (HEADS * HEAD_DIM, HIDDEN)
    assert raw.blocks.shape == (HEADS * HEAD_DIM, HIDDEN // 32 * 20)
    np.testing.assert_array_equal(
        dequantize(raw.blocks, raw.storage, raw.shape), checkpoint.tensor("layers.0.q")
    )
    embed = checkpoint.raw("embed")
    assert embed.storage.name == "F32"
    assert embed.blocks.view("<f4").shape == (VOCAB, HIDDEN)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.rope.scaling.type", "linear"),
        ("llama.rope.scaling.factor", 2.0),
        ("llama.rope.scale_linear", 4.0),
        ("llama.attention.sliding_window", 128),
        ("llama.expert_count", 8),
        ("llama.logit_scale", 0.5),
        ("llama.attention.clamp_kqv", 8.0),
        ("llama.something.new", 1),
        ("llama.rope.dimension_count", 8),
        ("llama.attention.value_length", 32),
        ("llama.something.listed", [1, 2]),
        ("split.count", 2),
    ],
)
def test_a_key_that_changes_the_model_is_refused_by_name(key, value, tmp_path):
    path = write_gguf(tmp_path / "t.gguf", metadata() | {key: value})
    with pytest.raises(UnsupportedModel) as caught:
        open_checkpoint(path)
    assert key.removeprefix("llama.") in caught.value.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.rope.scaling.type", "none"),
        ("llama.expert_count", 0),
        ("llama.attention.key_length", HEAD_DIM),
        ("general.quantization_version", 2),
        ("quantize.imatrix.entries_count", 7),
    ],
)
def test_a_key_that_changes_nothing_is_read_over(key, value, tmp_path):
    assert open_checkpoint(write_gguf(tmp_path / "t.gguf", metadata() | {key: value})).config


def test_another_architecture_is_unsupported(tmp_path):
    path = write_gguf(tmp_path / "t.gguf", architecture="mamba")
    with pytest.raises(UnsupportedModel, match=r"general\.architecture"):
        open_checkpoint(path)


@pytest.mark.parametrize("extra", ["rope_freqs.weight", "blk.0.attn_q.bias", "blk.2.attn_q.weight"])
def test_a_tensor_too_many_is_refused_by_name(extra, tmp_path):
    weights = tensors() | {extra: np.zeros((HIDDEN, HIDDEN), np.float32)}
    with pytest.raises(UnsupportedModel, match=r"rope_freqs|layers\.0\.q_bias|layers\.2\.q"):
        open_checkpoint(write_gguf(tmp_path / "t.gguf", weights=weights))


def test_a_missing_tensor_is_named(tmp_path):
    weights = without(tensors(), "blk.1.ffn_up.weight")
    with pytest.raises(FileFormatError, match=r"layers\.1\.up is missing"):
        open_checkpoint(write_gguf(tmp_path / "t.gguf", weights=weights))


def test_a_tensor_of_another_shape_is_named(tmp_path):
    weights = tensors() | {"blk.1.attn_k.weight": np.zeros((HIDDEN, HIDDEN), np.float32)}
    with pytest.raises(FileFormatError, match=r"layers\.1\.k has shape \[64, 64\]"):
        open_checkpoint(write_gguf(tmp_path / "t.gguf", weights=weights))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count", "4"),
        ("llama.attention.head_count", [4, 4]),
        ("llama.attention.head_count_kv", 3),
        ("llama.embedding_length", 0),
        ("llama.block_count", 4_000_000_000),
        ("llama.vocab_size", 511),
        ("llama.rope.freq_base", float("nan")),
        ("llama.attention.layer_norm_rms_epsilon", 0.0),
        ("tokenizer.ggml.eos_token_id", 512),
    ],
)
def test_impossible_numbers_are_refused(key, value, tmp_path):
    with pytest.raises(FileFormatError):
        open_checkpoint(write_gguf(tmp_path / "t.gguf", metadata() | {key: value}))


def test_the_default_file_is_bit_identical_to_the_package():
    """All 272 tensors of the real model lie where the package finds them; three layers, the
    embedding and the last norm are compared weight by weight (the package is slow)."""
    path = installed_file(SMOLLM2)
    assert path is not None
    ours = open_checkpoint(path)
    assert ours.config.num_parameters == 134_515_008
    assert ours.source_format == "Q4_1"
    assert ours.file_bytes == 98_362_432
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert len(theirs) == len(ours.names) == 272
    file_names = {"token_embd": "embed", "output_norm": "final_norm"}
    layer = {
        "attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o", "ffn_gate": "gate",
        "ffn_up": "up", "ffn_down": "down", "attn_norm": "attn_norm", "ffn_norm": "mlp_norm",
    }  # fmt: skip
    for name, tensor in theirs.items():
        parts = name.removesuffix(".weight").split(".")
        ours_name = file_names.get(parts[0]) or f"layers.{parts[1]}.{layer[parts[2]]}"
        stored = ours.tensors[ours_name].stored
        np.testing.assert_array_equal(stored, np.asarray(tensor.data).view(np.uint8).ravel())
        if parts[0] == "blk" and parts[1] not in ("0", "14", "29"):
            continue
        values = ours.tensor(ours_name)
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(values.shape)
        if parts[-1] in ("attn_q", "attn_k"):
            halves = expected.reshape(-1, 32, 2, 576).swapaxes(1, 2)
            expected = halves.reshape(expected.shape)
        np.testing.assert_array_equal(values, expected, err_msg=name)
