"""Runs a step natively: one call from token ids to logits.

Shapes: t rows (tokens of all sequences of a step) · n rows that give logits · v vocabulary.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.inference.kv_cache.vocabulary import KVCache
from engine.inference.model.transformer import Transformer
from engine.inference.native.abi import StepSpec
from engine.inference.native.weights import native_weights, unsupported
from engine.inference.sampling import LogitSummary
from engine.scheduling.plan import ScheduledSequence, StepPlan

MAX_PLAIN_ROWS = 96
"""Where the matrix kernels use no AVX-512, steps of more tokens are left to torch."""

ALL_ROWS = 2**31 - 1
"""Elsewhere there is no such limit."""

_STAGES: tuple[str, ...] = ("embed", "layers", "logits")


@dataclass(frozen=True, slots=True)
class NativeLogits:
    """``logits_nv`` in float32, ``num_sampled`` rows of each of ``sampled``, in the plan's order.
    They lie in memory that the next step uses again. ``stages``: seconds of embed, layers, logits.
    """

    logits_nv: Tensor
    summary: LogitSummary
    sampled: tuple[ScheduledSequence, ...]
    stages: dict[str, float]


def takes_all_steps(library: ctypes.CDLL) -> bool:
    """Whether steps of any number of tokens are faster natively than in torch."""
    return library.matmul_path() == b"avx512"


class NativeDecoder:
    """A transformer and its KV cache for native steps. One step at a time."""

    def __init__(
        self,
        transformer: Transformer,
        cache: KVCache,
        library: ctypes.CDLL,
        *,
        num_tokens: int,
        unknown_ids: Iterable[int] = (),
    ) -> None:
        """``num_tokens``, ``unknown_ids``: which ids can be sampled, see ``Sampler``.

        Raises:
            ValueError: the model or cache is not supported.
            MemoryError: there is no memory for it, or no thread.
        """
        reason = unsupported(transformer, cache)
        if reason is not None:
            raise ValueError(reason)
        holes = [token for token in set(unknown_ids) if token < num_tokens]
        self._weights = native_weights(
            transformer, cache, library, num_tokens=num_tokens, unknown_ids=holes
        )
        self._vocab_size = transformer.config.vocab_size
        self._max_positions = transformer.rotary[0].max_positions
        self._library = library
        self._handle = library.firsttoken_new(self._weights.spec)
        if not self._handle:
            raise MemoryError("there is no memory for the native step")
        self.max_rows = ALL_ROWS if takes_all_steps(library) else MAX_PLAIN_ROWS
        self._step = StepSpec()
        self._stages = np.zeros(len(_STAGES))
        self._step.stages = self._stages.ctypes.data
        self._logits_nv = torch.empty(0, self._vocab_size)
        self._likeliest_n = torch.empty(0, dtype=torch.int32)
        self._logsumexp_n = torch.empty(0)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.firsttoken_free(self._handle)

    @property
    def nbytes(self) -> int:
        """Bytes that its packed weights take, which decoders of the same transformer share."""
        return self._weights.nbytes

    def takes(self, plan: StepPlan) -> bool:
        """Whether this step is one for native code."""
        return plan.num_tokens <= self.max_rows

    def logits(self, plan: StepPlan, num_layers: int | None = None) -> NativeLogits:
        """Run a step: store its keys and values, and give the logits of the rows that sample.

        ``num_layers``: so many of the first layers, then the final norm and the head; all if None.

        Raises:
            ValueError: the plan is empty, a sequence has no tokens or too few blocks, the model has
                not so many layers, or it does not know a token or a position.
            MemoryError: there is no memory for it, or no thread.
        """
        most = self._weights.spec.num_layers
        if num_layers is not None and not 1 <= num_layers <= most:
            raise ValueError(f"the model has {most} layers")
        sampled, arrays = self._lay_out(plan.sequences)
        count = sum(sequence.num_sampled for sequence in sampled)
        self._make_room(count)
        step = self._step
        step.num_sampled = count
        self._stages.fill(0)
        step.num_threads = torch.get_num_threads()
        step.num_layers = num_layers or most
        if self._library.firsttoken_step(self._handle, step):
            raise MemoryError("there is no memory or no thread for a native step")
        del arrays  # they had to live until here
        stages = dict(zip(_STAGES, self._stages.tolist(), strict=True))
        summary = LogitSummary(self._likeliest_n[:count].long(), self._logsumexp_n[:count])
        return NativeLogits(self._logits_nv[:count], summary, sampled, stages)

    def _lay_out(
        self, sequences: Sequence[ScheduledSequence]
    ) -> tuple[tuple[ScheduledSequence, ...], object]:
        """Describe the rows in ``_step``; the sequences that sample, and the memory of it all."""
        if not sequences:
            raise ValueError("a step needs at least one sequence")
        token_ids: list[int] = []
        blocks: list[int] = []
        first_rows, starts, first_blocks = [0], [], []
        sample_rows: list[int] = []
        sampled: list[ScheduledSequence] = []
        block_size = self._weights.spec.block_size
        for sequence in sequences:
            token_ids += sequence.token_ids
            used = -(-(sequence.start + sequence.num_tokens) // block_size)
            if sequence.num_tokens == 0:
                raise ValueError("a scheduled sequence needs at least one token")
            if sequence.start + sequence.num_tokens > self._max_positions:
                raise ValueError(f"a scheduled sequence is longer than {self._max_positions}")
            if len(sequence.block_table) < used:
                raise ValueError("a scheduled sequence has too few blocks for its tokens")
            first_blocks.append(len(blocks))
            blocks += sequence.block_table[:used]
            starts.append(sequence.start)
            first_rows.append(len(token_ids))
            if sequence.samples:
                sample_rows += range(len(token_ids) - sequence.num_sampled, len(token_ids))
                sampled.append(sequence)
        # Native code reads whatever stands there, beyond a table as well.
        if min(token_ids) < 0 or max(token_ids) >= self._vocab_size:
            raise ValueError("a scheduled sequence has a token that the model does not know")
        parts = (token_ids, first_rows, starts, first_blocks, blocks, sample_rows)
        memory = np.array([number for part in parts for number in part], dtype=np.int32)
        step, at = self._step, memory.ctypes.data
        names = ("token_ids", "first_rows", "starts", "first_blocks", "blocks", "sample_rows")
        for name, part in zip(names, parts, strict=True):
            setattr(step, name, at)
            at += memory.itemsize * len(part)
        step.num_sequences = len(sequences)
        return tuple(sampled), memory

    def _make_room(self, count: int) -> None:
        if count <= len(self._logits_nv):
            return
        self._logits_nv = torch.empty(count, self._vocab_size)
        self._likeliest_n = torch.empty(count, dtype=torch.int32)
        self._logsumexp_n = torch.empty(count)
        self._step.logits = self._logits_nv.data_ptr()
        self._step.likeliest = self._likeliest_n.data_ptr()
        self._step.logsumexp = self._logsumexp_n.data_ptr()
