"""The other peer: llama.cpp on the same weights at the same bits, through its own batch interface.

Driven as lightly as it can be: one ``llama_decode`` a step over all sequences, and numpy's argmax.
The package is not a dependency: it is built by ``make install-bench``, and without it its columns
are left out.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from engine.catalog.this_machine import state_dir
from tests.benchmarks.workload import FirstToken, Prompt, Timing, Workload

FILE_TYPES = {"BF16": 32, "Q8_0": 7, "Q4_0": 2, "Q4_1": 3}
"""llama.cpp's numbers of the formats compared here (``llama_ftype`` in its ``llama.h``)."""

_LARGEST_BATCH = 2_048
_SPARE_TOKENS = 16


def llama_cpp_version() -> str | None:
    """The version of llama-cpp-python, None where it is not installed."""
    if importlib.util.find_spec("llama_cpp") is None:
        return None
    return version("llama-cpp-python")


def load_library() -> ModuleType:
    """The package, imported.

    Raises:
        ImportError: it is not installed.
    """
    return importlib.import_module("llama_cpp")


def quantized_file(source: Path, file_type: str) -> Path:
    """The model of ``source`` in another format, made once and kept in the state folder.

    Raises:
        RuntimeError: llama.cpp could not make it.
    """
    target = state_dir() / "benchmarks" / f"{source.stem}.{file_type}.gguf"
    if target.exists():
        return target
    library: Any = load_library()
    target.parent.mkdir(parents=True, exist_ok=True)
    params = library.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[file_type]
    params.allow_requantize = True
    # Every matrix in the one format that is compared, the head (and embedding) included.
    params.pure = True
    part = target.with_suffix(".part")
    code = library.llama_model_quantize(
        str(source).encode(), str(part).encode(), ctypes.byref(params)
    )
    if code:
        raise RuntimeError(f"llama.cpp could not make a {file_type} file (code {code})")
    part.rename(target)
    return target


class LlamaCppPeer:
    """One file in llama.cpp, with as many threads as ours."""

    def __init__(self, file: Path, threads: int) -> None:
        self.weight_bytes = file.stat().st_size
        self._threads = threads
        self._library: Any = load_library()
        self._library.llama_backend_init()
        self._log = self._library.llama_log_callback(lambda level, text, data: None)
        self._library.llama_log_set(self._log, ctypes.c_void_p(0))
        params = self._library.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = self._library.llama_model_load_from_file(str(file).encode(), params)
        vocab = self._library.llama_model_get_vocab(self._model)
        self._vocab_size = int(self._library.llama_vocab_n_tokens(vocab))
        self._contexts: dict[tuple[int, int], Any] = {}

    def run(self, workload: Workload) -> Timing:
        """Run one workload; a decode's prefill is not timed."""
        context = self._context(workload)
        library = self._library
        library.llama_memory_clear(library.llama_get_memory(context), True)
        prompts = workload.prompts(self._vocab_size)
        started = time.perf_counter()
        ids = [self._prefill(context, index, prompt) for index, prompt in enumerate(prompts)]
        if not workload.new_tokens:
            return Timing(time.perf_counter() - started, tuple((token,) for token in ids))
        outputs: list[list[int]] = [[] for _ in prompts]
        started = time.perf_counter()
        for step in range(workload.new_tokens):
            position = workload.prompt_tokens + step
            ids = self._decode(context, [(t, position, s, True) for s, t in enumerate(ids)])
            for output, token in zip(outputs, ids, strict=True):
                output.append(token)
        return Timing(time.perf_counter() - started, tuple(map(tuple, outputs)))

    def first_token(self, prompt: Prompt) -> FirstToken:
        """From the ids to the likeliest next one; turning text into ids is not in it."""
        context = self._context(Workload(1, len(prompt.token_ids)))
        library = self._library
        library.llama_memory_clear(library.llama_get_memory(context), True)
        started = time.perf_counter()
        token_id = self._prefill(context, 0, list(prompt.token_ids))
        return FirstToken(time.perf_counter() - started, token_id)

    def _prefill(self, context: Any, sequence: int, prompt: list[int]) -> int:
        last = len(prompt) - 1
        rows = [(token, i, sequence, i == last) for i, token in enumerate(prompt)]
        return self._decode(context, rows)[0]

    def _decode(self, context: Any, rows: list[tuple[int, int, int, bool]]) -> list[int]:
        """One call over rows of (token, position, sequence, whether it gives logits)."""
        library = self._library
        batch = library.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, gives) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, gives
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        code = library.llama_decode(context, batch)
        library.llama_batch_free(batch)
        if code:
            raise RuntimeError(f"llama_decode failed (code {code})")
        wanted = [i for i, row in enumerate(rows) if row[3]]
        return [self._likeliest(context, i) for i in wanted]

    def _likeliest(self, context: Any, row: int) -> int:
        logits = self._library.llama_get_logits_ith(context, row)
        return int(np.ctypeslib.as_array(logits, shape=(self._vocab_size,)).argmax())

    def _context(self, workload: Workload) -> Any:
        length = workload.prompt_tokens + workload.new_tokens + _SPARE_TOKENS
        key = (workload.batch, length)
        if key not in self._contexts:
            params = self._library.llama_context_default_params()
            params.n_ctx = workload.batch * length
            params.n_seq_max = workload.batch
            params.n_batch = params.n_ubatch = _LARGEST_BATCH
            params.n_ubatch = 512
            params.n_threads = params.n_threads_batch = self._threads
            self._contexts[key] = self._library.llama_init_from_model(self._model, params)
        return self._contexts[key]
