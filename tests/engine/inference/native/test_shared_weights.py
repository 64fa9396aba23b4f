"""Decoders of one transformer share what was packed for it, and nothing keeps it beyond them."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch

from engine.inference.lane_settings import KVFormat, KVSettings
from engine.inference.model.load import load_transformer
from engine.inference.model.transformer import Transformer
from engine.inference.native import weights
from engine.inference.native.decoder import NativeDecoder
from engine.inference.native.switch import NativeSteps
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.native.steps import decoder, library, step
from tests.engine.inference.runs_for_tests import CPU, new_cache, plan, random_ids, sequence, tiny


def _native(steps: NativeSteps) -> NativeDecoder:
    native = steps.taking(plan(sequence([1], table=[0])))
    assert native is not None
    return native


def test_lanes_of_one_transformer_share_their_packed_weights_while_any_of_them_lives() -> None:
    library()  # so that steps are native at once
    transformer = load_transformer(tiny_random_checkpoint(), torch.float32, CPU)
    first, second = (
        NativeSteps(transformer, new_cache(transformer), num_tokens=512) for _ in range(2)
    )
    packed = _native(first)._weights.packed
    assert _native(second)._weights.packed is packed
    assert first.nbytes == second.nbytes == packed.nbytes > 0
    gone, model_gone = weakref.ref(packed), weakref.ref(transformer)
    del packed, transformer, first
    gc.collect()
    assert gone() is not None
    del second
    gc.collect()
    assert gone() is None
    assert model_gone() is None


def test_other_weights_are_packed_for_themselves() -> None:
    plain = decoder(tiny(), new_cache(tiny()))
    other = decoder(tiny(torch.bfloat16), new_cache(tiny(torch.bfloat16)))
    assert plain._weights.packed is not other._weights.packed


def test_threads_that_ask_at_once_pack_once(monkeypatch: pytest.MonkeyPatch) -> None:
    transformer = load_transformer(tiny_random_checkpoint(), torch.float32, CPU)
    packs: list[int] = []
    pack = weights._pack

    def counted(*arguments):
        packs.append(1)
        return pack(*arguments)

    monkeypatch.setattr(weights, "_pack", counted)
    made: list[NativeDecoder] = []
    threads = [
        threading.Thread(target=lambda: made.append(decoder(transformer, new_cache(transformer))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    assert len(packs) == 1


def test_each_decoder_has_its_own_cache_and_window() -> None:
    """Two decoders that share, in turns, against two that have a transformer for themselves."""
    settings = [KVSettings(), KVSettings(format=KVFormat.INT8, window=8)]
    texts = [random_ids(24, seed=seed) for seed in (1, 2)]

    def last_logits(transformers: list[Transformer]) -> list[torch.Tensor]:
        natives = [
            decoder(t, new_cache(t, settings=s))
            for t, s in zip(transformers, settings, strict=True)
        ]
        for at in range(24):
            last = [
                step(native, sequence([text[at]], start=at, table=[3, 1]))["a"]
                for native, text in zip(natives, texts, strict=True)
            ]
        return last

    alone = [load_transformer(tiny_random_checkpoint(), torch.float32, CPU) for _ in range(2)]
    shared, expected = last_logits([tiny(), tiny()]), last_logits(alone)
    assert all(torch.equal(a, b) for a, b in zip(shared, expected, strict=True))
