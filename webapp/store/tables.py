"""The tables as they are after the newest migration."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, String, Table

metadata = MetaData()

runs = Table(
    "runs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("token_hash", LargeBinary(32), nullable=False),
    Column("document", LargeBinary, nullable=False),
)
"""Saved runs. Times are Unix seconds; ``document`` is the run's JSON, deflated, and ``size`` the
bytes that it takes so; of the token that deletes a run only the SHA-256 is kept."""
