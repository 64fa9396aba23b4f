"""What a session shows, against transformers, the engine's own fast path, and closed forms."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.errors import InvalidRequest
from engine.inference.probes.ablations import parse_ablation
from engine.inference.probes.arrays import unpack
from engine.inference.probes.session import MAX_TOKENS, ProbeSession
from engine.inference.probes.summaries import MAP_SIZE
from tests.engine.inference.probes.probes_for_tests import IDS, llama, part, probe_model, session
from tests.engine.inference.runs_for_tests import logits, new_cache, sequence, tiny

pytestmark = pytest.mark.usefixtures("one_thread")

LAYERS, HEADS, KV_HEADS = 2, 4, 2
LAST = len(IDS) - 1


def _close(ours: Tensor | np.ndarray, other: Tensor | np.ndarray, tolerance: float = 2e-4) -> None:
    np.testing.assert_allclose(np.asarray(ours), np.asarray(other), atol=tolerance, rtol=tolerance)


@cache
def _oracle() -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], Tensor]:
    """Attention weights ``[H, t, t]`` a layer, hidden states ``[t, m]``, logits ``[t, v]``."""
    with torch.no_grad():
        output = llama()(
            torch.tensor([IDS]), output_attentions=True, output_hidden_states=True, use_cache=False
        )
    attentions = tuple(layer[0] for layer in output.attentions)
    return attentions, tuple(state[0] for state in output.hidden_states), output.logits[0]


# ── the same as what the engine computes ─────────────────────────────────────────────────────


def test_what_is_shown_is_what_the_engine_computes() -> None:
    """The fast path, which has no hooks, gives the logits that probes give."""
    transformer = tiny()
    for length in (1, 8, len(IDS)):
        part = sequence(IDS[:length], table=range(4))
        fast = logits(transformer, new_cache(transformer), part)["a"]
        _close(session().logits(length - 1), fast)


def test_logits_and_attention_weights_are_those_of_transformers() -> None:
    attentions, _, expected = _oracle()
    ours = session()
    for position in range(len(IDS)):
        _close(ours.logits(position), expected[position])
    for layer in range(LAYERS):
        for head in range(HEADS):
            document = ours.attention(layer, head)
            assert document.kv_head == head // (HEADS // KV_HEADS)
            _close(unpack(document.weights), attentions[layer][head], 1e-3)


def test_residuals_are_the_hidden_states_of_transformers() -> None:
    seen: list[Tensor] = []
    model = llama()
    for layer in model.model.layers:
        layer.register_forward_hook(lambda module, inputs, output: seen.append(output[0]))
    with torch.no_grad():
        model(torch.tensor([IDS]))
    _, states, _ = _oracle()
    ours = session()
    _close(ours.residuals[0], states[0])
    for residual, hooked in zip(ours.residuals[1:], seen, strict=True):
        _close(residual, hooked.reshape(residual.shape))


# ── attention ────────────────────────────────────────────────────────────────────────────────


def test_weights_are_causal_and_sum_to_one() -> None:
    for layer in range(LAYERS):
        weights = session().seen(layer)["weights"]
        _close(weights.sum(-1), torch.ones(HEADS, len(IDS)), 1e-5)
        assert not weights.triu(1).any()
        assert (weights.tril() == weights).all()


@pytest.mark.parametrize("head", range(HEADS))
def test_the_numbers_of_a_query_follow_from_one_another(head: int) -> None:
    config = probe_model().config
    for query in (0, 7, LAST):
        detail = session().attention_detail(1, head, query)
        dots = np.array([np.dot(detail.q_rotated, key) for key in unpack(detail.keys_rotated)])
        _close(np.array(detail.dots), dots, 2e-2)  # keys travel in float16
        assert detail.scale == pytest.approx(config.head_dim**-0.5, rel=1e-4)
        _close(np.array(detail.scaled), np.array(detail.dots) * detail.scale, 1e-4)
        assert detail.visible == tuple(key <= query for key in range(len(IDS)))
        raised = np.where(detail.visible, np.exp(detail.scaled), 0)
        _close(np.array(detail.weights), raised / raised.sum(), 1e-5)
        weighted = unpack(detail.values) * np.array(detail.weights)[:, None]
        _close(unpack(detail.weighted), weighted, 1e-2)
        _close(np.array(detail.mixed), weighted.sum(0), 1e-2)


def test_the_overview_agrees_with_the_weights() -> None:
    attentions, _, _ = _oracle()
    document = session().overview()
    assert [(s.layer, s.head) for s in document.heads] == [
        (layer, head) for layer in range(LAYERS) for head in range(HEADS)
    ]
    for summary in document.heads:
        w = attentions[summary.layer][summary.head].double().numpy()
        count = len(w)
        logs = np.log(np.where(w > 0, w, 1))
        assert summary.entropy == pytest.approx(-(w * logs).sum() / count, abs=1e-4)
        back = sum(w[q, k] * (q - k) for q in range(count) for k in range(count)) / count
        assert summary.distance == pytest.approx(back, abs=1e-4)
        assert summary.first == pytest.approx(w[1:, 0].mean(), abs=1e-4)
        assert summary.previous == pytest.approx(
            np.mean([w[q, q - 1] for q in range(1, count)]), abs=1e-4
        )
        assert summary.own == pytest.approx(np.trace(w) / count, abs=1e-4)


def test_one_token_sees_itself() -> None:
    alone = ProbeSession(probe_model(), [5])
    summary = alone.overview().heads[0]
    assert (summary.entropy, summary.distance, summary.own) == (0, 0, 1)
    assert summary.first is None
    assert summary.previous is None
    assert alone.attention_detail(0, 0, 0).weights == (1.0,)
    with pytest.raises(InvalidRequest, match="two tokens"):
        alone.rotation(0, 0)


# ── rotation ─────────────────────────────────────────────────────────────────────────────────


def test_angles_are_those_of_the_formula() -> None:
    config = probe_model().config
    assert config.rope_theta is not None
    half = config.head_dim // 2
    long = ProbeSession(probe_model(), IDS * 9)
    for position in (0, 1, 5, 200):
        for j, pair in enumerate(long.rotation(1, position).pairs):
            step = config.rope_theta ** (-2 * j / config.head_dim)
            assert pair.dimensions == (j, j + half)
            assert pair.step == pytest.approx(step, rel=1e-4)
            assert pair.wavelength == pytest.approx(2 * math.pi / step, rel=1e-4)
            wrapped = math.remainder(pair.angle - position * step, 2 * math.pi)
            assert wrapped == pytest.approx(0, abs=1e-4)


def test_scores_depend_on_distance_only() -> None:
    """One token again and again: in the first layer all queries are alike and all keys are."""
    seen = ProbeSession(probe_model(), [77] * 30).seen(0)
    assert seen["scores"].diagonal(-1, 1, 2).std() > 0.01  # heads differ
    for distance in range(30):
        along = seen["scores"].diagonal(-distance, 1, 2)
        _close(along, along[:, :1].expand_as(along), 1e-4)
    between = seen["scores"][:, -1]
    assert (between.std(dim=-1) > 0.01).all(), "without a rotation, distance would not matter"


# ── the residual stream ──────────────────────────────────────────────────────────────────────


def test_norms_are_those_of_the_vectors() -> None:
    document = session().hidden_norms()
    for norms, residual in zip(document.residual, session().residuals, strict=True):
        _close(np.array(norms), np.linalg.norm(residual.numpy(), axis=1))
    for layer in range(LAYERS):
        seen = session().seen(layer)
        out = seen["mixed"].transpose(0, 1).reshape(len(IDS), -1)
        projected = out @ probe_model().reference._weights[f"layers.{layer}.o"].T
        _close(np.array(document.attention[layer]), projected.norm(dim=1))
        _close(np.array(document.mlp[layer]), seen["mlp_out"].norm(dim=1))


def test_the_last_row_of_the_lens_is_what_the_model_says() -> None:
    ours = session()
    for position in (0, 9, LAST):
        lens = ours.logit_lens(position, k=7)
        assert [row.layer for row in lens.rows] == [-1, 0, 1]
        final = ours.next_token(position, k=7)
        last = lens.rows[-1]
        assert last.rank == 0
        assert last.entropy == pytest.approx(final.entropy, abs=1e-5)
        assert [t.id for t in last.top] == [t.id for t in final.top]
        _close(np.array([t.logit for t in last.top]), np.array([t.logit for t in final.top]), 1e-5)
        assert ours.logit_lens(position, k=7, layer=0).rows == (lens.rows[1],)


def test_earlier_rows_of_the_lens_end_the_model_early() -> None:
    """Transformers' final norm and head on its own hidden states."""
    _, states, expected = _oracle()
    model = llama()
    with torch.no_grad():
        early = model.lm_head(model.model.norm(states[1][LAST]))
    row = session().logit_lens(LAST, k=3).rows[1]
    values, ids = early.topk(3)
    assert [t.id for t in row.top] == ids.tolist()
    _close(np.array([t.logit for t in row.top]), values)
    logprobs = early.log_softmax(-1)
    _close(np.array([t.logprob for t in row.top]), logprobs[ids])
    assert row.entropy == pytest.approx(float(-(logprobs.exp() * logprobs).sum()), abs=1e-3)
    said = int(expected[LAST].argmax())
    assert row.rank == int((early > early[said]).sum())


