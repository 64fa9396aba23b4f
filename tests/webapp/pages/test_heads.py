"""Bytes by who shares keys and values: the catalogue's for the model's own, else closed forms."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from engine.catalog.models import get_model
from engine.catalog.precision import get_format
from webapp.pages.heads_view import (
    KV_FORMATS,
    HeadsQuestion,
    heads_view,
    models_on_offer,
    read_heads_question,
)


@pytest.mark.parametrize("model", models_on_offer())
@pytest.mark.parametrize("kv", KV_FORMATS)
def test_the_models_own_way_is_what_the_catalogue_says(model: str, kv: str) -> None:
    view = heads_view(HeadsQuestion(model, kv=kv))
    bits = get_format(kv).bits
    assert view.own.per_token == pytest.approx(float(get_model(model).kv_bytes_per_token(bits)))
    assert sum(row.own for row in view.rows) == 1
    assert view.rows[0].share == 1
    assert [row.per_token for row in view.rows] == sorted(
        (row.per_token for row in view.rows), reverse=True
    )


def test_llama_3_shares_each_pair_among_four_heads() -> None:
    rows = {row.name: row for row in heads_view(HeadsQuestion()).rows}
    assert rows["GQA"].own
    assert rows["GQA"].per_token == 131_072
    assert rows["MHA"].per_token == 4 * rows["GQA"].per_token
    assert rows["MQA"].per_token == rows["GQA"].per_token / 8
    # DeepSeek-V2's report: the latent of 4 heads and a rotated key of half a head.
    assert rows["MLA"].per_token == 32 * 2 * 128 * 4.5
    assert rows["GQA"].times_less == "4"


def test_a_latent_model_is_compared_with_its_own_heads() -> None:
    rows = {row.name: row for row in heads_view(HeadsQuestion("deepseek-v3")).rows}
    assert rows["MLA"].own
    assert rows["MLA"].numbers == 576
    assert rows["MHA"].numbers == 128 * (192 + 128)


def test_what_is_not_on_offer_becomes_the_default() -> None:
    asked = read_heads_question({"model": "gemma-3-1b", "context_log2": "x", "kv": "fp1"})
    assert asked == HeadsQuestion()
    assert read_heads_question({"context_log2": "99"}).context == 2**20


def test_the_fragment(client: TestClient) -> None:
    text = client.get("/fragments/heads?model=llama-2-13b&context_log2=12").text
    assert "819.2 kB" in text
    assert "3.4\N{NO-BREAK SPACE}GB" in text
    assert "<html" not in text
    assert 'data-own="MHA"' in text
