"""GGUF files of other families, written with the ``gguf`` package from what transformers made,
under the names that the package's own tables give: the logits are those of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.load import load_transformer
from engine.inference.model.reference import ReferenceModel
from engine.inference.weights import open_checkpoint
from tests.engine.inference.families_for_tests import Written, write_family
from tests.engine.inference.runs_for_tests import CPU, logits, new_cache, random_ids, sequence
from tests.engine.inference.weights.gguf_files import metadata, write_gguf

pytestmark = pytest.mark.usefixtures("one_thread")

ARCHITECTURES = {
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gpt2": gguf.MODEL_ARCH.GPT2,
}
PRE_TOKENIZERS = {"qwen2": "qwen2", "qwen3": "qwen2", "gpt2": "gpt-2"}


def keys_of(name: str, written: Written) -> dict[str, Any]:
    config = written.model.config
    tokenizer = {key: value for key, value in metadata().items() if key.startswith("tokenizer.")}
    keys: dict[str, Any] = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "attention.head_count": config.num_attention_heads,
    }
    if name == "gpt2":
        keys |= {
            "feed_forward_length": 4 * config.hidden_size,
            "attention.layer_norm_epsilon": config.layer_norm_epsilon,
        }
    else:
        keys |= {
            "feed_forward_length": config.intermediate_size,
            "attention.head_count_kv": config.num_key_value_heads,
            "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
            "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        }
    if name == "qwen3":
        keys |= {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}
    own = {f"{name}.{key}": value for key, value in keys.items()}
    return tokenizer | own | {"tokenizer.ggml.pre": PRE_TOKENIZERS[name]}


def weights_of(name: str, written: Written) -> dict[str, np.ndarray]:
    table = gguf.get_tensor_name_map(ARCHITECTURES[name], written.checkpoint.config.num_layers)
    weights: dict[str, np.ndarray] = {}
    for theirs, tensor in written.model.state_dict().items():
        if theirs == "lm_head.weight" and written.model.config.tie_word_embeddings:
            continue
        ours = table.get_name(theirs, try_suffixes=(".weight", ".bias"))
        assert ours is not None, theirs
        is_conv = name == "gpt2" and ".c_" in theirs and tensor.ndim == 2
        weights[ours] = np.ascontiguousarray((tensor.T if is_conv else tensor).numpy())
    return weights


@pytest.fixture(scope="module", params=ARCHITECTURES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    name = request.param
    written = write_family(name, tmp_path_factory.mktemp(name))
    return name, written, keys_of(name, written), weights_of(name, written)


def test_logits_equal_transformers(case, tmp_path: Path) -> None:
    name, written, keys, weights = case
    path = write_gguf(tmp_path / "m.gguf", keys, weights, architecture=name)
    checkpoint = open_checkpoint(path)
    assert checkpoint.config.family == name
    ids = random_ids(60, seed=2)
    expected = written.logits(ids)
    torch.testing.assert_close(
        ReferenceModel(checkpoint).logits(ids), expected, atol=2e-4, rtol=2e-4
    )
    fast = load_transformer(checkpoint, torch.float32, CPU)
    actual = logits(fast, new_cache(fast), sequence(ids, table=range(4)))["a"]
    torch.testing.assert_close(actual, expected[-1], atol=2e-4, rtol=2e-4)
    assert checkpoint.tokenizer().encode(" the") == written.checkpoint.tokenizer().encode(" the")


def test_quantised_rows_are_the_same_rows(case, tmp_path: Path) -> None:
    """Blocks of q, k and v stay where they belong, in a file that keeps them in one tensor too."""
    name, _, keys, weights = case
    kinds = {
        tensor: gguf.GGMLQuantizationType.Q8_0
        for tensor, weight in weights.items()
        if weight.ndim == 2 and weight.shape[1] % 32 == 0
    }
    path = write_gguf(tmp_path / "q.gguf", keys, weights, quantised=kinds, architecture=name)
    exact = open_checkpoint(write_gguf(tmp_path / "m.gguf", keys, weights, architecture=name))
    rounded = open_checkpoint(path)
    for tensor in exact.names:
        values = exact.tensor(tensor)
        difference = np.abs(rounded.tensor(tensor) - values).max()
        assert difference <= np.abs(values).max() / 127, tensor
    assert kinds


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope.scaling.type", "yarn"),
        ("attention.sliding_window", 128),
        ("use_parallel_residual", True),
        ("some.new.key", 1),
    ],
)
def test_a_key_that_changes_the_model_is_refused_by_name(
    case, key: str, value: object, tmp_path: Path
) -> None:
    name, _, keys, weights = case
    path = write_gguf(
        tmp_path / "m.gguf", keys | {f"{name}.{key}": value}, weights, architecture=name
    )
    with pytest.raises(UnsupportedModel, match=key):
        open_checkpoint(path)


def test_the_keys_of_another_architecture_do_not_count(case, tmp_path: Path) -> None:
    name, _, keys, weights = case
    renamed = {key.replace(f"{name}.", "llama."): value for key, value in keys.items()}
    with pytest.raises(FileFormatError, match=rf"{name}\."):
        open_checkpoint(write_gguf(tmp_path / "m.gguf", renamed, weights, architecture=name))


def test_q_k_and_v_in_one_tensor_have_their_width(tmp_path: Path) -> None:
    written = write_family("gpt2", tmp_path / "hf")
    weights = weights_of("gpt2", written)
    weights["blk.1.attn_qkv.weight"] = weights["blk.1.attn_qkv.weight"][:-1]
    path = write_gguf(tmp_path / "m.gguf", keys_of("gpt2", written), weights, architecture="gpt2")
    with pytest.raises(FileFormatError, match="attn_qkv"):
        open_checkpoint(path)


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3", "phi3", "mamba"])
def test_other_architectures_are_refused_by_name(architecture: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", architecture=architecture)
    with pytest.raises(UnsupportedModel, match="llama, qwen2, qwen3, gpt2"):
        open_checkpoint(path)


def test_text_is_cut_as_qwens_own_tokenizer_cuts_it(tmp_path: Path) -> None:
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    from engine.inference.weights.gguf_tokenizer import _QWEN2_PATTERN

    assert _QWEN2_PATTERN == PRETOKENIZE_REGEX
    tokens, merges = metadata()["tokenizer.ggml.tokens"], metadata()["tokenizer.ggml.merges"]
    tokens[-2:] = ["12", "Ã©"]
    merges = [merge for merge in merges if merge.replace(" ", "") in tokens] + ["1 2", "Ã ©"]
    changes = {"tokens": tokens, "merges": merges, "pre": "qwen2"}
    keys = metadata() | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    tokenizer = open_checkpoint(write_gguf(tmp_path / "t.gguf", keys)).tokenizer()
    assert [tokenizer.piece(i) for i in tokenizer.encode("12")] == ["1", "2"]
    # An e with an accent of its own is one letter.
    assert tokenizer.encode("e\u0301") == tokenizer.encode("\u00e9") == [len(tokens) - 1]
