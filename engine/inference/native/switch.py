"""When steps become native: at once where the library is built, and otherwise as soon as it is.

Nobody waits for a compiler. Where there is no library yet, a thread builds it, and the step after
that is the first native one.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Iterable

import torch

from engine.errors import InvalidRequest
from engine.inference.kv_cache.vocabulary import KVCache
from engine.inference.model.config import ModelConfig
from engine.inference.model.transformer import Transformer
from engine.inference.native.build import NativeUnavailable, build, find, load, writable_folder
from engine.inference.native.decoder import NativeDecoder, takes_all_steps
from engine.inference.native.weights import unsupported, unsupported_model
from engine.scheduling.plan import StepPlan

log = logging.getLogger(__name__)

MODE = "FIRSTTOKEN_NATIVE"
"""Environment variable: ``auto`` (the default) or ``off``."""


class NativeSteps:
    """The native decoder of one model and cache, from the moment on that there is one."""

    def __init__(
        self,
        transformer: Transformer,
        cache: KVCache,
        *,
        num_tokens: int,
        unknown_ids: Iterable[int] = (),
    ) -> None:
        """``num_tokens``, ``unknown_ids``: which ids can be sampled, see ``Sampler``.

        Raises:
            InvalidRequest: the environment asks for neither ``auto`` nor ``off``.
        """
        self._decoder: NativeDecoder | None = None
        self._transformer = transformer
        self._cache = cache
        self._num_tokens = num_tokens
        self._unknown_ids = list(unknown_ids)
        if _switched_off() or unsupported(transformer, cache) is not None:
            return
        if find() is not None:
            self._start()
        else:
            threading.Thread(target=self._start, name="native build", daemon=True).start()

    @property
    def nbytes(self) -> int:
        """Bytes that weights take in native form beside the transformer's own; 0 before the first
        native step, and where the transformer has that form alone. Decoders share them."""
        return 0 if self._decoder is None else self._decoder.nbytes

    @property
    def max_rows(self) -> int:
        """Tokens of a step up to which it runs natively; 0 as long as none does."""
        return 0 if self._decoder is None else self._decoder.max_rows

    def taking(self, plan: StepPlan) -> NativeDecoder | None:
        """Who runs this step natively; None where torch is to do it."""
        decoder = self._decoder
        return decoder if decoder is not None and decoder.takes(plan) else None

    def _start(self) -> None:
        library = _LIBRARY.get()
        if library is None:
            return
        try:
            self._decoder = NativeDecoder(
                self._transformer,
                self._cache,
                library,
                num_tokens=self._num_tokens,
                unknown_ids=self._unknown_ids,
            )
        except (ValueError, MemoryError, OSError) as error:
            log.warning("steps run in torch: %s", error)


def library_for_all_steps(config: ModelConfig, device: torch.device) -> ctypes.CDLL | None:
    """The library, where every step of such a model will be native from its first one on, so that
    torch's form of the weights is of use to nobody; None where it will not, or has still to be
    built.

    Raises:
        InvalidRequest: the environment asks for neither ``auto`` nor ``off``.
    """
    if _switched_off() or unsupported_model(config, device) is not None or find() is None:
        return None
    library = _LIBRARY.get()
    return library if library is not None and takes_all_steps(library) else None


def _switched_off() -> bool:
    mode = os.environ.get(MODE, "auto")
    if mode not in ("auto", "off"):
        raise InvalidRequest(f"{MODE} must be auto or off")
    return mode == "off"


class _Library:
    """The library of this process: found or built once, and one warning where it cannot be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tried = False
        self._library: ctypes.CDLL | None = None

    def get(self) -> ctypes.CDLL | None:
        with self._lock:
            if not self._tried:
                self._tried = True
                try:
                    self._library = load(find() or build(writable_folder()))
                except NativeUnavailable as error:
                    log.warning("steps run in torch, which is slower: %s", error)
            return self._library


_LIBRARY = _Library()


def wait_for_library() -> ctypes.CDLL | None:
    """Find or build the library now, for those who rather wait for it; None where there is none."""
    return None if os.environ.get(MODE, "auto") == "off" else _LIBRARY.get()