def test_the_largest_activations_are_those_of_transformers() -> None:
    model = llama()
    inner: list[Tensor] = []
    part(model, "model.layers.1.mlp.down_proj").register_forward_pre_hook(
        lambda module, inputs: inner.append(inputs[0][0])
    )
    with torch.no_grad():
        model(torch.tensor([IDS]))
    document = session().feed_forward(1, 4, k=6)
    expected = inner[0][4]
    assert document.width == len(expected) == 160
    assert [a.index for a in document.top] == expected.abs().topk(6).indices.tolist()
    for activation in document.top:
        assert activation.value == pytest.approx(float(expected[activation.index]), abs=2e-4)
        gate, up = activation.gate, activation.up
        assert gate is not None
        assert up is not None
        assert activation.value == pytest.approx(gate / (1 + math.exp(-gate)) * up, abs=2e-4)
    share = expected.square().topk(6).values.sum() / expected.square().sum()
    assert document.top_share == pytest.approx(float(share), abs=1e-4)
    assert document.norm == pytest.approx(float(expected.norm()), rel=1e-4)


def test_a_client_can_draw_again_from_the_whole_distribution() -> None:
    _, _, expected = _oracle()
    document = session().next_token(LAST, k=4)
    values = unpack(document.logits)
    assert document.logits.dtype == "float32"
    _close(values, expected[LAST])
    assert document.logsumexp == pytest.approx(float(expected[LAST].logsumexp(0)), abs=1e-4)
    for token in document.top:
        assert token.logprob == pytest.approx(values[token.id] - document.logsumexp, abs=1e-4)


