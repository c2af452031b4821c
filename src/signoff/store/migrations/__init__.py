"""Steps of the store's schema: one file a step, applied when a store is opened.

To add or change a table: change store/tables.py, say in store/roles.py what each role may do with it, then add
`versions/rNNNN_what_it_adds.py` with the next number, whose `revision` is `rNNNN` and `down_revision` that of the step
before, and which brings a database from there to the new METADATA in `upgrade()`, for SQLite and PostgreSQL. A step
that is released is never edited. Columns that are added to a table with rows need a `server_default` or must be
nullable. tests/store/test_migrations.py fails until the steps, taken one after the other, make exactly what METADATA
makes at once.
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
