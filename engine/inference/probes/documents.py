"""What probes answer, as plain data that becomes JSON. Torch-free.

Numbers are rounded to six significant digits, far beyond what a screen shows; what is not finite
becomes null. Large arrays travel packed: base64 of little-endian numbers, row by row. Everything
here was measured on the model itself; ``ablations`` names what was changed in it for the purpose
and is empty for the model as it is.

Shapes: t tokens · d head_dim · m model width · v vocabulary. Layers, heads and positions count
from 0; probabilities are natural logarithms where a name says ``logprob``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar, cast

SIGNIFICANT_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Part:
    """Base of everything that has named fields in a document."""

    def to_dict(self) -> dict[str, object]:
        """JSON-able: numbers rounded, tuples as lists."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def _plain(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    return value.to_dict() if isinstance(value, Part) else value


@dataclass(frozen=True, slots=True)
class ProbeDocument(Part):
    """Base of whole answers. ``kind`` names them in JSON."""

    kind: ClassVar[str] = ""

    def to_dict(self) -> dict[str, object]:
        """JSON-able, with the kind, and that all of it was measured."""
        return {"kind": self.kind, "basis": "measured", **super(ProbeDocument, self).to_dict()}


@dataclass(frozen=True, slots=True)
class PackedArray(Part):
    """``data``: base64 of the numbers in row-major order; ``dtype`` float16 or float32."""

    shape: tuple[int, ...]
    dtype: str
    data: str


@dataclass(frozen=True, slots=True)
class TokenPiece(Part):
    """A token and its visible text."""

    id: int
    piece: str


@dataclass(frozen=True, slots=True)
class ScoredToken(Part):
    """A token with its logit and its log-probability."""

    id: int
    piece: str
    logit: float
    logprob: float


# ── embeddings ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class EmbeddingRow(Part):
    """One row of the table ``[m]`` and its length as a vector."""

    id: int
    piece: str
    norm: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Embeddings(ProbeDocument):
    """Rows looked up: a gather, so no arithmetic at all.

    ``stored_as`` and ``row_bytes``: how the file keeps a row; ``table_bytes``: all rows there.
    """

    kind: ClassVar[str] = "embeddings"
    table_shape: tuple[int, int]
    stored_as: str
    row_bytes: int
    table_bytes: int
    flops: int
    rows: tuple[EmbeddingRow, ...]


@dataclass(frozen=True, slots=True)
class Neighbour(Part):
    id: int
    piece: str
    cosine: float


@dataclass(frozen=True, slots=True)
class Neighbours(ProbeDocument):
    """The rows that point most nearly the same way as one, nearest first, itself left out."""

    kind: ClassVar[str] = "neighbours"
    of: TokenPiece
    neighbours: tuple[Neighbour, ...]


@dataclass(frozen=True, slots=True)
class Analogy(ProbeDocument):
    """The rows that point most nearly as the sum of the unit rows of ``plus`` less those of
    ``minus``, nearest first, the tokens asked for left out."""

    kind: ClassVar[str] = "analogy"
    plus: tuple[TokenPiece, ...]
    minus: tuple[TokenPiece, ...]
    neighbours: tuple[Neighbour, ...]


@dataclass(frozen=True, slots=True)
class EmbeddingMap(ProbeDocument):
    """Some rows against each other: cosines ``[n][n]``, and coordinates ``[n][2]`` along the two
    directions in which they differ most. ``explained``: the share of their variance along each."""

    kind: ClassVar[str] = "embedding_map"
    tokens: tuple[TokenPiece, ...]
    cosines: tuple[tuple[float, ...], ...]
    coordinates: tuple[tuple[float, float], ...]
    explained: tuple[float, float]


# ── attention ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class HeadSummary(Part):
    """Means over the queries of one head.

    ``entropy`` of its weights in nats; ``distance``: how many positions back it looks; ``first``,
    ``previous`` and ``own``: weight on the first token, the one before and the query itself (the
    first two over queries that have such a token other than themselves; None if there are none).
    """

    layer: int
    head: int
    entropy: float
    distance: float
    first: float | None
    previous: float | None
    own: float


@dataclass(frozen=True, slots=True)
class AttentionOverview(ProbeDocument):
    """All heads, layer by layer."""

    kind: ClassVar[str] = "attention_overview"
    ablations: tuple[str, ...]
    num_tokens: int
    heads: tuple[HeadSummary, ...]


@dataclass(frozen=True, slots=True)
class AttentionMaps(ProbeDocument):
    """Every head's weights on a small grid: ``maps`` ``[layers, heads, n, n]``, a row a part of the
    queries. Of a text of more than n tokens a number is what the queries of one part give to the
    keys of another, in the mean; rows sum to 1."""

    kind: ClassVar[str] = "attention_maps"
    ablations: tuple[str, ...]
    num_tokens: int
    maps: PackedArray


