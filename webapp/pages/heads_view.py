"""Bytes of a token's keys and values by who shares them: every head, a group, all, one latent.

Everything is computed from a model's shape; what the model really has stands beside what it would
take if its heads shared otherwise. Numbers of a token and layer (DeepSeek-V2's report, arXiv
2405.04434, table 1), with H query heads of dh:

    MHA  2 · H · dh     GQA  2 · groups · dh     MQA  2 · dh     MLA  4 · dh + dh / 2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.catalog.attention import GlobalAttention
from engine.catalog.models import all_models, get_model
from engine.catalog.precision import get_format
from engine.catalog.units import bytes_label
from webapp.pages.query import Knobs

DEFAULT_MODEL = "llama-3.1-8b"
KV_FORMATS = ("bf16", "int8", "int4-g32")
LEAST, MOST, DEFAULT_CONTEXT = 10, 20, 15
"""Contexts on offer are powers of two from 2**10 to 2**20 positions."""
USUAL_GROUPS = 8
"""Groups of the GQA that a model without one is given: as Llama 2 70B and most since then have."""


def models_on_offer() -> tuple[str, ...]:
    """Models whose every layer keeps every position, by how their heads share them only."""
    return tuple(spec.id for spec in all_models() if isinstance(spec.attention, GlobalAttention))


@dataclass(frozen=True, slots=True)
class HeadsQuestion:
    """A model, a context of ``2**exponent`` positions, a number format of the cache."""

    model: str = DEFAULT_MODEL
    exponent: int = DEFAULT_CONTEXT
    kv: str = KV_FORMATS[0]

    @property
    def context(self) -> int:
        return 2**self.exponent


@dataclass(frozen=True, slots=True)
class Sharing:
    """One way of sharing. ``groups``: sets of keys and values a token and layer, None for a latent.

    ``per_token``: bytes of one position in all layers. ``own``: what the model really does.
    """

    name: str
    groups: int | None
    numbers: int
    per_token: float
    at_context: float
    share: float
    own: bool

    @property
    def token_label(self) -> str:
        return bytes_label(self.per_token)

    @property
    def context_label(self) -> str:
        return bytes_label(self.at_context)

    @property
    def times_less(self) -> str:
        """How many times less than with keys and values for every head."""
        return f"{1 / self.share:.3g}"


@dataclass(frozen=True, slots=True)
class HeadsView:
    """The fragment: four ways for one model, most bytes first."""

    question: HeadsQuestion
    heads: int
    layers: int
    rows: tuple[Sharing, ...]

    @property
    def own(self) -> Sharing:
        return next(row for row in self.rows if row.own)


def read_heads_question(query: Mapping[str, str]) -> HeadsQuestion:
    """The question in a query string; what is not on offer becomes the default."""
    knobs = Knobs(query)
    return HeadsQuestion(
        knobs.choice("model", DEFAULT_MODEL, models_on_offer()),
        knobs.whole("context_log2", DEFAULT_CONTEXT, LEAST, MOST),
        knobs.choice("kv", KV_FORMATS[0], KV_FORMATS),
    )


def heads_view(question: HeadsQuestion) -> HeadsView:
    """Bytes of all four ways."""
    spec = get_model(question.model)
    heads, kv_heads, mla = spec.num_attention_heads, spec.num_kv_heads, spec.mla
    # Keys and values of one head; a latent model's keys have a rotated part, and are longer.
    pair = 2 * spec.head_dim
    if mla is not None:
        pair = mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
    grouped = mla is None and 1 < kv_heads < heads
    own = "MLA" if mla else "GQA" if grouped else "MQA" if kv_heads == 1 else "MHA"
    numbers: list[tuple[str, int | None, int]] = [("MHA", heads, heads * pair)]
    groups = kv_heads if grouped else USUAL_GROUPS
    if groups < heads:
        numbers.append(("GQA", groups, groups * pair))
    numbers.append(("MQA", 1, pair))
    latent = mla.cached_elements if mla else 4 * spec.head_dim + spec.head_dim // 2
    numbers.append(("MLA", None, latent))
    bytes_each = get_format(question.kv).bits / 8
    most = heads * pair
    rows = (
        Sharing(
            name,
            groups,
            count,
            per_token := count * spec.num_layers * bytes_each,
            per_token * question.context,
            count / most,
            name == own,
        )
        for name, groups, count in numbers
    )
    ordered = tuple(sorted(rows, key=lambda row: -row.per_token))
    return HeadsView(question, heads, spec.num_layers, ordered)
