"""Runs the migrations on the given connection.

Alembic executes this file for each command.
"""

from alembic import context

attributes = context.config.attributes
# SQLite can also roll back table changes, and the caller has begun a transaction that holds its lock.
context.configure(
    connection=attributes["connection"], version_table=attributes["version_table"], transactional_ddl=True
)
with context.begin_transaction():
    context.run_migrations()
