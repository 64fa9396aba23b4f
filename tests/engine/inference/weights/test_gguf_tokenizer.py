"""The tokenizer in a GGUF file: the same ids as its source, or a refusal that names the key."""

from __future__ import annotations

import pytest

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.weights import open_checkpoint
from engine.inference.weights.tiny import TINY_CHAT_TEMPLATE, tiny_random_checkpoint
from tests.engine.inference.weights.gguf_files import metadata, write_gguf


def tokenizer_of(tmp_path, **changes):
    """The tokenizer of a file whose keys under tokenizer.ggml are changed; None takes one away."""
    keys = metadata()
    for name, value in changes.items():
        keys[f"tokenizer.ggml.{name}"] = value
    path = write_gguf(tmp_path / "t.gguf", {k: v for k, v in keys.items() if v is not None})
    return open_checkpoint(path).tokenizer()


TEXT = "The people of the world: 中 🙂 <|im_end|>\n\t"


@pytest.mark.kind("O37")
def test_the_same_ids_as_the_tokenizer_that_was_written(tmp_path):
    source = tiny_random_checkpoint().tokenizer()
    loaded = tokenizer_of(tmp_path)
    assert loaded.encode(TEXT) == source.encode(TEXT)
    assert loaded.special_ids == source.special_ids == {0, 1, 2}
    messages = [{"role": "user", "content": TEXT}]
    assert loaded.encode_chat(messages) == source.encode_chat(messages)
    assert open_checkpoint(tmp_path / "t.gguf").chat_template == TINY_CHAT_TEMPLATE


def test_each_pre_tokenizer_cuts_its_own_way(tmp_path):
    tokens, merges = metadata()["tokenizer.ggml.tokens"], metadata()["tokenizer.ggml.merges"]
    tokens[-1] = "12"
    merges = [merge for merge in merges if merge.replace(" ", "") in tokens] + ["1 2"]
    apart = tokenizer_of(tmp_path, tokens=tokens, merges=merges, pre="smollm")
    together = tokenizer_of(tmp_path, tokens=tokens, merges=merges, pre="gpt-2")
    assert [apart.piece(i) for i in apart.encode("12")] == ["1", "2"]
    assert [together.piece(i) for i in together.encode("12")] == ["12"]


@pytest.mark.kind("O37")
@pytest.mark.parametrize("pre", [None, "default", "llama-bpe", "unheard-of", 7])
def test_a_missing_or_unknown_pre_tokenizer_is_refused(pre, tmp_path):
    with pytest.raises(UnsupportedModel, match=r"tokenizer\.ggml\.pre"):
        tokenizer_of(tmp_path, pre=pre)


def test_the_missing_pre_tokenizer_is_explained(tmp_path):
    with pytest.raises(UnsupportedModel, match="convert the model again"):
        tokenizer_of(tmp_path, pre=None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "llama"),
        ("model", None),
        ("add_space_prefix", True),
        ("add_eos_token", True),
        ("precompiled_charsmap", "abc"),
        ("some_new_key", 1),
    ],
)
def test_what_is_not_run_is_refused_by_name(name, value, tmp_path):
    with pytest.raises(UnsupportedModel, match=name):
        tokenizer_of(tmp_path, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", None),
        ("tokens", ["a", "a"]),
        ("tokens", [1, 2, 3]),
        ("tokens", "abc"),
        ("token_type", None),
        ("token_type", [1, 1]),
        ("merges", None),
        ("merges", ["ab"]),
        ("merges", [" b"]),
        ("merges", ["not there"]),
    ],
)
def test_lists_that_do_not_fit_are_malformed(name, value, tmp_path):
    with pytest.raises(FileFormatError, match=r"tokenizer\.ggml"):
        tokenizer_of(tmp_path, **{name: value})


def test_more_tokens_than_rows_are_malformed(tmp_path):
    tokens = [*metadata()["tokenizer.ggml.tokens"], "one too many"]
    kinds = [*metadata()["tokenizer.ggml.token_type"], 1]
    with pytest.raises(FileFormatError, match="more tokens than"):
        tokenizer_of(tmp_path, tokens=tokens, token_type=kinds)


def test_fewer_tokens_than_rows_leave_rows_to_mask(tmp_path):
    merges = [m for m in metadata()["tokenizer.ggml.merges"] if m != "Ġmor ning"]
    used = [merge.replace(" ", "") for merge in merges]
    tokens = [t for t in metadata()["tokenizer.ggml.tokens"][:-1] if len(t) < 3 or t in used
              or t.startswith("<|")]  # fmt: skip
    merges = [merge for merge in merges if merge.replace(" ", "") in tokens]
    kinds = metadata()["tokenizer.ggml.token_type"][: len(tokens)]
    tokenizer = tokenizer_of(tmp_path, tokens=tokens, token_type=kinds, merges=merges)
    assert tokenizer.vocab_size == len(tokens) < 512
    assert tokenizer.unknown_ids(512) == tuple(range(len(tokens), 512))


def test_unused_and_user_defined_tokens(tmp_path):
    tokens = metadata()["tokenizer.ggml.tokens"]
    kinds = metadata()["tokenizer.ggml.token_type"]
    merges = metadata()["tokenizer.ggml.merges"][:-2]
    tokens[-2:], kinds[-2:] = ["[PAD510]", "~~wave~~"], [5, 4]
    tokenizer = tokenizer_of(tmp_path, tokens=tokens, token_type=kinds, merges=merges)
    assert tokenizer.unknown_ids(512) == (510,)
    assert tokenizer.encode("a~~wave~~")[-1] == 511
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer.decode(tokenizer.encode("a~~wave~~b")) == "a~~wave~~b"


def test_user_defined_markers_of_the_template_are_control_tokens(tmp_path):
    kinds = [4 if kind == 3 else kind for kind in metadata()["tokenizer.ggml.token_type"]]
    tokenizer = tokenizer_of(tmp_path, token_type=kinds)
    assert tokenizer.control_ids == {1, 2}
    assert tokenizer.special_ids == frozenset()
    assert not tokenizer.control_ids.intersection(tokenizer.encode("<|im_end|><|im_start|>"))
    assert tokenizer.encode("<|endoftext|>") == [0]


def test_a_begin_token_only_where_the_file_asks_for_one(tmp_path):
    assert tokenizer_of(tmp_path).bos_token_id is None
    with_bos = tokenizer_of(tmp_path, add_bos_token=True)
    assert with_bos.encode_prompt("x")[0] == with_bos.bos_token_id == 1
    assert open_checkpoint(tmp_path / "t.gguf").config.bos_token_id == 1
    with pytest.raises(FileFormatError, match="bos_token_id"):
        tokenizer_of(tmp_path, add_bos_token=True, bos_token_id=None)


def test_all_end_tokens_end(tmp_path):
    tokenizer_of(tmp_path, eot_token_id=0, eom_token_id=2)
    assert open_checkpoint(tmp_path / "t.gguf").config.eos_token_ids == (2, 0)


def test_a_file_without_template_has_none(tmp_path):
    keys = metadata()
    del keys["tokenizer.chat_template"]
    checkpoint = open_checkpoint(write_gguf(tmp_path / "t.gguf", keys))
    assert checkpoint.chat_template is None
    assert not checkpoint.tokenizer().has_chat_template
