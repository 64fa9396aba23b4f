"""Probes on models that are no Llama: windows, soft caps, norms of heads, learned positions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from engine.errors import InvalidRequest
from engine.inference.probes.ablations import parse_ablation
from engine.inference.probes.arrays import unpack
from engine.inference.probes.comparison import compare
from engine.inference.probes.model import ProbeModel
from engine.inference.probes.session import ProbeSession
from tests.engine.inference.families_for_tests import WINDOW, Written, write_family
from tests.engine.inference.runs_for_tests import random_ids

pytestmark = pytest.mark.usefixtures("one_thread")

IDS = random_ids(WINDOW + 15, seed=3)


@dataclass(frozen=True)
class Case:
    name: str
    written: Written
    model: ProbeModel


@pytest.fixture(scope="module", params=["mistral", "qwen2", "qwen3", "gemma2", "gemma3", "gpt2"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    written = write_family(request.param, tmp_path_factory.mktemp(request.param))
    return Case(request.param, written, ProbeModel(written.checkpoint))


def _logits(session: ProbeSession) -> Tensor:
    return torch.stack([session.logits(position) for position in range(len(IDS))])


def test_logits_and_attention_are_those_of_transformers(case: Case) -> None:
    session = ProbeSession(case.model, IDS)
    with torch.no_grad():
        expected = case.written.model(torch.tensor([IDS]), output_attentions=True)
    ours = _logits(session)
    known = ours > -math.inf  # ids that no text has are masked
    assert known.any()
    torch.testing.assert_close(
        ours[known], expected.logits[0][:, : ours.shape[1]][known], atol=1e-3, rtol=1e-3
    )
    for layer, weights in enumerate(expected.attentions):
        for head in range(case.model.config.num_attention_heads):
            shown = torch.from_numpy(unpack(session.attention(layer, head).weights).copy()).float()
            torch.testing.assert_close(shown, weights[0, head], atol=2e-3, rtol=2e-3)


def test_every_question_has_an_answer(case: Case) -> None:
    session = ProbeSession(case.model, IDS)
    last = len(IDS) - 1
    window = case.model.config.window_of(0)
    visible = session.attention_detail(0, 1, last).visible
    assert sum(visible) == (len(IDS) if window is None else window)
    activation = session.feed_forward(1, last).top[0]
    assert (activation.gate is None) == (case.name == "gpt2")
    angles = {pair.angle for pair in session.rotation(0, last).pairs}
    assert (angles == {0.0}) == (case.name == "gpt2")
    said = [token.id for token in session.next_token(last, k=5).top]
    assert [token.id for token in session.logit_lens(last).rows[-1].top] == said
    assert compare(session, [parse_ablation("layer:1")], max_tokens=1).kl[-1] > 0


def test_another_scale_is_the_same_surgery_as_on_a_transformers_model(case: Case) -> None:
    if case.name == "gpt2":
        with pytest.raises(InvalidRequest, match="learned"):
            ProbeSession(case.model, IDS, [parse_ablation("no-rotation")])
        return
    attentions = [m for m in case.written.model.modules() if hasattr(m, "scaling")]
    before = [module.scaling for module in attentions]
    for module in attentions:
        module.scaling = case.model.config.hidden_size**-0.5
    try:
        expected = case.written.logits(IDS)
    finally:
        for module, scale in zip(attentions, before, strict=True):
            module.scaling = scale
    ours = _logits(ProbeSession(case.model, IDS, [parse_ablation("hidden-scale")]))
    known = ours > -math.inf
    torch.testing.assert_close(
        ours[known], expected[:, : ours.shape[1]][known], atol=1e-3, rtol=1e-3
    )
