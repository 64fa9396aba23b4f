"""The database: SQLite in the state folder, or what ``FIRSTTOKEN_DATABASE_URL`` names.

It is opened when it is first needed, and brought to the newest form of its tables then.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, event
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from engine.catalog.this_machine import state_dir

FILE_NAME = "firsttoken.sqlite3"
BUSY_S = 10.0
"""How long a writer waits for another one."""

_MIGRATIONS = Path(__file__).parent / "migrations"


async def open_database(url: str) -> AsyncEngine:
    """Connects and migrates. An empty ``url`` is the file in the state folder, in WAL mode.

    Raises:
        OSError: the folder cannot be made.
        sqlalchemy.exc.SQLAlchemyError: the database cannot be reached or brought up to date.
    """
    if not url:
        folder = state_dir()
        folder.mkdir(parents=True, exist_ok=True)
        url = f"sqlite+aiosqlite:///{folder / FILE_NAME}"
    is_sqlite = make_url(url).get_backend_name() == "sqlite"
    engine = create_async_engine(url, connect_args={"timeout": BUSY_S} if is_sqlite else {})
    if is_sqlite:
        event.listen(engine.sync_engine, "connect", _prepare)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(migrate)
    except BaseException:
        await engine.dispose()
        raise
    return engine


def migrate(connection: Connection, revision: str = "head") -> None:
    """Brings the tables to ``revision``; nothing happens if they are there already."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _prepare(connection: sqlite3.Connection, record: object) -> None:
    """WAL: readers do not wait for the writer, and a killed process leaves a whole database."""
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
