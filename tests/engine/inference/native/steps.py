"""Native decoders of small models, for tests."""

from __future__ import annotations

from functools import cache

from engine.inference.kv_cache.vocabulary import KVCache
from engine.inference.model.transformer import Transformer
from engine.inference.native.build import build, find, load, writable_folder
from engine.inference.native.decoder import NativeDecoder
from engine.inference.sampling import LogitSummary
from engine.scheduling.plan import ScheduledSequence
from tests.engine.inference.runs_for_tests import plan


@cache
def library():
    """The library of these sources, built if nobody has yet."""
    return load(find() or build(writable_folder()))


def decoder(transformer: Transformer, kv_cache: KVCache, **settings) -> NativeDecoder:
    settings.setdefault("num_tokens", transformer.config.vocab_size)
    return NativeDecoder(transformer, kv_cache, library(), **settings)


def step(native: NativeDecoder, *sequences: ScheduledSequence):
    """Run one step; the logits of each sequence that samples, by request id."""
    result = native.logits(plan(*sequences))
    return {
        s.request_id: row.clone() for s, row in zip(result.sampled, result.logits_nv, strict=True)
    }


def summary(native: NativeDecoder, *sequences: ScheduledSequence) -> LogitSummary:
    return native.logits(plan(*sequences)).summary
