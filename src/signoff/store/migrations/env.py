"""Runs the steps over the connection it was given; alembic executes this file for each command."""

from alembic import context

attributes = context.config.attributes
# SQLite can take back table changes, too, and the caller has begun a transaction that holds its lock.
context.configure(
    connection=attributes["connection"], version_table=attributes["version_table"], transactional_ddl=True
)
with context.begin_transaction():
    context.run_migrations()
