"""The table of saved runs: what it keeps over a restart, and what it lets go."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from webapp.store.database import FILE_NAME, migrate, open_database
from webapp.store.records import StoreFull, WrongToken
from webapp.store.runs import RunTable
from webapp.store.tables import metadata

pytestmark = pytest.mark.anyio

DOCUMENT = b'{"a": "' + bytes(range(97, 123)) * 20 + b'"}'


class Clock:
    now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def database(state_dir: Path) -> AsyncIterator[AsyncEngine]:
    engine = await open_database("")
    yield engine
    await engine.dispose()


def table(engine: AsyncEngine, clock: Clock, total_bytes: int = 10_000) -> RunTable:
    return RunTable(engine, keep_s=100.0, total_bytes=total_bytes, clock=clock)


async def test_what_was_saved_is_there_after_a_restart(state_dir: Path) -> None:
    first = await open_database("")
    receipt = await table(first, Clock()).save(DOCUMENT)
    await first.dispose()
    second = await open_database("")
    found = await table(second, Clock()).get(receipt.id)
    await second.dispose()
    assert found is not None
    assert found.document == DOCUMENT
    assert (found.created, found.expires) == (1_790_000_000, 1_790_000_100)
    assert (state_dir / FILE_NAME).exists()


def file_contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_the_file_is_in_wal_mode_and_holds_no_token(
    database: AsyncEngine, state_dir: Path
) -> None:
    receipt = await table(database, Clock()).save(DOCUMENT)
    await database.dispose()
    with sqlite3.connect(state_dir / FILE_NAME) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    kept = file_contents(state_dir)
    assert receipt.id.encode() in kept
    assert receipt.delete_token.encode() not in kept


async def test_ids_and_tokens_differ_and_cannot_be_guessed(database: AsyncEngine) -> None:
    receipts = [await table(database, Clock()).save(DOCUMENT) for _ in range(5)]
    assert len({receipt.id for receipt in receipts}) == 5
    assert len({receipt.delete_token for receipt in receipts}) == 5
    assert all(len(receipt.id) == 16 for receipt in receipts)


async def test_an_expired_run_is_gone_and_makes_room(database: AsyncEngine) -> None:
    clock = Clock()
    runs = table(database, clock, total_bytes=60)
    receipt = await runs.save(DOCUMENT)
    with pytest.raises(StoreFull):
        await runs.save(DOCUMENT)
    clock.now += 100
    assert await runs.get(receipt.id) is None
    assert not await runs.delete(receipt.id, receipt.delete_token)
    assert await runs.save(DOCUMENT)


async def test_only_its_token_deletes_a_run(database: AsyncEngine) -> None:
    runs = table(database, Clock())
    mine, other = await runs.save(DOCUMENT), await runs.save(DOCUMENT)
    for token in ("", "x" * 43, other.delete_token):
        with pytest.raises(WrongToken):
            await runs.delete(mine.id, token)
    assert await runs.get(mine.id)
    assert await runs.delete(mine.id, mine.delete_token)
    assert await runs.get(mine.id) is None
    assert await runs.get(other.id)


async def test_the_migrations_make_the_tables_that_the_code_reads(database: AsyncEngine) -> None:
    def differences(connection: Connection) -> list[object]:
        return compare_metadata(MigrationContext.configure(connection), metadata)

    async with database.begin() as connection:
        await connection.run_sync(migrate)  # a second time changes nothing
        assert await connection.run_sync(differences) == []
