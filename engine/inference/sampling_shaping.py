"""What changes the logits of single tokens before temperature: penalties, biases and masks.

Only rows that ask for it come here. What a text has of each token is counted once and then kept up
with it, so a step of a long text costs as much as one of a short one.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from engine.inference.sampling_params import SamplingParams

# Texts whose counts are kept. With more penalised requests at once, some are counted anew each
# step: slower, and the same.
_TEXTS = 256


class SampledText(Protocol):
    """What is looked at of a row; see ``engine.inference.sampling.SampleRow``."""

    @property
    def params(self) -> SamplingParams: ...
    @property
    def prompt_token_ids(self) -> Sequence[int]: ...
    @property
    def output_token_ids(self) -> Sequence[int]: ...
    @property
    def draft_token_ids(self) -> Sequence[int]: ...
    @property
    def masked_ids(self) -> Collection[int]: ...


class Shaper:
    """Applies the penalties, biases and masks of rows, in this order."""

    def __init__(self, num_tokens: int, device: torch.device) -> None:
        """Ids from ``num_tokens`` on have no logit; whatever names one is ignored for it."""
        self._num_tokens = num_tokens
        self._device = device
        self._texts: OrderedDict[tuple[int, int, int], _Text] = OrderedDict()

    def shape_(self, logits_v: Tensor, row: SampledText) -> None:
        """Change one row of logits in place. Masks that would leave nothing are not applied."""
        if row.params.shapes:
            self._text(row).shape_(logits_v, row.draft_token_ids)
        masked = [token for token in row.masked_ids if token < self._num_tokens]
        if masked:
            ids = torch.tensor(masked, device=self._device)
            before = logits_v[ids]
            logits_v[ids] = -math.inf
            if logits_v.amax() == -math.inf:
                logits_v[ids] = before

    def _text(self, row: SampledText) -> _Text:
        """What is known of the row's request, from its last step on.

        It is found by which objects the row refers to: the text keeps hold of them, so no other
        object can have the same identity in the meantime.
        """
        key = (id(row.params), id(row.prompt_token_ids), id(row.output_token_ids))
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = _Text(row, self._num_tokens, self._device)
            if len(self._texts) > _TEXTS:
                self._texts.popitem(last=False)
        self._texts.move_to_end(key)
        return text


class _Text:
    """One request: its biases as tensors, and how often its text has each token."""

    def __init__(self, row: SampledText, num_tokens: int, device: torch.device) -> None:
        self._params = row.params
        self._prompt = row.prompt_token_ids
        self._output = row.output_token_ids
        self._device = device
        pairs = [pair for pair in row.params.logit_bias if pair[0] < num_tokens]
        self._biased_ids = torch.tensor([i for i, _ in pairs], dtype=torch.int64, device=device)
        self._biases = torch.tensor([b for _, b in pairs], dtype=torch.float32, device=device)
        self._counts = _TokenCounts(self._prompt, num_tokens)
        self._num_counted = 0

    def shape_(self, logits_v: Tensor, draft_token_ids: Sequence[int]) -> None:
        if self._params.penalises:
            self._counts.add(self._output[self._num_counted :])
            self._num_counted = len(self._output)
            self._counts.add(draft_token_ids)
            self._penalise_(logits_v)
            self._counts.add(draft_token_ids, times=-1)
        if len(self._biases):
            logits_v.index_add_(0, self._biased_ids, self._biases)

    def _penalise_(self, logits_v: Tensor) -> None:
        params = self._params
        ids, everywhere, in_output = (
            torch.from_numpy(array).to(self._device) for array in self._counts.arrays
        )
        logits = logits_v[ids]
        if params.repetition_penalty != 1:
            factor = params.repetition_penalty
            # Dividing a negative logit would make its token likelier.
            penalised = torch.where(logits > 0, logits / factor, logits * factor)
            logits = torch.where(everywhere > 0, penalised, logits)
        logits -= params.frequency_penalty * in_output
        logits -= params.presence_penalty * (in_output > 0)
        logits_v[ids] = logits


class _TokenCounts:
    """Distinct tokens of a text, each with how often it is anywhere and in the output."""

    def __init__(self, prompt: Sequence[int], num_tokens: int) -> None:
        self._num_tokens = num_tokens
        ids, counts = np.unique(np.asarray(prompt, dtype=np.int64), return_counts=True)
        known = ids < num_tokens
        self._ids = ids[known]
        self._everywhere = counts[known].astype(np.float32)
        self._in_output = np.zeros_like(self._everywhere)
        self._places = {token: place for place, token in enumerate(self._ids.tolist())}

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids (int64), counts anywhere and counts in the output (float32), of the same length.
        A token whose drafts were taken back may have no count any more."""
        used = len(self._places)
        return self._ids[:used], self._everywhere[:used], self._in_output[:used]

    def add(self, output: Sequence[int], times: int = 1) -> None:
        """Count tokens of the output ``times`` times; -1 takes them back."""
        for token in output:
            if token >= self._num_tokens:
                continue
            place = self._places.setdefault(token, len(self._places))
            if place == len(self._ids):
                self._grow()
            self._ids[place] = token
            self._everywhere[place] += times
            self._in_output[place] += times

    def _grow(self) -> None:
        """Twice the room, so that a text of n tokens copies its counts log n times."""
        more = max(64, len(self._ids))
        self._ids = np.concatenate((self._ids, np.zeros(more, np.int64)))
        self._everywhere = np.concatenate((self._everywhere, np.zeros(more, np.float32)))
        self._in_output = np.concatenate((self._in_output, np.zeros(more, np.float32)))
