"""A text through the model in another form, beside the file's own weights in float32.

Both run over the same tokens, whatever each of them would have said: so what is compared at a
position is what they make of one and the same text before it.

Shapes: t tokens · v vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from engine.inference.kv_cache.make import kv_bytes_per_token
from engine.inference.lane_settings import KVLayout, KVSettings, WeightSettings
from engine.inference.probes.arrays import divergence
from engine.inference.probes.format_documents import Fidelity
from engine.inference.probes.session import ProbeSession
from engine.inference.quantization.lane import Lane, chunks_through_cache

# Positions whose distributions are compared at once: 25 MB of logits for 50,000 tokens.
_CHUNK = 64


@torch.inference_mode()
def fidelity(
    plain: ProbeSession, lane: Lane, weights: WeightSettings, kv: KVSettings, source: str
) -> Fidelity:
    """How far ``lane`` with a cache of that kind is from what ``plain`` holds of the same text.

    What a step of 64 positions writes into the cache, it reads back from there. Where the cache
    lies, or that there is none, changes no number, so all run through a paged one here.
    """
    model, token_ids = plain.model, plain.token_ids
    run = chunks_through_cache(
        lane.transformer, replace(kv, layout=KVLayout.PAGED), longest=len(token_ids), chunk=_CHUNK
    )
    kl: list[float] = []
    same: list[bool] = []
    tally, reference = _Tally(), _Tally()
    for start, logits_tv in zip(range(0, len(token_ids), _CHUNK), run(token_ids), strict=True):
        rows = slice(start, start + _CHUNK)
        p_tv = model.sampled_logits(plain.residuals[-1][rows]).log_softmax(-1)
        q_tv = model.only_known(logits_tv.float().cpu()).log_softmax(-1)
        kl += divergence(p_tv, q_tv).tolist()
        same += (p_tv.argmax(-1) == q_tv.argmax(-1)).tolist()
        following = torch.tensor(token_ids[start + 1 : start + 1 + _CHUNK])
        tally.add(q_tv, following)
        reference.add(p_tv, following)
    transformer = lane.transformer
    per_token = kv_bytes_per_token(model.config, transformer.dtype, kv.format)
    return Fidelity(
        weights=weights.name,
        kv_cache=kv.name,
        activations=str(transformer.dtype).removeprefix("torch."),
        source=source,
        num_tokens=len(token_ids),
        kl=tuple(kl),
        same_top=tuple(same),
        mean_kl=sum(kl) / len(kl),
        top1_agreement=sum(same) / len(same),
        perplexity=tally.perplexity,
        reference_perplexity=reference.perplexity,
        accuracy=tally.accuracy,
        reference_accuracy=reference.accuracy,
        weight_bytes=lane.weight_bytes,
        bits_per_weight=lane.bits_per_weight,
        kv_bytes_per_token=0 if kv.layout is KVLayout.OFF else per_token,
    )


class _Tally:
    """How well the tokens of a text were foreseen; NaN as long as there was none."""

    def __init__(self) -> None:
        self._count = 0
        self._right = 0
        self._nats = 0.0

    def add(self, logprobs_tv: Tensor, following_t: Tensor) -> None:
        """The tokens that follow these positions; the last position may have none."""
        rows_tv = logprobs_tv[: len(following_t)]
        self._count += len(following_t)
        self._right += int((rows_tv.argmax(-1) == following_t).sum())
        self._nats -= float(rows_tv.gather(1, following_t.unsqueeze(1)).double().sum())

    @property
    def perplexity(self) -> float:
        if not self._count:
            return math.nan
        mean = self._nats / self._count
        return math.exp(mean) if mean < 700 else math.inf

    @property
    def accuracy(self) -> float:
        return self._right / self._count if self._count else math.nan
