"""One text through the model, to be looked at from all sides.

The text runs once, in float32, layer by layer. What is kept of it is the residual stream before
and after every layer, from which any layer can be run again on its own, and of the layer that was
looked at last everything that passed. So with T tokens, L layers, width m and H heads, a session
holds 4 T m (L + 1) bytes, and about 12 H T² more for that one layer: 36 MB and 28 MB at 512 tokens
of a model of 30 layers, width 576 and 9 heads; beside the weights, which sessions share.

The fast path is not involved, so it needs no hooks; tests compare what both compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.errors import InvalidRequest
from engine.inference.model.config import ModelConfig
from engine.inference.model.reference import Tap
from engine.inference.probes import attention as attention_answers
from engine.inference.probes import stream
from engine.inference.probes.ablations import MAX_ABLATIONS, Ablation
from engine.inference.probes.arrays import (
    check_ids,
    check_index,
    check_top,
    entropy,
    numbers,
    pack,
    top_tokens,
)
from engine.inference.probes.documents import (
    Attention,
    AttentionDetail,
    AttentionMaps,
    AttentionOverview,
    FeedForward,
    HiddenNorms,
    LogitLens,
    NextToken,
    Rotation,
)
from engine.inference.probes.limits import MAX_TOKENS
from engine.inference.probes.model import ProbeModel
from engine.inference.probes.summaries import Summaries
from engine.inference.probes.taps import Recorder, ablation_tap, chain


def session_bytes(config: ModelConfig, num_tokens: int) -> int:
    """What a session holds at most: the residual stream after every layer, and all that is recorded
    of the one layer that was looked at."""
    heads = 3 * (config.num_attention_heads + config.num_kv_heads) * config.head_dim
    of_a_layer = heads + 3 * config.intermediate_size + config.hidden_size
    residuals = (config.num_layers + 1) * config.hidden_size
    scores = 3 * config.num_attention_heads * num_tokens
    return 4 * num_tokens * (residuals + of_a_layer + scores)


_POINTS = (*attention_answers.POINTS, *stream.FEED_FORWARD_POINTS)


class ProbeSession:
    """Answers questions about one text, with or without ablations. For one thread at a time.

    Every answer raises ``InvalidRequest`` naming the field, where a layer, head, position or k does
    not exist. ``residuals``: ``[t, m]`` each, before the first layer and after each.
    """

    @torch.inference_mode()
    def __init__(
        self, model: ProbeModel, token_ids: Sequence[int], ablations: Sequence[Ablation] = ()
    ) -> None:
        """Run the text through all layers: about a second for 512 tokens of 135 million weights.

        Raises:
            InvalidRequest: no tokens, more than ``MAX_TOKENS`` or than the model's context, an id
                that does not exist, or an ablation of what the model does not have.
        """
        config = model.config
        check_ids(token_ids, min(MAX_TOKENS, config.max_context), config.vocab_size)
        if len(ablations) > MAX_ABLATIONS:
            raise InvalidRequest(f"give at most {MAX_ABLATIONS} ablations", field="ablations")
        for ablation in ablations:
            ablation.check(config)
        self.model = model
        self.token_ids = tuple(token_ids)
        self.ablations = tuple(ablation.name for ablation in ablations)
        self.tap: Tap = ablation_tap(ablations, config)
        self._summaries = Summaries()
        tap = chain(self.tap, self._summaries)
        self.residuals = [model.reference.embed(token_ids, tap)]
        for layer in range(config.num_layers):
            self.residuals.append(model.reference.layer(layer, self.residuals[-1], tap))
        self._recorded: tuple[int, dict[str, Tensor]] | None = None

    def seen(self, layer: int) -> Mapping[str, Tensor]:
        """The tensors of a layer at the points of ``TAP_POINTS`` that answers need, after the
        ablations; the layer is run again unless it was the last one that was asked for."""
        check_index("layer", layer, self.model.config.num_layers)
        if self._recorded is None or self._recorded[0] != layer:
            self._recorded = None  # before another layer's tensors take as much again
            recorder = Recorder(_POINTS)
            tap = chain(self.tap, recorder)
            self.model.reference.layer(layer, self.residuals[layer], tap)
            self._recorded = layer, recorder.seen
        return self._recorded[1]

    # ── attention ────────────────────────────────────────────────────────────────────────────

    def overview(self) -> AttentionOverview:
        """What each head does, in five numbers."""
        heads = tuple(self._summaries.heads)
        return AttentionOverview(self.ablations, len(self.token_ids), heads)

    def attention_maps(self) -> AttentionMaps:
        """Every head's weights on a small grid."""
        maps = torch.stack(self._summaries.maps)
        return AttentionMaps(self.ablations, len(self.token_ids), pack(maps))

    @torch.inference_mode()
    def attention(self, layer: int, head: int) -> Attention:
        """Scores and weights ``[t, t]`` of one head."""
        self._check_head(head)
        return attention_answers.attention(self.seen(layer), layer, head, self.ablations)

    @torch.inference_mode()
    def attention_detail(self, layer: int, head: int, query: int) -> AttentionDetail:
        """One query of one head: vectors, dot products, scale, mask, softmax, weighted values."""
        self._check_head(head)
        self._check_position(query, "query")
        seen = self.seen(layer)
        return attention_answers.attention_detail(seen, layer, head, query, self.ablations)

    @torch.inference_mode()
    def rotation(self, layer: int, position: int) -> Rotation:
        """The angle by which each pair of dimensions is turned at a position.

        Raises ``InvalidRequest`` also where the text is a single token: angles are read off two.
        """
        self._check_position(position)
        if len(self.token_ids) < 2:
            raise InvalidRequest("rotation shows from two tokens on", field="token_ids")
        return attention_answers.rotation(self.seen(layer), layer, position, self.ablations)

    # ── the residual stream ──────────────────────────────────────────────────────────────────

    def hidden_norms(self) -> HiddenNorms:
        """Lengths of the residual stream and of what is added to it, everywhere."""
        return HiddenNorms(
            self.ablations,
            residual=tuple(numbers(x_tm.norm(dim=-1)) for x_tm in self.residuals),
            attention=tuple(map(numbers, self._summaries.attention)),
            mlp=tuple(map(numbers, self._summaries.mlp)),
        )

    @torch.inference_mode()
    def logit_lens(self, position: int, k: int = 5, layer: int | None = None) -> LogitLens:
        """What the model would say after ``position`` if it ended after a layer (-1: before the
        first); after each of them if ``layer`` is None."""
        self._check_position(position)
        check_top(k)
        num_layers = self.model.config.num_layers
        if layer is not None:
            check_index("layer", layer + 1, num_layers + 1)
        rows = stream.lens_rows(self.model, self.residuals, position, k)
        chosen = tuple(row for row in rows if layer in (None, row.layer))
        return LogitLens(self.ablations, position, chosen)

    @torch.inference_mode()
    def feed_forward(self, layer: int, position: int, k: int = 10) -> FeedForward:
        """The largest activations of a layer's MLP at a position."""
        self._check_position(position)
        check_top(k)
        return stream.feed_forward(self.seen(layer), layer, position, k, self.ablations)

    @torch.inference_mode()
    def logits(self, position: int) -> Tensor:
        """``[v]``: the logits of the token after a position, -inf for ids that no text has."""
        self._check_position(position)
        return self.model.sampled_logits(self.residuals[-1][position : position + 1])[0]

    @torch.inference_mode()
    def next_token(self, position: int, k: int = 10) -> NextToken:
        """The distribution after a position, whole, and its likeliest tokens."""
        check_top(k)
        logits_v = self.logits(position)
        return NextToken(
            self.ablations,
            position,
            entropy=entropy(logits_v),
            logsumexp=float(torch.logsumexp(logits_v, 0)),
            top=top_tokens(logits_v, k, self.model.piece),
            logits=pack(logits_v, np.float32),
        )

    def _check_head(self, head: int) -> None:
        check_index("head", head, self.model.config.num_attention_heads)

    def _check_position(self, position: int, field: str = "position") -> None:
        check_index(field, position, len(self.token_ids))
