"""The embedding table: rows, neighbours by cosine, and a map of a few rows.

Shapes: v rows · m model width · n tokens asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from engine.errors import InvalidRequest
from engine.inference.probes.arrays import Piece, check_ids, check_index, check_top, numbers
from engine.inference.probes.documents import (
    Analogy,
    EmbeddingMap,
    EmbeddingRow,
    Embeddings,
    Neighbour,
    Neighbours,
    TokenPiece,
)
from engine.inference.probes.limits import MAX_ROWS
from engine.inference.weights.ggml_types import StorageType
from engine.refusals import refused

# Rows whose lengths are computed at once: their squares stay in the processor's caches.
_CHUNK = 1_024

# Unit rows that are equal leave no more than this of each other.
_NOTHING = 1e-5


class EmbeddingTable:
    """Answers about the rows of a table ``[v, m]``."""

    def __init__(
        self,
        table: Callable[[], Tensor],
        storage: StorageType,
        piece: Piece,
        num_tokens: int,
        unknown: Tensor,
    ) -> None:
        """``table``: gives the float32 table. ``storage``: how the file keeps it. Neighbours are
        ids below ``num_tokens`` that are not in ``unknown``."""
        self._table = table
        self._storage = storage
        self._piece = piece
        self._num_tokens = num_tokens
        self._unknown = unknown
        self._norms: Tensor | None = None

    def rows(self, token_ids: Sequence[int]) -> Embeddings:
        """The rows of up to ``MAX_ROWS`` tokens.

        Raises:
            InvalidRequest: no tokens, too many, or one without a row.
        """
        table_vm = self._table()
        check_ids(token_ids, MAX_ROWS, len(table_vm))
        rows_nm = table_vm[torch.tensor(token_ids)]
        norms = rows_nm.norm(dim=1).tolist()
        row_bytes = self._storage.row_bytes(table_vm.shape[1])
        return Embeddings(
            table_shape=(table_vm.shape[0], table_vm.shape[1]),
            stored_as=self._storage.name,
            row_bytes=row_bytes,
            table_bytes=row_bytes * len(table_vm),
            flops=0,
            rows=tuple(
                EmbeddingRow(token, self._piece(token), norm, numbers(row_m))
                for token, norm, row_m in zip(token_ids, norms, rows_nm, strict=True)
            ),
        )

    @torch.inference_mode()
    def neighbours(self, token_id: int, k: int = 10) -> Neighbours:
        """The ``k`` tokens whose rows have the largest cosine with one token's.

        Raises:
            InvalidRequest: there is no such token, or k is out of range.
        """
        check_index("token_id", token_id, self._num_tokens)
        return Neighbours(self._token(token_id), self._near([token_id], [], k))

    @torch.inference_mode()
    def analogy(self, plus: Sequence[int], minus: Sequence[int], k: int = 10) -> Analogy:
        """The ``k`` tokens nearest to a sum of rows, each of length 1, less other rows (Mikolov,
        Yih, Zweig 2013, "Linguistic regularities in continuous space word representations").

        Raises:
            InvalidRequest: no tokens to add, too many or unknown ones, nothing left of them, or k
                is out of range.
        """
        check_ids([*plus, *minus], MAX_ROWS, self._num_tokens)
        if not plus:
            raise refused("nothing_to_add", field="plus")
        return Analogy(
            tuple(map(self._token, plus)),
            tuple(map(self._token, minus)),
            self._near(plus, minus, k),
        )

    def _near(self, plus: Sequence[int], minus: Sequence[int], k: int) -> tuple[Neighbour, ...]:
        check_top(k)
        table_vm, norms_v = self._table()[: self._num_tokens], self._lengths()
        asked = [*plus, *minus]
        signs_n = torch.tensor([1.0] * len(plus) + [-1.0] * len(minus))
        target_m = (signs_n / norms_v[asked]) @ table_vm[asked]
        length = float(target_m.norm())
        if minus and length < _NOTHING:
            raise refused("sum_is_nothing", field="minus")
        cosines_v = table_vm @ (target_m / (length or 1.0)) / norms_v
        cosines_v[asked] = cosines_v[self._unknown] = -2.0  # below every cosine
        left = self._num_tokens - len(set(asked)) - len(self._unknown)
        values, ids = cosines_v.topk(min(k, left))
        return tuple(
            Neighbour(token, self._piece(token), cosine)
            for token, cosine in zip(ids.tolist(), values.tolist(), strict=True)
        )

    def _token(self, token_id: int) -> TokenPiece:
        return TokenPiece(token_id, self._piece(token_id))

    @torch.inference_mode()
    def map(self, token_ids: Sequence[int]) -> EmbeddingMap:
        """Cosines of all pairs, and the first two principal components of the rows.

        Raises:
            InvalidRequest: fewer than three different tokens, or more than ``MAX_ROWS``.
        """
        table_vm = self._table()
        check_ids(token_ids, MAX_ROWS, self._num_tokens)
        if len(set(token_ids)) < 3:
            raise InvalidRequest("a map needs three different tokens", field="token_ids")
        rows_nm = table_vm[torch.tensor(token_ids)].double()
        unit_nm = functional.normalize(rows_nm, dim=1)
        centred_nm = rows_nm - rows_nm.mean(0)
        left_nn, spread_n, _ = torch.linalg.svd(centred_nm, full_matrices=False)
        coordinates = (left_nn[:, :2] * spread_n[:2]).tolist()
        explained = (spread_n[:2] ** 2 / (spread_n**2).sum()).tolist()
        return EmbeddingMap(
            tokens=tuple(TokenPiece(token, self._piece(token)) for token in token_ids),
            cosines=tuple(map(numbers, unit_nm @ unit_nm.T)),
            coordinates=tuple((x, y) for x, y in coordinates),
            explained=(explained[0], explained[1]),
        )

    def _lengths(self) -> Tensor:
        """Lengths of all rows ``[v]``, at least the smallest number above 0: a row of zeros has a
        cosine of 0 with all others."""
        if self._norms is None:
            parts = self._table()[: self._num_tokens].split(_CHUNK)
            smallest = torch.finfo(torch.float32).tiny
            self._norms = torch.cat([part.norm(dim=1) for part in parts]).clamp_(min=smallest)
        return self._norms
