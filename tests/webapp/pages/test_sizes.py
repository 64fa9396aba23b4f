"""Sizes of weights: parameters times the bits of a format, scales counted."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from engine.catalog.models import get_model
from webapp.pages.sizes_view import sizes_of, sizes_view


def test_llama_2_7b_has_fewer_than_seven_billion_parameters() -> None:
    sizes = {size.format: size for size in sizes_of(get_model("llama-2-7b"))}
    parameters = 6_738_415_616
    assert sizes["fp32"].exact == 4 * parameters
    assert sizes["int4"].exact == parameters / 2
    # 32 weights of 4 bits, a scale and an offset of 16 bits each: 20 bytes for 32.
    assert sizes["q4_1"].exact == pytest.approx(parameters * 20 / 32)
    assert sizes["q4_1"].bits_label == "5"
    assert sizes["fp32"].share == 1


def test_an_unknown_model_becomes_the_default() -> None:
    assert sizes_view({"model": "none"}).model.id == "llama-2-7b"


def test_the_fragment(client: TestClient) -> None:
    text = client.get("/fragments/sizes?model=llama-2-13b").text
    assert "13.02" in text
    assert "<html" not in text
    assert "26.0\N{NO-BREAK SPACE}GB\N{NO-BREAK SPACE}/ 24.2\N{NO-BREAK SPACE}GiB" in text
