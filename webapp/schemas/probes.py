"""``POST /api/v1/probes/{kind}``: what each kind is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from engine.inference.probes import documents, format_documents, text_documents
from engine.inference.probes.limits import (
    MAX_CONTINUATION,
    MAX_HELD_OUT,
    MAX_MERGED_CHARS,
    MAX_ROWS,
    MAX_TOKENS,
    MAX_TOP,
)
from webapp.schemas.base import OutputModel, PlainText, StrictModel
from webapp.schemas.from_documents import schema_of, with_tokens
from webapp.schemas.live_requests import LaneName, PromptText, TokenId
from webapp.schemas.texts import Messages

Index = Annotated[int, Field(ge=0, le=65_535)]
Top = Annotated[int, Field(ge=1, le=MAX_TOP)]
AblationName = Annotated[
    str,
    Field(
        pattern=r"^(head:\d{1,4}\.\d{1,4}|layer:\d{1,4}|no-rotation|no-mask|hidden-scale)$",
        description="head:LAYER.HEAD, layer:LAYER, no-rotation, no-mask or hidden-scale.",
    ),
]


class TextQuestion(StrictModel):
    """A text to look at: exactly one of ``token_ids``, ``text`` and ``messages``. Layers, heads
    and positions count from 0."""

    token_ids: Annotated[list[TokenId], Field(min_length=1, max_length=MAX_TOKENS)] | None = None
    text: PromptText | None = None
    messages: Messages | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(given is not None for given in (self.token_ids, self.text, self.messages)) != 1:
            raise PydanticCustomError(
                "bad_combination", "Send exactly one of token_ids, text and messages."
            )
        return self


class ModelQuestion(TextQuestion):
    """The same of the model as it is, or without some parts."""

    ablations: Annotated[list[AblationName], Field(max_length=64)] = Field(
        default_factory=list[str]
    )


class NeighboursRequest(StrictModel):
    token_id: TokenId
    k: Top = 10


Rows = Annotated[list[TokenId], Field(max_length=MAX_ROWS)]


class AnalogyRequest(StrictModel):
    """Rows to add and rows to take away, each at length 1."""

    plus: Annotated[Rows, Field(min_length=1)]
    minus: Rows = Field(default_factory=list[int])
    k: Top = 10


class AttentionRequest(ModelQuestion):
    layer: Index
    head: Index


class AttentionDetailRequest(AttentionRequest):
    query: Index = Field(description="The position that looks back.")


class RotationRequest(ModelQuestion):
    layer: Index
    position: Index


class LogitLensRequest(ModelQuestion):
    position: Index
    k: Top = 5
    layer: Annotated[int, Field(ge=-1, le=65_535)] | None = Field(
        default=None, description="Null: all of them; -1: before the first."
    )


class FeedForwardRequest(RotationRequest):
    k: Top = 10


class NextTokenRequest(ModelQuestion):
    position: Index
    k: Top = 10


class ComparisonRequest(ModelQuestion):
    k: Top = 5
    max_tokens: Annotated[int, Field(ge=0, le=MAX_CONTINUATION)] = 8


class FidelityRequest(TextQuestion):
    """The model in another form, beside the file's own weights in float32: on a text, or on the
    first ``held_out`` tokens of one that no method was fitted to."""

    weights: LaneName
    kv_cache: LaneName = "paged"
    held_out: Annotated[int, Field(ge=2, le=MAX_HELD_OUT)] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        given = (self.token_ids, self.text, self.messages, self.held_out)
        if sum(value is not None for value in given) != 1:
            raise PydanticCustomError(
                "bad_combination", "Send exactly one of token_ids, text, messages and held_out."
            )
        return self


class WeightRowRequest(StrictModel):
    matrix: Annotated[str, Field(pattern=r"^[a-z0-9_.]{1,64}$")] = Field(
        description="Such as layers.0.q, layers.3.down or embed."
    )
    row: Index
    weights: LaneName = Field(description="int8 or int4, to the nearest level, or file.")


class RowsRequest(TextQuestion):
    """The tokens whose rows are wanted."""

    token_ids: Annotated[list[TokenId], Field(min_length=1, max_length=MAX_ROWS)] | None = None


class MergesRequest(StrictModel):
    text: Annotated[PlainText, Field(min_length=1, max_length=MAX_MERGED_CHARS)]


@dataclass(frozen=True, slots=True)
class ProbeKind:
    """One kind of question: what it takes, what it answers, and a sentence for the description."""

    request: type[StrictModel]
    answer: type[OutputModel]
    description: str


PROBES: Mapping[str, ProbeKind] = {
    "embeddings": ProbeKind(
        RowsRequest,
        with_tokens(documents.Embeddings),
        "Rows of the embedding table: a look-up, so no arithmetic at all.",
    ),
    "neighbours": ProbeKind(
        NeighboursRequest,
        schema_of(documents.Neighbours),
        "The rows that point most nearly the same way as one, by cosine.",
    ),
    "analogy": ProbeKind(
        AnalogyRequest,
        schema_of(documents.Analogy),
        "The rows nearest to a sum of rows less others: king − man + woman.",
    ),
    "map": ProbeKind(
        RowsRequest,
        with_tokens(documents.EmbeddingMap),
        "Some rows against each other: cosines, and coordinates in the plane.",
    ),
    "overview": ProbeKind(
        ModelQuestion,
        with_tokens(documents.AttentionOverview),
        "What each attention head does, in five numbers.",
    ),
    "attention-maps": ProbeKind(
        ModelQuestion,
        with_tokens(documents.AttentionMaps),
        "Every head's weights on a small grid, packed.",
    ),
    "attention": ProbeKind(
        AttentionRequest,
        with_tokens(documents.Attention),
        "Scores and weights of one head, a row a query, packed.",
    ),
    "attention-detail": ProbeKind(
        AttentionDetailRequest,
        with_tokens(documents.AttentionDetail),
        "One query of one head, number by number: q · k, scale, mask, softmax, times v.",
    ),
    "rotation": ProbeKind(
        RotationRequest,
        with_tokens(documents.Rotation),
        "The angle by which a position turns each pair of dimensions, read off the tensors.",
    ),
    "hidden-norms": ProbeKind(
        ModelQuestion,
        with_tokens(documents.HiddenNorms),
        "Lengths of the residual stream and of what each layer adds to it.",
    ),
    "logit-lens": ProbeKind(
        LogitLensRequest,
        with_tokens(documents.LogitLens),
        "What the model would say if it ended after a layer.",
    ),
    "feed-forward": ProbeKind(
        FeedForwardRequest,
        with_tokens(documents.FeedForward),
        "The largest activations of a layer's MLP at a position.",
    ),
    "next-token": ProbeKind(
        NextTokenRequest,
        with_tokens(documents.NextToken),
        "The distribution over the token after a position: all logits, packed.",
    ),
    "comparison": ProbeKind(
        ComparisonRequest,
        with_tokens(documents.Comparison),
        "The model as it is beside the model without some parts, and how both go on.",
    ),
    "fidelity": ProbeKind(
        FidelityRequest,
        with_tokens(format_documents.Fidelity),
        "The model with other weights or another KV cache: KL, agreement, perplexity, bytes.",
    ),
    "weight-row": ProbeKind(
        WeightRowRequest,
        schema_of(format_documents.WeightRow),
        "A row of a matrix before and after rounding it to a few bits.",
    ),
    "merges": ProbeKind(
        MergesRequest,
        schema_of(text_documents.Merges),
        "How the model's tokenizer makes tokens of a word, merge by merge.",
    ),
}
