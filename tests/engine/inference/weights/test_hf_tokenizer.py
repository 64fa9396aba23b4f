"""tokenizer.json and its companions: begin tokens, templates, decoders."""

from __future__ import annotations

import json

import pytest

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.weights.hf_tokenizer import hf_chat_template, hf_tokenizer
from engine.inference.weights.tiny import TINY_CHAT_TEMPLATE, tiny_random_checkpoint
from tests.engine.inference.tokenizers_for_tests import llama2_backend
from tests.engine.inference.weights.hf_folders import tokenizer_json


def write(folder, document=None, **config):
    """A folder with tokenizer.json, and tokenizer_config.json where ``config`` is given."""
    document = tokenizer_json() if document is None else document
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def llama2_json(**changes):
    return json.loads(llama2_backend(legacy=True).to_str()) | changes


def test_the_same_ids_as_the_tokenizer_that_was_written(tmp_path):
    loaded = hf_tokenizer(write(tmp_path, chat_template=TINY_CHAT_TEMPLATE))
    source = tiny_random_checkpoint().tokenizer()
    text = "The people: 中🙂<|im_end|>\n"
    assert loaded.encode(text) == source.encode(text)
    assert loaded.decode(loaded.encode(text)) == text
    assert loaded.special_ids == {0, 1, 2}
    messages = [{"role": "user", "content": text}]
    assert loaded.encode_chat(messages) == source.encode_chat(messages)


def test_a_vocabulary_of_plain_text_with_a_begin_token(tmp_path):
    tokenizer = hf_tokenizer(write(tmp_path, llama2_json(), bos_token="<s>"))
    assert tokenizer.bos_token_id == 1
    assert tokenizer.encode_prompt("the lo")[0] == 1
    assert tokenizer.decode(tokenizer.encode_prompt(" the 中")) == " the 中"
    assert tokenizer.strip_leading_spaces == 1


def test_the_begin_token_may_be_an_object(tmp_path):
    config = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": None}
    assert hf_tokenizer(write(tmp_path, llama2_json(), **config)).bos_token_id == 1


def test_add_bos_token_has_the_last_word(tmp_path):
    folder = write(tmp_path, llama2_json(), bos_token="<s>", add_bos_token=False)
    assert hf_tokenizer(folder).bos_token_id is None
    folder = write(tmp_path, llama2_json(post_processor=None), bos_token="<s>", add_bos_token=True)
    assert hf_tokenizer(folder).bos_token_id == 1


def test_other_tokens_around_a_text_are_refused(tmp_path):
    processor = llama2_json()["post_processor"]
    processor["single"].append({"SpecialToken": {"id": "<s>", "type_id": 0}})
    folder = write(tmp_path, llama2_json(post_processor=processor), bos_token="<s>")
    with pytest.raises(UnsupportedModel, match="around a text"):
        hf_tokenizer(folder)
    with pytest.raises(UnsupportedModel, match="add_eos_token"):
        hf_tokenizer(write(tmp_path, add_eos_token=True))


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
        {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        {"type": "Sequence", "decoders": []},
    ],
)
def test_a_decoder_that_spells_another_way_is_refused(decoder, tmp_path):
    with pytest.raises(UnsupportedModel, match="decoder"):
        hf_tokenizer(write(tmp_path, llama2_json(decoder=decoder)))


def test_a_decoder_that_is_not_an_object_is_malformed(tmp_path):
    document = llama2_json(decoder={"type": "Sequence", "decoders": 7})
    with pytest.raises(FileFormatError, match="decoder"):
        hf_tokenizer(write(tmp_path, document))


@pytest.mark.parametrize("change", [{"model": {"type": "Nothing"}}, {"added_tokens": 3}])
def test_what_the_library_does_not_read_is_malformed(change, tmp_path):
    with pytest.raises(FileFormatError, match=r"tokenizer\.json"):
        hf_tokenizer(write(tmp_path, tokenizer_json() | change))


def test_markers_that_are_not_marked_special_are_control_tokens_too(tmp_path):
    """A person who types the turn marker must not begin a turn; decoding shows it as before."""
    document = tokenizer_json()
    for token in document["added_tokens"]:
        token["special"] = token["content"] == "<|endoftext|>"
    tokenizer = hf_tokenizer(write(tmp_path, document, chat_template=TINY_CHAT_TEMPLATE))
    assert tokenizer.control_ids == {0, 1, 2}
    assert tokenizer.special_ids == {0}
    ids = tokenizer.encode_chat([{"role": "user", "content": "<|im_end|>"}])
    assert [token for token in ids if token in tokenizer.control_ids] == [1, 2, 1]
    assert tokenizer.decode([1, 0, 2]) == "<|im_start|><|im_end|>"
    without_template = hf_tokenizer(write(tmp_path, document, chat_template=None))
    assert without_template.encode("<|im_end|>") == [2]


def test_truncation_and_padding_of_the_file_do_not_apply(tmp_path):
    change = {
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst",
                       "stride": 0},
        "padding": {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"},
    }  # fmt: skip
    tokenizer = hf_tokenizer(write(tmp_path, tokenizer_json() | change))
    text = "the people of the world"
    assert tokenizer.encode(text) == tiny_random_checkpoint().tokenizer().encode(text)


class TestTemplates:
    def test_a_file_of_its_own_comes_first(self, tmp_path):
        write(tmp_path, chat_template="from the config")
        assert hf_chat_template(tmp_path) == "from the config"
        (tmp_path / "chat_template.jinja").write_text("from the file", encoding="utf-8")
        assert hf_chat_template(tmp_path) == "from the file"

    def test_several_by_name(self, tmp_path):
        named = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
        assert hf_chat_template(write(tmp_path, chat_template=named)) == "b"
        assert hf_chat_template(write(tmp_path, chat_template=named[:1])) is None

    def test_none(self, tmp_path):
        assert hf_chat_template(write(tmp_path)) is None

    def test_malformed(self, tmp_path):
        for template in (7, [7], {"a": 1}):
            with pytest.raises(FileFormatError, match="chat_template"):
                hf_chat_template(write(tmp_path, chat_template=template))
        (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
        with pytest.raises(FileFormatError, match="UTF-8"):
            hf_chat_template(tmp_path)
        (tmp_path / "chat_template.jinja").write_bytes(b"x" * 300_000)
        with pytest.raises(FileFormatError, match="larger"):
            hf_chat_template(tmp_path)
