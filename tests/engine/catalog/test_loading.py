from __future__ import annotations

from importlib.resources import files

import pytest

from engine.catalog.loading import Table, read_catalogue
from engine.catalog.model_reading import read_model
from engine.errors import FileFormatError

GOOD: dict[str, object] = {
    "id": "x",
    "arch": "dense-gqa",
    "num_layers": 1,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 4,
    "intermediate_size": 16,
    "vocab_size": 32,
    "tied_embeddings": True,
    "max_context": 64,
    "mlp": "swiglu",
    "qkv_bias": False,
    "nominal_params": "tiny",
    "source": "here",
    "verified": True,
}


def test_the_data_files_are_packaged() -> None:
    data = files("engine.catalog") / "data"
    for kind in ("models", "hardware"):
        names = [item.name for item in (data / kind).iterdir() if item.name.endswith(".toml")]
        assert len(names) == len(list(read_catalogue(kind))) > 5


def test_a_good_entry_is_read() -> None:
    assert read_model(Table(dict(GOOD), "test"), "Family").family == "Family"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_layers": "two"}, "num_layers"),
        ({"num_layers": True}, "num_layers"),
        ({"num_layers": -1}, "num_layers"),
        ({"num_layers": 1.5}, "num_layers"),
        ({"tied_embeddings": 1}, "tied_embeddings"),
        ({"source": None}, "source"),
        ({"num_layer": 2}, "num_layer"),
        ({"attention": "global"}, "attention"),
        ({"attention": {"type": "psychic"}}, "type"),
        ({"attention": {"type": "sliding"}}, "window"),
        ({"attention": {"type": "sliding", "window": 8, "windows": 9}}, "windows"),
        ({"moe": {"num_experts": 8}}, "top_k"),
        ({"mla": {}}, "q_lora_rank"),
        ({"extras": {"qk_norms": "per_head"}}, "qk_norms"),
    ],
)
def test_a_slip_in_an_entry_names_the_field(changes: dict[str, object], field: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        read_model(Table({**GOOD, **changes}, "test"), "Family")
    assert caught.value.field == field


def test_numbers_must_be_finite_and_positive() -> None:
    table = Table({"a": 0, "b": float("inf"), "c": float("nan"), "d": "1", "e": True}, "test")
    for key in "abcde":
        with pytest.raises(FileFormatError):
            table.number(key)


def test_lists_must_hold_one_kind() -> None:
    table = Table({"texts": ["a", 1], "numbers": [1, "a"], "tables": [{}, 1]}, "test")
    with pytest.raises(FileFormatError):
        table.texts("texts")
    with pytest.raises(FileFormatError):
        table.integers("numbers")
    with pytest.raises(FileFormatError):
        list(table.tables("tables"))
    with pytest.raises(FileFormatError):
        table.numbers("absent")
