"""The fragment on the cache's bytes: its numbers, its refusals, its languages."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from webapp.i18n import Language, texts
from webapp.pages.kv_view import KvQuestion, kv_view, model_names, read_kv_question

SAID = texts(Language.ENGLISH)


def test_a_plain_model() -> None:
    view = kv_view(KvQuestion("llama-2-13b", "h100-sxm", "bf16", 12, 3), SAID)
    assert view.per_token == "819.2 kB / 800.0 KiB"
    assert view.one == "3.4 GB / 3.1 GiB"
    assert view.all == "26.8 GB / 25.0 GiB"
    (row,) = view.formulas
    assert row.numbers == "2 × 40 × 128 × 2 B"
    assert (row.layers, row.entry, row.window) == (40, "20,480 B", None)
    assert view.largest == 13
    assert view.fits
    assert view.beyond is None
    assert view.bar.weights + view.bar.cache < view.bar.usable == 100


def test_more_than_fits_and_longer_than_the_model_reads() -> None:
    view = kv_view(KvQuestion("llama-2-13b", "h100-sxm", "bf16", 13, 4), SAID)
    assert not view.fits
    assert view.beyond == 4096
    assert view.bar.weights + view.bar.cache == pytest.approx(100)
    assert view.bar.usable < 100


def test_a_smaller_format_makes_room() -> None:
    wide, narrow = (kv_view(KvQuestion(kv=kv, exponent=12), SAID).largest for kv in ("bf16", "fp8"))
    assert narrow >= 2 * wide


def test_nothing_fits_beside_weights_that_do_not() -> None:
    view = kv_view(KvQuestion("llama-3.1-405b", "h100-sxm"), SAID)
    assert (view.largest, view.chart) == (0, None)


@pytest.mark.parametrize("model", model_names())
def test_every_model_has_an_answer(client: TestClient, model: str) -> None:
    page = client.get(f"/fragments/kv-answer?model={model}&context_log2=14&lang=zh-Hans")
    assert page.status_code == 200
    assert f'data-model="{model}"' in page.text
    assert "每个 token" in page.text


def test_a_query_that_says_nothing_of_use() -> None:
    asked = read_kv_question({"model": "<b>", "context_log2": "99", "batch_log2": "x"})
    assert asked == KvQuestion(exponent=20)


def test_the_form_stands_around_the_answer(client: TestClient) -> None:
    page = client.get("/fragments/kv-bytes?context_log2=11").text
    assert 'value="11"' in page
    assert "It fits" in page
    assert '<option value="h100-sxm" selected>H100 SXM5 80GB</option>' in page


def test_the_key_says_that_it_is_more_than_fits(client: TestClient) -> None:
    fits, over = (client.get(f"/fragments/kv-answer?context_log2={n}").text for n in (10, 13))
    assert "more than fits" not in fits
    assert 'class="swatch over"' in over
    assert "more than fits" in over
