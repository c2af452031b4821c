"""What alembic runs for each command: the steps, over the connection that it was given."""

from alembic import context

attributes = context.config.attributes
# SQLite can take back table changes, too, and the caller has begun a transaction that holds its lock.
context.configure(
    connection=attributes["connection"], version_table=attributes["version_table"], transactional_ddl=True
)
with context.begin_transaction():
    context.run_migrations()
