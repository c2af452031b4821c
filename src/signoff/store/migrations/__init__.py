"""Holds the steps of the store's schema: one file a step. Opening a store applies them.

To add or change a table:

1. Change store/tables.py, and the rights of each role in store/roles.py.
2. Add `versions/rNNNN_NAME.py` with the next number. Its `upgrade()` brings a database of the step before to the new
   METADATA, on SQLite and on PostgreSQL. `revision` is `rNNNN`, `down_revision` the step before.
3. Give a column that is added to a table with rows a `server_default`, or make it nullable.

Never edit a released step. tests/store/test_migrations.py compares the tables that all steps make with METADATA.
"""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

FOLDER: Final = Path(__file__).parent


def migrate(connection: Connection, version_table: str, to: str = "head") -> None:
    """Takes every step up to `to` that the database has not taken yet, in the transaction of `connection`."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes.update(connection=connection, version_table=version_table)
    command.upgrade(config, to)
