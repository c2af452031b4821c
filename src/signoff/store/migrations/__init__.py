"""Contains the migrations of the store's schema, one file each.

Opening a store applies them.

To add or change a table:

1. Change store/tables.py, and the rights of each role in store/roles.py.
2. Add `versions/rNNNN_NAME.py` with the next number. Its `upgrade()` migrates a database from the previous step to
   METADATA, on SQLite and on PostgreSQL. `revision` is `rNNNN`, `down_revision` the previous step.
3. If the table has rows, give a new column a `server_default` or make it nullable.

Never edit a released step. tests/store/test_migrations.py compares the tables of all steps with METADATA.
"""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

FOLDER: Final = Path(__file__).parent


def migrate(connection: Connection, version_table: str, to: str = "head") -> None:
    """Runs in the transaction of `connection`."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes.update(connection=connection, version_table=version_table)
    command.upgrade(config, to)
