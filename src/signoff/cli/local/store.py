"""`store`: maintains the store: its tables, roles and old rows, and a freeze while no gateway runs."""

from datetime import datetime
from typing import Annotated, Any, Final

import typer
from sqlalchemy import Connection

from signoff.approvals.argument_rows import plural
from signoff.approvals.audit_events import admin_entry
from signoff.audit.log import AuditLog, entry_writer
from signoff.cli.local.installation import account, find_installation, reach_server
from signoff.cli.terminal.options import Address, AppOption, AsJson, Before, past_moment
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean, frozen_line
from signoff.contracts.audit import AuditEntry
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import ConfigError, NotFound
from signoff.contracts.ids import is_id
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.names import DEFAULT_TENANT
from signoff.engine.store_cleanup import StoreCleanup, StoreRemoval
from signoff.engine.turn_list import lost_questions
from signoff.formats.nearest_name import quote_name
from signoff.settings import Settings, load_settings
from signoff.store.claim_conditions import Restoration, add_restoration
from signoff.store.freezes import Freezes
from signoff.store.privileges import give_roles, role_statements
from signoff.store.questions.request_lists import RequestLists
from signoff.store.roles import PROCESS_ROLES, WORKER_KEYS, ProcessRole
from signoff.store.store import Store, working_store
from signoff.store.upgrade import STEPS, VERSION_TABLE

