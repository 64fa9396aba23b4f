"""Saved runs as the handlers use them: the database opened when it is first needed, a rate for
every address, and the run that comes with the program."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio.to_thread
import structlog
from pydantic import ValidationError

from webapp import json_codec
from webapp.live.rate_limit import TokenBucket
from webapp.schemas.saved_run import SavedRun
from webapp.settings import Settings
from webapp.store.records import Receipt, StoredRun, StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from webapp.store.runs import RunTable

log = structlog.get_logger("webapp.store")

EXAMPLE_ID = "example"
"""The id of the recorded run that comes with the program."""
_EXAMPLE_FILE = Path(__file__).parent.parent / "data" / "example_run.json"
MAX_ADDRESSES = 4096
"""Addresses whose rate is remembered; the ones that saved longest ago are forgotten first."""


class SavingRate:
    """So many runs an hour for every address, at once or one after the other."""

    def __init__(self, per_hour: int) -> None:
        self._per_hour = per_hour
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, network: str) -> bool:
        """Counts one more run of that address, unless it has saved too many."""
        bucket = self._buckets.pop(network, None)
        if bucket is None:
            bucket = TokenBucket(self._per_hour / 3600, self._per_hour)
        self._buckets[network] = bucket  # the newest stands last
        if len(self._buckets) > MAX_ADDRESSES:
            del self._buckets[next(iter(self._buckets))]
        return bucket.take()


class SavedRuns:
    """Opens the database at the first use, because most visits need none of it.

    Every method raises ``StoreUnavailable`` while it cannot be opened.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opening = asyncio.Lock()
        self._engine: AsyncEngine | None = None
        self._table: RunTable | None = None
        self.rate = SavingRate(settings.run_saves_per_hour)

    async def save(self, document: bytes) -> Receipt:
        """Keeps a run; see ``RunTable.save``."""
        return await (await self._runs()).save(document)

    async def get(self, run_id: str) -> StoredRun | None:
        """The run of that id, if there is one."""
        if run_id == EXAMPLE_ID:
            return example_run()
        return await (await self._runs()).get(run_id)

    async def delete(self, run_id: str, token: str) -> bool:
        """Deletes a run; see ``RunTable.delete``."""
        return await (await self._runs()).delete(run_id, token)

    async def close(self) -> None:
        """Closes the database, if it was opened."""
        if self._engine is not None:
            await self._engine.dispose()

    async def _runs(self) -> RunTable:
        async with self._opening:
            if self._table is None:
                # SQLAlchemy and alembic take half a second to import: not on the event loop.
                open_database, make_table = await anyio.to_thread.run_sync(_import_store)
                try:
                    self._engine = await open_database(self._settings.database_url)
                except Exception as error:
                    # Whatever a driver raises: the next use tries again.
                    log.error("store_unavailable", error=str(error)[:300])
                    raise StoreUnavailable from error
                self._table = make_table(
                    self._engine,
                    self._settings.run_keep_days * 24 * 3600,
                    self._settings.runs_total_bytes,
                )
        return self._table


def _import_store() -> tuple[Callable[[str], Awaitable[AsyncEngine]], type[RunTable]]:
    from webapp.store.database import open_database
    from webapp.store.runs import RunTable

    return open_database, RunTable


@cache
def example_run() -> StoredRun:
    """The recorded run that comes with the program."""
    document = _EXAMPLE_FILE.read_bytes()
    run = cast("dict[str, int]", json_codec.loads(document))
    return StoredRun(EXAMPLE_ID, run["ran_at_ms"] // 1000, None, document)


def read_stored(stored: StoredRun) -> SavedRun | None:
    """The run in a stored document; None if it has a form that this version does not read."""
    try:
        return SavedRun.model_validate(json_codec.loads(stored.document), strict=True)
    except ValidationError as error:
        log.warning("stored_run_not_read", run=stored.id, faults=error.error_count())
        return None


def iso(seconds: int) -> str:
    """Unix seconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
