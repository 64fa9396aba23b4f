"""Saved runs in the database: kept for a time, found by an id that cannot be guessed."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
import zlib
from collections.abc import Callable

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from webapp.store.records import Receipt, StoredRun, StoreFull, WrongToken
from webapp.store.tables import runs

ID_BYTES = 12
"""96 bits: who does not know an address does not find a run."""
TOKEN_BYTES = 32


class RunTable:
    """Reads and writes saved runs. What has expired is not found, and is deleted on the way."""

    def __init__(
        self,
        engine: AsyncEngine,
        keep_s: float,
        total_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._keep_s = keep_s
        self._total_bytes = total_bytes
        self._clock = clock

    async def save(self, document: bytes) -> Receipt:
        """Keeps a run.

        Raises:
            StoreFull: there is no room for it.
        """
        packed = zlib.compress(document, 6)
        created = int(self._clock())
        token = secrets.token_urlsafe(TOKEN_BYTES)
        receipt = Receipt(
            secrets.token_urlsafe(ID_BYTES), created, created + int(self._keep_s), token
        )
        async with self._engine.begin() as connection:
            await connection.execute(delete(runs).where(runs.c.expires <= created))
            taken = await connection.scalar(select(func.coalesce(func.sum(runs.c.size), 0)))
            if int(taken or 0) + len(packed) > self._total_bytes:
                raise StoreFull
            await connection.execute(
                insert(runs).values(
                    id=receipt.id,
                    created=receipt.created,
                    expires=receipt.expires,
                    size=len(packed),
                    token_hash=_hash(token),
                    document=packed,
                )
            )
        return receipt

    async def get(self, run_id: str) -> StoredRun | None:
        """The run of that id; None if there is none, or none any more."""
        query = select(runs.c.created, runs.c.expires, runs.c.document).where(
            runs.c.id == run_id, runs.c.expires > self._clock()
        )
        async with self._engine.connect() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        return StoredRun(run_id, row.created, row.expires, zlib.decompress(row.document))

    async def delete(self, run_id: str, token: str) -> bool:
        """Deletes a run; False if there is none of that id.

        Raises:
            WrongToken: it is not the token that was told when the run was saved.
        """
        query = select(runs.c.token_hash).where(runs.c.id == run_id, runs.c.expires > self._clock())
        async with self._engine.begin() as connection:
            known = await connection.scalar(query)
            if known is None:
                return False
            if not hmac.compare_digest(known, _hash(token)):
                raise WrongToken
            await connection.execute(delete(runs).where(runs.c.id == run_id))
        return True


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
