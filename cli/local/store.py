"""`store migrate` and `store roles`: what the owner of the store's tables does, and no worker or gateway."""

from typing import Annotated, Final

import typer

from signoff.cli.local.stores import working_store
from signoff.cli.terminal.options import AsJson
from signoff.cli.terminal.output import Output, run
from signoff.contracts.errors import ConfigError
from signoff.settings import load_settings
from signoff.store.privileges import give_roles, role_statements
from signoff.store.roles import PROCESS_ROLES, WORKER_KEYS, ProcessRole
from signoff.store.store import Store
from signoff.store.upgrade import STEPS, VERSION_TABLE

app = typer.Typer(
    help="Bring the store's tables up to date and give its roles their rights.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
ONE_ROLE: Final = (
    "SQLite has one role: whoever takes a worker over can write answers, grants and freezes here, and only signatures "
    "stop them; PostgreSQL has two (`signoff store roles`)"
)


@app.command()
def migrate(as_json: AsJson = False) -> None:
    """Make the store's tables, or bring them up to date; the address has to be their owner's."""

    async def body(out: Output) -> int:
        async with working_store(load_settings()) as store:
            _require_owner(store)
        out.show({"version": STEPS[-1]}, f"the store's tables are of the version {STEPS[-1]}")
        return 0

    run(body, as_json=as_json)


@app.command()
def roles(
    worker: Annotated[str, typer.Option(metavar="NAME", help="The database role of workers.")],
    gateway: Annotated[str, typer.Option(metavar="NAME", help="The database role of gateways.")],
    print_: Annotated[bool, typer.Option("--print", help="Print the SQL and execute none of it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give two PostgreSQL roles exactly a worker's and a gateway's rights, and the tables' owner's to nobody else.

    The tables are made or brought up to date first. Doing it again changes nothing.
    """
    names: dict[ProcessRole, str] = {"worker": worker, "gateway": gateway}

    async def body(out: Output) -> int:
        async with working_store(load_settings()) as store:
            _require_owner(store)
            made = await store.run(lambda connection: role_statements(connection, names, VERSION_TABLE))
            # Made here: workers read these, and may make none.
            for key in WORKER_KEYS:
                await store.secret_key(key)
            if not print_:
                await store.run(lambda connection: give_roles(connection, names, VERSION_TABLE))
        script = "\n".join(["BEGIN;", *(f"{each};" for each in made), "COMMIT;"])
        done = ", ".join(f"`{names[role]}` has the rights of a {role}" for role in PROCESS_ROLES)
        out.show({"roles": names, "executed": not print_, "sql": made}, script if print_ else done)
        return 0

    run(body, as_json=as_json)


def _require_owner(store: Store) -> None:
    if store.role != "owner":
        raise ConfigError(f"SIGNOFF_STORE_URL is a {store.role}'s address: this takes that of the tables' owner")