app = typer.Typer(
    help="Bring the store's tables up to date, give its roles their rights, remove old data, freeze without a gateway.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
UNPROVED: Final = "an operator of this machine, unproved"
"""The author of a freeze that was written directly to the store. Never a person's id."""
_NOT_SWEPT: Final = "nothing was withdrawn, but none of it would run: `signoff freeze` withdraws it once a gateway runs"
Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant; `main` unless there are several.")]


@app.command()
def migrate(as_json: AsJson = False) -> None:
    """Make the store's tables, or bring them up to date. Needs the address of the tables' owner."""

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
    """Give two PostgreSQL roles exactly the rights of a worker and a gateway. Only the owner keeps the owner's.

    Makes the tables or brings them up to date first. A repeat changes nothing.
    """
    names: dict[ProcessRole, str] = {"worker": worker, "gateway": gateway}

    async def body(out: Output) -> int:
        async with working_store(load_settings()) as store:
            _require_owner(store)
            made = await store.read(lambda connection: role_statements(connection, names, VERSION_TABLE))
            # Make these keys here: workers read them, and may make none.
            for key in WORKER_KEYS:
                await store.secret_key(key)
            if not print_:
                await store.run(lambda connection: give_roles(connection, names, VERSION_TABLE))
        script = "\n".join(["BEGIN;", *(f"{each};" for each in made), "COMMIT;"])
        done = ", ".join(f"`{names[role]}` has the rights of a {role}" for role in PROCESS_ROLES)
        out.show({"roles": names, "executed": not print_, "sql": made}, script if print_ else done)
        return 0

    run(body, as_json=as_json)


@app.command("clean")
def clean_up(
    before: Before,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the rows that would be removed.")] = False,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Remove the data of turns that the Temporal server has forgotten, if nothing was added to it since a time.

    The audit log stays. Works while workers and gateways run. Exit code 1 if the server could not say for every turn
    whether it still has it: those turns stay.
    """
    limit = past_moment(before)

    async def body(out: Output) -> int:
        settings = load_settings()
        client = await reach_server(settings, address)
        async with working_store(settings) as store:
            _require_owner(store)
            cleanup = StoreCleanup(store, client, limit, dry_run=dry_run)
            try:
                await cleanup.run()
            finally:
                # Also record the rows removed before an error.
                await _record_removal(store, cleanup.removal, limit, dry_run=dry_run)
        done = cleanup.removal
        turns, rows = done.turns.total(), done.rows._asdict()
        found = {"before": limit.isoformat(), "dry_run": dry_run, "turns": turns, **rows, "known": done.kept}
        counts = ", ".join(plural(number, name.removesuffix("s")) for name, number in rows.items())
        unsure = [f"kept {done.unknown} of the turns and sessions, since the server did not confirm that they are gone"]
        out.show(
            found | {"unknown": done.unknown},
            f"{plural(turns, 'turn')} {'would be ' if dry_run else ''}removed: {counts}",
            f"kept {plural(done.kept, 'old turn')}, as the server still has them",
            *(unsure if done.unknown else []),
        )
        return 1 if done.unknown else 0

    run(body, as_json=as_json)


async def _record_removal(store: Store, done: StoreRemoval, before: datetime, *, dry_run: bool) -> None:
    if dry_run:
        return
    acts = [
        _act(tenant, "clean", before=before.isoformat(), turns=done.turns[tenant], **rows._asdict())
        for tenant, rows in sorted(done.rows_by_tenant.items())
        if any(rows)
    ]
    await AuditLog(store).append(acts)


@app.command()
def freeze(
    tenant: Tenant,
    reason: Annotated[str, typer.Option(help="The reason, for the agents and the approvers.")],
    source: AppOption = "",
    as_json: AsJson = False,
) -> None:
    """Deny every call in a tenant until it is unfrozen, while no gateway runs. Needs write access to the store.

    Waiting requests are not withdrawn, since that takes a person, but none of them runs: `signoff freeze` withdraws
    them.
    """
    words = reason.strip()
    if not 0 < len(words) <= REASON_CHARS:
        raise typer.BadParameter(f"say why, in 1 to {REASON_CHARS} characters", param_hint="--reason")

    async def body(out: Output) -> int:
        settings, unsure = _of_tenant(source, tenant)
        async with working_store(settings) as store:
            # One transaction with the freeze, so that neither exists without the other.
            seen = entry_writer([_act(tenant, "freeze", reason=words)])
            standing = await Freezes(store).freeze(tenant, reason=words, by=UNPROVED, also=seen)
        out.show(standing, frozen_line(standing), _NOT_SWEPT, *unsure)
        return 0

    run(body, as_json=as_json)


@app.command()
def unfreeze(tenant: Tenant, source: AppOption = "", as_json: AsJson = False) -> None:
    """Lift a freeze while no gateway runs."""

    async def body(out: Output) -> int:
        settings, _ = _of_tenant(source, tenant)
        async with working_store(settings) as store:
            lifted = await Freezes(store).unfreeze(tenant, also=entry_writer([_act(tenant, "unfreeze")]))
        if lifted is None:
            raise NotFound(f"the tenant {quote_name(tenant)} is not frozen")
        out.show(lifted, f"unfrozen: {clean(tenant)}, frozen by {clean(lifted.by)}")
        return 0

    run(body, as_json=as_json)


@app.command("restored")
def record_restoration(
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Report that the store, or Temporal's database, was restored from a backup, before workers and gateways restart.

    Calls that act, of turns begun until now, no longer run until an approver says that they have not happened yet.
    Remembered approvals and sign-ins end, since they may have been revoked after the backup. Turns that wait for a
    question missing in the store are listed.
    """

    async def body(out: Output) -> int:
        settings = load_settings()
        client = await reach_server(settings, address)
        async with working_store(settings) as store:
            _require_owner(store)
            done = await store.run(_restore)
            frozen = sorted(each.tenant for each in await Freezes(store).all())
            lost = [each async for each in lost_questions(client, RequestLists(store))]
        grants, logins, browsers = (each.total() for each in done[1:])
        found = {
            "at": done.at,
            "grants": grants,
            "logins": logins,
            "browsers": browsers,
            "frozen": frozen,
            "lost_questions": [each.workflow_id for each in lost],
        }
        words = [
            f"restored: of turns begun before {done.at:%Y-%m-%d %H:%M:%S} UTC people are asked whether their calls ran",
            f"taken back, as that may have been done since the backup: {grants} remembered approvals, {logins} logins "
            f"of undeclared people, {browsers} signed-in browsers",
            f"frozen are {', '.join(map(clean, frozen)) or 'no tenants'}, as at the backup: later freezes are lost "
            "(`signoff store freeze`)",
            "personal tokens that were revoked since count again: `signoff token revoke` before a gateway starts",
        ]
        words += [
            f"{each.workflow_id} waits for an answer, but this store lacks its question. It cannot be decided, "
            "and its call does not run. `temporal workflow reset --type FirstWorkflowTask --reason restored "
            f"--workflow-id {each.workflow_id}` asks again, `signoff cancel {each.turn}` ends it"
            for each in lost
        ]
        out.show(found, *words)
        return 0

    run(body, as_json=as_json)


def _restore(connection: Connection) -> Restoration:
    """Revoke everything that the backup may have brought back, and record one act for each affected tenant."""
    done = add_restoration(connection, by=UNPROVED)
    grants, logins, browsers = done[1:]
    acts = [
        _act(each, "store restored", grants=grants[each], logins=logins[each], browsers=browsers[each])
        for each in sorted({DEFAULT_TENANT, *grants, *logins, *browsers})
    ]
    entry_writer(acts)(connection)
    return done


def _of_tenant(source: str, tenant: str) -> tuple[Settings, list[str]]:
    """Return a note if the people of the tenant are unknown.

    Raises `NotFound` for a tenant without people: most likely its name is misspelled.
    """
    if not is_id(tenant):
        raise NotFound(f"there is no tenant {quote_name(tenant)}")
    settings = load_settings()
    try:
        place = find_installation(source)
    except ConfigError as error:
        # In an emergency, an unreadable manifest must not prevent a freeze.
        return settings, [f"the people of this tenant are unknown:  {error.message}"]
    if not place.people.all(tenant):
        raise NotFound(f"the tenant {quote_name(tenant)} has no people")
    return place.settings, []


def _act(tenant: str, name: str, **facts: Any) -> AuditEntry:
    """The act is unproved: by the holder of the store's address, with their account here."""
    return admin_entry(tenant, name, "", system_clock(), channel="cli", by=UNPROVED, account=account(), **facts)


def _require_owner(store: Store) -> None:
    if store.role != "owner":
        raise ConfigError(f"SIGNOFF_STORE_URL is a {store.role}'s address: this takes that of the tables' owner")
