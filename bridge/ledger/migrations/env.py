"""Alembic's entry: runs the steps on the connection, and inside the transaction, that bridge.ledger.migration gives."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection)
with context.begin_transaction():
    context.run_migrations()
