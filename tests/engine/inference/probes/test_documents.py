"""Documents become JSON that any client can read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from engine.inference.probes.ablations import parse_ablation
from engine.inference.probes.arrays import pack, top_tokens, unpack
from engine.inference.probes.comparison import compare
from engine.inference.probes.documents import HeadSummary, ProbeDocument
from engine.inference.probes.session import ProbeSession
from tests.engine.inference.probes.probes_for_tests import IDS, probe_model, session

pytestmark = pytest.mark.usefixtures("one_thread")

ANSWERS: dict[str, Callable[[ProbeSession], ProbeDocument]] = {
    "embeddings": lambda s: s.model.embeddings.rows(IDS[:3]),
    "neighbours": lambda s: s.model.embeddings.neighbours(IDS[0]),
    "analogy": lambda s: s.model.embeddings.analogy(IDS[:2], IDS[2:3]),
    "embedding_map": lambda s: s.model.embeddings.map(IDS[:5]),
    "attention_overview": lambda s: s.overview(),
    "attention": lambda s: s.attention(1, 3),
    "attention_detail": lambda s: s.attention_detail(1, 3, 8),
    "rotation": lambda s: s.rotation(0, 4),
    "hidden_norms": lambda s: s.hidden_norms(),
    "logit_lens": lambda s: s.logit_lens(4),
    "feed_forward": lambda s: s.feed_forward(0, 4),
    "next_token": lambda s: s.next_token(4),
    "comparison": lambda s: compare(s, [parse_ablation("no-mask")], max_tokens=2),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_every_document_is_valid_json_that_says_what_it_is(kind: str) -> None:
    document = ANSWERS[kind](session())
    plain = document.to_dict()
    assert plain["kind"] == kind
    assert plain["basis"] == "measured"
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_rounding_and_what_is_not_finite() -> None:
    summary = HeadSummary(1, 2, 1 / 3, math.inf, None, math.nan, 123456.78).to_dict()
    assert list(summary.values()) == [1, 2, 0.333333, None, None, None, 123457.0]


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e4])
def test_packed_arrays_keep_three_digits(scale: float) -> None:
    tensor = scale * torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    packed = pack(tensor)
    assert (packed.shape, packed.dtype) == ((7, 5), "float16")
    np.testing.assert_allclose(unpack(packed), tensor, rtol=1e-3, atol=6e-8)
    np.testing.assert_array_equal(unpack(pack(tensor, np.float32)), tensor)


def test_packed_arrays_hold_what_float16_cannot() -> None:
    tensor = torch.tensor([1e6, -math.inf, 0.1])
    assert pack(tensor).dtype == "float32"
    np.testing.assert_array_equal(unpack(pack(tensor)), tensor)
    assert pack(torch.tensor([-math.inf, 2.0])).dtype == "float16"


def test_tokens_of_no_probability_are_left_out() -> None:
    tops = top_tokens(torch.tensor([0.0, -math.inf, 1.0]), 3, str)
    assert [(t.id, t.piece) for t in tops] == [(2, "2"), (0, "0")]
    assert sum(math.exp(t.logprob) for t in tops) == pytest.approx(1)


def test_pieces_are_those_of_the_tokenizer() -> None:
    for token in session().next_token(4).top:
        assert token.piece == probe_model().piece(token.id)
