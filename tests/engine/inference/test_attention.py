"""Attention over the cache against its formula: every token, head and position on its own."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.inference.kv_cache.make import make_cache
from engine.inference.kv_cache.paged import PagedKVCache
from engine.inference.kv_cache.visibility import EVERYTHING, Visibility, combined, whole_pages
from engine.inference.lane_settings import KVFormat, KVLayout, KVSettings, parse_kv
from engine.inference.model.attention import TILE, AttentionSpec
from engine.inference.model.batch import build_batch
from engine.inference.model.config import ModelConfig
from engine.inference.model.groups import DecodeGroup
from engine.scheduling.blocks import blocks_for
from engine.scheduling.plan import Phase, ScheduledSequence, StepPlan
from tests.engine.inference.runs_for_tests import CPU

pytestmark = pytest.mark.usefixtures("one_thread")

DIM = 16
BLOCK = 4
PLAIN = AttentionSpec(DIM**-0.5)


def _config(kv_heads: int, group: int) -> ModelConfig:
    return ModelConfig(
        name="heads only",
        family="llama",
        num_layers=1,
        hidden_size=8,
        num_attention_heads=kv_heads * group,
        num_kv_heads=kv_heads,
        head_dim=DIM,
        intermediate_size=8,
        vocab_size=8,
        tied_embeddings=True,
        max_context=100_000,
        rope_theta=1e4,
        norm_eps=1e-5,
    )


def _by_formula(
    q_thgd: Tensor, kv_sphd: Tensor, start: int, spec: AttentionSpec, kv: KVSettings
) -> Tensor:
    """In float64, with what is visible written down as the sentence that defines it."""
    keys, values = kv_sphd.double().unbind(1)
    scores = torch.einsum("thgd,shd->thgs", q_thgd.double(), keys) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    rows, positions = torch.meshgrid(
        torch.arange(start, start + q_thgd.shape[0]), torch.arange(kv_sphd.shape[0]), indexing="ij"
    )
    visible = positions <= rows
    if kv.window is not None:
        visible &= (rows - positions < kv.window) | (positions < kv.sinks)
    if spec.window is not None:
        visible &= rows - positions < spec.window
    scores = scores.masked_fill(~visible[:, None, None], -math.inf)
    return torch.einsum("thgs,shd->thgd", scores.softmax(-1), values)


class _Step:
    """Sequences of random numbers in scattered blocks, of each the last ``num_new`` new."""

    def __init__(
        self,
        chunks: list[tuple[int, int]],
        *,
        settings: KVSettings | None = None,
        kv_heads: int = 2,
        group: int = 3,
        dtype: torch.dtype = torch.float32,
        scattered: bool = True,
        seed: int = 0,
    ) -> None:
        self.settings = settings or KVSettings()
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype = dtype
        lengths = [start + num_new for start, num_new in chunks]
        slab = self.settings.layout is KVLayout.CONTIGUOUS
        block_size = 16 * blocks_for(max(lengths), 16) if slab else BLOCK
        counts = [blocks_for(length, block_size) for length in lengths]
        self.cache: PagedKVCache = make_cache(
            _config(kv_heads, group),
            self.settings,
            num_blocks=sum(counts) + 3,
            dtype=dtype,
            device=CPU,
            block_size=block_size,
        )
        # What earlier owners left in the blocks is finite and large.
        for planes in self.cache.store.planes:
            for plane in planes:
                plane.fill_(100)
        order = torch.randperm(sum(counts) + 3, generator=self.generator).tolist()
        blocks = iter(order if scattered else range(3, sum(counts) + 3))
        sequences: list[ScheduledSequence] = []
        self.texts: dict[str, tuple[int, Tensor, Tensor]] = {}
        for index, (start, num_new) in enumerate(chunks):
            table = [next(blocks) for _ in range(counts[index])]
            q = self._random(num_new, kv_heads, group, DIM)
            kv = self._random(lengths[index], 2, kv_heads, DIM)
            slots = torch.tensor(self.cache.slots(table, 0, lengths[index]))
            self.cache.write(0, kv, slots)
            name = str(index)
            self.texts[name] = (start, q, self._kept(table, lengths[index]))
            sequences.append(
                ScheduledSequence(name, Phase.MIXED, start, [0] * num_new, table, True)
            )
        self.batch = build_batch(StepPlan(1, tuple(sequences)), self.cache)

    def _kept(self, table: list[int], length: int) -> Tensor:
        """What the cache made of the keys and values of a sequence: ``[s, p, h, d]``."""
        pages = self.cache.locate(table, [range(length)])
        keys, values, _, _ = self.cache.read(0, pages).with_scales_applied()
        kv = torch.stack([keys, values]).permute(2, 0, 1, 3)
        return kv.clone() if self.cache.basis is None else kv @ self.cache.basis

    def _random(self, *shape: int) -> Tensor:
        # Twice the usual size: attention is far from uniform.
        return (2 * torch.randn(*shape, generator=self.generator)).to(self.dtype)

    def check(self, spec: AttentionSpec, tolerance: float) -> Tensor:
        """The errors of all numbers, none of them above ``tolerance``."""
        in_order = [self.texts[sequence.request_id] for sequence in self.batch.sampled]
        q = torch.cat([q for _, q, _ in in_order])
        before = q.clone()
        with torch.inference_mode():
            actual = self.batch.attend(q, self.cache, 0, spec)
            again = self.batch.attend(q, self.cache, 0, spec)
        assert torch.equal(q, before)
        assert torch.equal(actual, again)
        exact = [_by_formula(q, kv, start, spec, self.settings) for start, q, kv in in_order]
        errors = (actual.double() - torch.cat(exact)).abs()
        assert errors.max() < tolerance
        return errors


CHUNKS = [
    [(0, 1)],
    [(40, 1)],
    [(0, 5)],
    [(40, 5)],
    [(0, TILE + 1)],
    [(9, TILE + 40)],
    [(300, 3), (20, 1)],
    [(280, 1)],
    [(40, 1), (33, 1)],
    [(40, 1), (33, 1), (39, 1), (21, 1), (3, 1)],
    [(15, 2), (90, 1), (0, 30), (88, 1), (60, 1), (50, 1), (2, 1)],
]
SPECS = {
    "plain": PLAIN,
    "other scale": AttentionSpec(0.4),
    "soft cap": AttentionSpec(0.25, softcap=5.0),
    "window": AttentionSpec(0.25, window=7),
    "wide window": AttentionSpec(0.25, window=60),
    "window and soft cap": AttentionSpec(0.25, softcap=3.0, window=16),
}
KV = [
    "contiguous",
    "contiguous-window-30-sinks-5",
    "paged-int8",
    "paged-int4-window-30-sinks-5",
    "contiguous-int4",
    "paged",
    "paged-window-9",
    "paged-window-1",
    "paged-window-30-sinks-5",
    "paged-window-8-sinks-4",
]


@pytest.mark.parametrize("kv", KV)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
def test_attention_equals_its_formula(
    chunks: list[tuple[int, int]], spec: AttentionSpec, kv: str
) -> None:
    _Step(chunks, settings=parse_kv(kv)).check(spec, 2e-5)


@pytest.mark.parametrize("kv", ["paged", "paged-window-30-sinks-5", "paged-int8", "paged-int4"])
@pytest.mark.parametrize("spec", [PLAIN, SPECS["window and soft cap"]], ids=["plain", "capped"])
@pytest.mark.parametrize("chunks", [*CHUNKS, [(0, 130)], [(40, 130)]], ids=str)
def test_bfloat16_stays_close_to_the_formula(
    chunks: list[tuple[int, int]], spec: AttentionSpec, kv: str
) -> None:
    # The values are twice the usual size; scores and weights round to 8 bits.
    errors = _Step(chunks, settings=parse_kv(kv), dtype=torch.bfloat16).check(spec, 0.2)
    assert errors.mean() < 0.02


@st.composite
def _steps(draw: st.DrawFn) -> tuple[_Step, AttentionSpec]:
    chunk = st.tuples(st.integers(0, 70), st.integers(1, 40) | st.just(1) | st.just(1))
    window = draw(st.none() | st.integers(1, 60))
    cache_window = draw(st.none() | st.integers(1, 60))
    sinks = 0 if cache_window is None else draw(st.integers(0, min(10, cache_window - 1)))
    step = _Step(
        draw(st.lists(chunk, min_size=1, max_size=7)),
        settings=KVSettings(
            draw(st.sampled_from([KVLayout.PAGED, KVLayout.CONTIGUOUS])),
            draw(st.sampled_from(list(KVFormat))),
            cache_window,
            sinks,
        ),
        kv_heads=draw(st.integers(1, 3)),
        group=draw(st.integers(1, 4)),
        scattered=draw(st.booleans()),
        seed=draw(st.integers(0, 2**31)),
    )
    softcap = draw(st.none() | st.floats(1.0, 50.0))
    return step, AttentionSpec(draw(st.floats(0.05, 1.0)), softcap, window)


@settings(max_examples=150, deadline=None)
@given(_steps())
def test_any_mix_of_sequences_windows_and_heads_equals_the_formula(
    drawn: tuple[_Step, AttentionSpec],
) -> None:
    step, spec = drawn
    step.check(spec, 1e-4)


def test_layers_of_both_kinds_alternate_in_one_step() -> None:
    step = _Step([(30, 1), (28, 1), (5, 20)])
    for spec in (PLAIN, SPECS["window"], PLAIN, SPECS["soft cap"], SPECS["window"]):
        step.check(spec, 2e-5)


def test_blocks_beyond_the_window_are_not_read() -> None:
    step = _Step([(200, 1), (190, 1)], settings=KVSettings(window=10, sinks=2))
    step.batch.attend(torch.zeros(2, 2, 3, DIM), step.cache, 0, PLAIN)
    (group,) = step.batch.groups
    assert isinstance(group, DecodeGroup)
    for pages, _ in group._views.values():
        # One block of sinks and at most four that the window touches.
        assert pages.positions_bs.shape == (2, 5 * BLOCK)


def test_a_window_that_holds_the_whole_text_changes_no_bit() -> None:
    plain, windowed = (
        _Step([(50, 20), (30, 1), (25, 1)], settings=kv)
        for kv in (KVSettings(), KVSettings(window=70))
    )
    q = torch.randn(22, 2, 3, DIM, generator=torch.Generator().manual_seed(1))
    expected = plain.batch.attend(q, plain.cache, 0, PLAIN)
    assert torch.equal(windowed.batch.attend(q, windowed.cache, 0, PLAIN), expected)
    own_window = AttentionSpec(PLAIN.scale, window=70)
    assert torch.equal(plain.batch.attend(q, plain.cache, 0, own_window), expected)


@pytest.mark.parametrize(
    ("scale", "softcap"), [(0.0, None), (math.nan, None), (1.0, 0.0), (1.0, math.inf)]
)
def test_a_spec_that_cannot_be_is_refused(scale: float, softcap: float | None) -> None:
    with pytest.raises(ValueError, match="finite number above 0"):
        AttentionSpec(scale, softcap)


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least itself"):
        AttentionSpec(1.0, window=0)


# ── who sees what, in integers ───────────────────────────────────────────────────────────────


def test_a_cache_hides_and_never_shows() -> None:
    assert combined(None, None, 0) == EVERYTHING
    assert combined(8, None, 0) == Visibility(8)
    assert combined(None, 8, 2) == Visibility(8, 2)
    assert combined(8, 100, 4) == Visibility(8)  # the model's own window has no sinks
    assert combined(100, 8, 4) == Visibility(8, 4, 100)


@given(
    st.integers(1, 40),
    st.integers(0, 12),
    st.none() | st.integers(1, 60),
    st.integers(0, 90),
    st.integers(1, 30),
    st.integers(1, 8),
)
def test_spans_hold_all_that_is_visible_and_pages_hold_the_spans(
    window: int, sinks: int, reach: int | None, start: int, count: int, page_size: int
) -> None:
    reach = None if reach is None else max(reach, window)
    visibility = Visibility(window, sinks, reach)
    spans = visibility.spans(start, start + count)
    seen = {
        j
        for i in range(start, start + count)
        for j in range(i + 1)
        if i - j < window or (j < sinks and (reach is None or i - j < reach))
    }
    spanned = [j for span in spans for j in span]
    assert seen <= set(spanned)
    assert spanned == sorted(set(spanned))
    assert spanned[-1] == start + count - 1
    if count == 1:
        assert seen == set(spanned)
    widened = whole_pages(spans, page_size)
    assert set(spanned) <= {j for span in widened for j in span}
    assert all(span.start % page_size == 0 for span in widened)
    assert all(span.stop % page_size == 0 for span in widened[:-1])
    assert widened[-1].stop == spans[-1].stop
    assert all(a.stop < b.start for a, b in itertools.pairwise(widened))
