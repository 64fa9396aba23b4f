"""Each ablation against the same surgery on a transformers model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from engine.errors import InvalidRequest
from engine.inference.probes.ablations import Ablation, AblationKind, parse_ablation
from engine.inference.probes.comparison import MAX_CONTINUATION, compare
from engine.inference.probes.session import ProbeSession
from tests.engine.inference.probes.probes_for_tests import IDS, llama, part, probe_model, session

pytestmark = pytest.mark.usefixtures("one_thread")

HEAD_DIM = 16


def _without_head(model: LlamaForCausalLM) -> None:
    def zero(module: torch.nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        mixed = inputs[0].clone()
        mixed[..., 2 * HEAD_DIM : 3 * HEAD_DIM] = 0
        return (mixed,)

    part(model, "model.layers.1.self_attn.o_proj").register_forward_pre_hook(zero)


def _without_layer(model: LlamaForCausalLM) -> None:
    def give_back(module: torch.nn.Module, inputs: tuple[Tensor], output: object) -> object:
        return (inputs[0], *output[1:]) if isinstance(output, tuple) else inputs[0]

    model.model.layers[0].register_forward_hook(give_back)


def _without_rotation(model: LlamaForCausalLM) -> None:
    model.model.rotary_emb.register_forward_hook(
        lambda module, inputs, output: (torch.ones_like(output[0]), torch.zeros_like(output[1]))
    )


def _with_another_scale(model: LlamaForCausalLM) -> None:
    for layer in range(len(model.model.layers)):
        attention = part(model, f"model.layers.{layer}.self_attn")
        setattr(attention, "scaling", model.config.hidden_size**-0.5)  # noqa: B010


SURGERY: dict[str, Callable[[LlamaForCausalLM], None]] = {
    "head:1.2": _without_head,
    "layer:0": _without_layer,
    "no-rotation": _without_rotation,
    "hidden-scale": _with_another_scale,
    "no-mask": lambda model: None,
}


def _logits(model: LlamaForCausalLM, *, masked: bool = True) -> Tensor:
    mask = None if masked else torch.zeros(1, 1, len(IDS), len(IDS))
    with torch.no_grad():
        return model(torch.tensor([IDS]), attention_mask=mask, use_cache=False).logits[0]


def _ours(ablated: ProbeSession) -> Tensor:
    return torch.stack([ablated.logits(position) for position in range(len(IDS))])


@pytest.mark.parametrize("name", SURGERY)
def test_an_ablation_is_the_same_surgery_as_on_a_transformers_model(name: str) -> None:
    model = llama()
    SURGERY[name](model)
    ablated = session(name)
    assert ablated.ablations == (name,)
    assert ablated.overview().ablations == ablated.next_token(3).ablations == (name,)
    expected = _logits(model, masked=name != "no-mask")
    torch.testing.assert_close(_ours(ablated), expected, atol=3e-4, rtol=3e-4)
    assert not torch.allclose(_ours(ablated), _ours(session()), atol=0.05)


def test_several_ablations_work_together() -> None:
    model = llama()
    _without_head(model)
    _without_rotation(model)
    _with_another_scale(model)
    ablated = session("hidden-scale", "head:1.2", "no-rotation", "no-mask")
    expected = _logits(model, masked=False)
    torch.testing.assert_close(_ours(ablated), expected, atol=3e-4, rtol=3e-4)


def test_answers_about_a_layer_are_those_of_the_ablated_model() -> None:
    assert not session("head:1.2").seen(1)["mixed"][2].any()
    assert session("no-mask").seen(0)["weights"].triu(1).any()
    ablated = session("no-rotation")
    assert torch.equal(ablated.seen(1)["q"], ablated.seen(1)["q_rotated"])
    assert {pair.angle for pair in ablated.rotation(1, 9).pairs} == {0.0}
    detail = session("hidden-scale").attention_detail(0, 0, 9)
    assert detail.scale == pytest.approx(64**-0.5, rel=1e-4)


# ── names ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "ablation"),
    [
        ("head:3.12", Ablation(AblationKind.HEAD, 3, 12)),
        ("layer:0", Ablation(AblationKind.LAYER, 0)),
        ("no-rotation", Ablation(AblationKind.ROTATION)),
        ("no-mask", Ablation(AblationKind.MASK)),
        ("hidden-scale", Ablation(AblationKind.SCALE)),
    ],
)
def test_names_are_read_and_written(name: str, ablation: Ablation) -> None:
    assert parse_ablation(name) == ablation
    assert ablation.name == name


@pytest.mark.parametrize(
    "name", ["", "head", "head:1", "head:1.2.3", "layer:", "layer:-1", "no-mask:1", "layer:1 ", "x"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_ablation(name)
    assert caught.value.field == "ablations"


# ── side by side ─────────────────────────────────────────────────────────────────────────────


def test_ablating_nothing_changes_nothing() -> None:
    document = compare(session(), [], max_tokens=3)
    assert document.as_it_is == document.ablated
    assert set(document.kl) == {0.0}
    assert document.same_top == 1


def test_divergence_is_that_of_the_two_distributions() -> None:
    document = compare(session(), [parse_ablation("layer:0")], k=4, max_tokens=1)
    assert document.ablations == ("layer:0",)
    p, q = (_ours(s).double().log_softmax(-1) for s in (session(), session("layer:0")))
    expected = (p.exp() * (p - q)).sum(-1)
    torch.testing.assert_close(torch.tensor(document.kl).double(), expected, atol=1e-4, rtol=1e-4)
    assert min(document.kl) > 0.001
    same = (p.argmax(-1) == q.argmax(-1)).double().mean()
    assert document.same_top == pytest.approx(float(same))
    assert document.ablated.top == session("layer:0").next_token(len(IDS) - 1, k=4).top


def test_texts_go_on_as_each_model_would() -> None:
    document = compare(session(), [parse_ablation("no-rotation")], max_tokens=6)
    expected = probe_model().reference.greedy(IDS, 6, frozenset())
    assert [token.id for token in document.as_it_is.tokens] == expected
    assert document.as_it_is.text == probe_model().text(expected)
    ids = list(IDS)
    for token in document.ablated.tokens:
        ablated = ProbeSession(probe_model(), ids, [parse_ablation("no-rotation")])
        assert token.id == int(ablated.logits(len(ids) - 1).argmax())
        ids.append(token.id)
    assert len(ids) == len(IDS) + 6
    assert document.ablated.tokens != document.as_it_is.tokens


def test_comparisons_that_cannot_be_are_refused() -> None:
    for field, ask in (
        ("ablations", lambda: compare(session("no-mask"), [])),
        ("ablations", lambda: compare(session(), [parse_ablation("layer:9")])),
        ("max_tokens", lambda: compare(session(), [], max_tokens=MAX_CONTINUATION + 1)),
        ("k", lambda: compare(session(), [], k=0)),
    ):
        with pytest.raises(InvalidRequest) as caught:
            ask()
        assert caught.value.field == field
    assert compare(session(), [], max_tokens=0).as_it_is.tokens == ()