# ── what is refused ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("field", "ask"),
    [
        ("layer", lambda s: s.attention(2, 0)),
        ("layer", lambda s: s.attention(-1, 0)),
        ("layer", lambda s: s.logit_lens(0, layer=2)),
        ("head", lambda s: s.attention(0, 4)),
        ("head", lambda s: s.attention_detail(0, True, 0)),
        ("query", lambda s: s.attention_detail(0, 0, len(IDS))),
        ("position", lambda s: s.rotation(0, -1)),
        ("position", lambda s: s.logit_lens(1.0)),
        ("position", lambda s: s.feed_forward(0, len(IDS))),
        ("position", lambda s: s.next_token(len(IDS))),
        ("k", lambda s: s.next_token(0, k=0)),
        ("k", lambda s: s.logit_lens(0, k=51)),
        ("k", lambda s: s.feed_forward(0, 0, k=-1)),
    ],
)
def test_what_does_not_exist_is_refused_by_name(field: str, ask) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ask(session())
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("ids", "ablations", "field"),
    [
        ([], [], "token_ids"),
        ([1] * (MAX_TOKENS + 1), [], "token_ids"),
        ([512], [], "token_ids"),
        ([-1], [], "token_ids"),
        ([1], ["layer:2"], "ablations"),
        ([1], ["head:0.4"], "ablations"),
        ([1], ["no-mask"] * 65, "ablations"),
    ],
)
def test_sessions_that_cannot_be_are_refused(
    ids: list[int], ablations: list[str], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ProbeSession(probe_model(), ids, [parse_ablation(name) for name in ablations])
    assert caught.value.field == field


# ── small maps of all heads ──────────────────────────────────────────────────────────────────


def test_small_maps_are_the_weights_themselves_where_they_fit() -> None:
    ids = IDS[: MAP_SIZE - 1]
    few = ProbeSession(probe_model(), ids)
    maps = unpack(few.attention_maps().maps)
    assert maps.shape == (LAYERS, HEADS, len(ids), len(ids))
    for layer in range(LAYERS):
        for head in range(HEADS):
            weights = unpack(few.attention(layer, head).weights)
            np.testing.assert_array_equal(maps[layer, head], weights)


def test_small_maps_sum_what_their_parts_look_at() -> None:
    whole = session()
    maps = unpack(whole.attention_maps().maps)
    parts = [position * MAP_SIZE // len(IDS) for position in range(len(IDS))]
    weights = unpack(whole.attention(1, 2).weights)
    for row in range(MAP_SIZE):
        queries = [q for q, part in enumerate(parts) if part == row]
        for column in range(MAP_SIZE):
            keys = [k for k, part in enumerate(parts) if part == column]
            expected = weights[np.ix_(queries, keys)].sum(1).mean()
            assert maps[1, 2, row, column] == pytest.approx(expected, abs=2e-3)
    np.testing.assert_allclose(maps.sum(-1), 1.0, atol=5e-3)
