"""The model as it is beside the model without a part: at every position, and going on by itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.errors import InvalidRequest
from engine.inference.probes.ablations import Ablation
from engine.inference.probes.arrays import check_index, check_top, divergence, top_tokens
from engine.inference.probes.documents import Comparison, Continuation, TokenPiece
from engine.inference.probes.limits import MAX_CONTINUATION
from engine.inference.probes.model import ProbeModel
from engine.inference.probes.session import ProbeSession

# Positions whose distributions are compared at once: 25 MB of logits for 50,000 tokens.
_CHUNK = 64


@torch.inference_mode()
def compare(
    plain: ProbeSession, ablations: Sequence[Ablation], k: int = 5, max_tokens: int = 8
) -> Comparison:
    """A session's text with and without some parts of the model, and how each goes on.

    Every further token runs both texts through all layers again.

    Raises:
        InvalidRequest: the session is an ablated one itself, or a value is out of range.
    """
    check_top(k)
    check_index("max_tokens", max_tokens, MAX_CONTINUATION + 1)
    if plain.ablations:
        raise InvalidRequest("compare from the model as it is", field="ablations")
    ablated = ProbeSession(plain.model, plain.token_ids, ablations)
    kl, same = _divergence(plain, ablated)
    texts = _go_on(plain, ablated, max_tokens)
    return Comparison(
        ablations=ablated.ablations,
        kl=tuple(kl),
        same_top=same / len(plain.token_ids),
        as_it_is=_continuation(plain, texts[0], k),
        ablated=_continuation(ablated, texts[1], k),
    )


def _divergence(plain: ProbeSession, ablated: ProbeSession) -> tuple[list[float], int]:
    """KL(plain ‖ ablated) in nats at each position; how often both rank the same token first."""
    model, kl, same = plain.model, list[float](), 0
    for start in range(0, len(plain.token_ids), _CHUNK):
        rows = slice(start, start + _CHUNK)
        p_tv = _logprobs(model, plain.residuals[-1][rows])
        q_tv = _logprobs(model, ablated.residuals[-1][rows])
        same += int((p_tv.argmax(-1) == q_tv.argmax(-1)).sum())
        kl += divergence(p_tv, q_tv).tolist()
    return kl, same


def _logprobs(model: ProbeModel, residual_tm: Tensor) -> Tensor:
    return model.sampled_logits(residual_tm).log_softmax(-1)


def _go_on(plain: ProbeSession, ablated: ProbeSession, max_tokens: int) -> list[list[int]]:
    """The likeliest tokens that follow, one after the other, until an end token, by each."""
    model = plain.model
    ends = frozenset(model.config.eos_token_ids)
    sessions = (plain, ablated)
    answers = [[int(s.logits(len(s.token_ids) - 1).argmax())] for s in sessions]
    for _ in range(max_tokens - 1):
        going = [i for i, answer in enumerate(answers) if answer[-1] not in ends]
        if not going:
            break
        logits = model.next_logits(
            [[*plain.token_ids, *answers[i]] for i in going], [sessions[i].tap for i in going]
        )
        for i, logits_v in zip(going, logits, strict=True):
            answers[i].append(int(logits_v.argmax()))
    return [answer[:max_tokens] for answer in answers]


def _continuation(session: ProbeSession, token_ids: list[int], k: int) -> Continuation:
    model = session.model
    return Continuation(
        top=top_tokens(session.logits(len(session.token_ids) - 1), k, model.piece),
        tokens=tuple(TokenPiece(token, model.piece(token)) for token in token_ids),
        text=model.text(token_ids),
    )