@dataclass(frozen=True, slots=True)
class Attention(ProbeDocument):
    """One head: ``scores`` scaled and before the mask, ``weights`` after softmax, each ``[t, t]``
    with a row a query. ``kv_head``: whose keys and values it reads."""

    kind: ClassVar[str] = "attention"
    ablations: tuple[str, ...]
    layer: int
    head: int
    kv_head: int
    scores: PackedArray
    weights: PackedArray


@dataclass(frozen=True, slots=True)
class AttentionDetail(ProbeDocument):
    """One query of one head, number by number.

    ``q`` and ``k`` come before and after rotation: ``q``, ``q_rotated`` ``[d]``, ``keys``,
    ``keys_rotated``, ``values`` ``[t, d]``. ``dots``: q · k of the rotated; ``scale``: what they
    are multiplied by (the least-squares ratio of ``scaled`` to ``dots``, which a soft cap bends);
    ``visible``: whether the mask lets the query look there; ``weights``: softmax over what it sees;
    ``weighted``: each value times its weight ``[t, d]``, and ``mixed`` their sum ``[d]``.
    """

    kind: ClassVar[str] = "attention_detail"
    ablations: tuple[str, ...]
    layer: int
    head: int
    kv_head: int
    query: int
    scale: float
    q: tuple[float, ...]
    q_rotated: tuple[float, ...]
    keys: PackedArray
    keys_rotated: PackedArray
    values: PackedArray
    dots: tuple[float, ...]
    scaled: tuple[float, ...]
    visible: tuple[bool, ...]
    weights: tuple[float, ...]
    weighted: PackedArray
    mixed: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RotatedPair(Part):
    """A pair of dimensions of a head: the ``angle`` in radians (between -π and π) by which the
    position turns it, that of one position, ``step``, and the ``wavelength`` in positions."""

    dimensions: tuple[int, int]
    angle: float
    step: float
    wavelength: float


@dataclass(frozen=True, slots=True)
class Rotation(ProbeDocument):
    """How position turns the queries and keys of a layer, read off the tensors themselves."""

    kind: ClassVar[str] = "rotation"
    ablations: tuple[str, ...]
    layer: int
    position: int
    pairs: tuple[RotatedPair, ...]


# ── the residual stream ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class HiddenNorms(ProbeDocument):
    """Lengths of vectors at every position: of the residual stream before the first layer and
    after each (``residual``, layers + 1 rows), and of what the attention and the MLP of each layer
    add to it (a row a layer)."""

    kind: ClassVar[str] = "hidden_norms"
    ablations: tuple[str, ...]
    residual: tuple[tuple[float, ...], ...]
    attention: tuple[tuple[float, ...], ...]
    mlp: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class LensRow(Part):
    """What the model would say if it ended after ``layer`` (-1: before the first one).

    ``entropy`` in nats; ``rank``: the place, from 0, of the token that the whole model ranks first.
    """

    layer: int
    entropy: float
    rank: int
    top: tuple[ScoredToken, ...]


@dataclass(frozen=True, slots=True)
class LogitLens(ProbeDocument):
    """The residual stream at a position through the final norm and the LM head (nostalgebraist
    2020, "interpreting GPT: the logit lens")."""

    kind: ClassVar[str] = "logit_lens"
    ablations: tuple[str, ...]
    position: int
    rows: tuple[LensRow, ...]


@dataclass(frozen=True, slots=True)
class Activation(Part):
    """One of the MLP's inner dimensions. ``gate`` and ``up`` are None where it has none."""

    index: int
    value: float
    gate: float | None
    up: float | None


@dataclass(frozen=True, slots=True)
class FeedForward(ProbeDocument):
    """The MLP of a layer at a position: its ``width``, the largest activations, the length of the
    vector of all, the share of all squares that ``top`` makes up, and the length of what the MLP
    adds to the residual stream."""

    kind: ClassVar[str] = "feed_forward"
    ablations: tuple[str, ...]
    layer: int
    position: int
    width: int
    norm: float
    top_share: float
    output_norm: float
    top: tuple[Activation, ...]


@dataclass(frozen=True, slots=True)
class NextToken(ProbeDocument):
    """The distribution over the token after ``position``: of all tokens that can be sampled.

    ``logits`` ``[v]`` come whole, so that a client can draw again by itself; tokens that no text
    has are -inf there.
    """

    kind: ClassVar[str] = "next_token"
    ablations: tuple[str, ...]
    position: int
    entropy: float
    logsumexp: float
    top: tuple[ScoredToken, ...]
    logits: PackedArray


# ── ablation ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Continuation(Part):
    """What one of the two models says at the end of the text, and how it goes on by itself, always
    with the likeliest token."""

    top: tuple[ScoredToken, ...]
    tokens: tuple[TokenPiece, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Comparison(ProbeDocument):
    """The model as it is beside the model without some part.

    ``kl``: KL(as it is ‖ ablated) of the next token at each position, in nats. ``same_top``: share
    of positions where both rank the same token first.
    """

    kind: ClassVar[str] = "comparison"
    ablations: tuple[str, ...]
    kl: tuple[float, ...]
    same_top: float
    as_it_is: Continuation
    ablated: Continuation
