"""How alembic runs the migrations: on the connection that ``webapp.store.database`` hands over."""

from __future__ import annotations

from alembic import context

from webapp.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite alters a table by copying it.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
