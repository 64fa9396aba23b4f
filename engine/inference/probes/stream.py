"""Answers about the residual stream: the logit lens, and what an MLP does.

Shapes: t tokens · m model width · i width of the MLP · v vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.inference.probes.arrays import entropy, top_tokens
from engine.inference.probes.documents import Activation, FeedForward, LensRow
from engine.inference.probes.model import ProbeModel

FEED_FORWARD_POINTS = ("gate", "up", "act", "mlp_out")
"""What is recorded of a layer for ``feed_forward``."""


def lens_rows(
    model: ProbeModel, residuals: Sequence[Tensor], position: int, k: int
) -> list[LensRow]:
    """A row for the embedding and one for each layer. The last is what the model says."""
    logits_lv = model.sampled_logits(torch.stack([x_tm[position] for x_tm in residuals]))
    said = int(logits_lv[-1].argmax())
    return [
        LensRow(
            layer=index - 1,
            entropy=entropy(logits_v),
            rank=int((logits_v > logits_v[said]).sum()),
            top=top_tokens(logits_v, k, model.piece),
        )
        for index, logits_v in enumerate(logits_lv)
    ]


def feed_forward(
    seen: Mapping[str, Tensor], layer: int, position: int, k: int, ablations: tuple[str, ...]
) -> FeedForward:
    """The ``k`` activations of largest size at a position of a layer."""
    act_i = seen["act"][position]
    gate_ti, up_ti = seen.get("gate"), seen.get("up")
    squares, ids = act_i.square().topk(min(k, len(act_i)))
    norm = float(act_i.norm())
    return FeedForward(
        ablations=ablations,
        layer=layer,
        position=position,
        width=len(act_i),
        norm=norm,
        top_share=float(squares.sum()) / norm**2 if norm else 0.0,
        output_norm=float(seen["mlp_out"][position].norm()),
        top=tuple(
            Activation(
                index,
                value=float(act_i[index]),
                gate=None if gate_ti is None else float(gate_ti[position, index]),
                up=None if up_ti is None else float(up_ti[position, index]),
            )
            for index in ids.tolist()
        ),
    )
