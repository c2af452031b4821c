"""`people list` and `people check`."""

from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from signoff.approvals.argument_rows import plural
from signoff.cli.local.installation import LocalInstallation, find_installation
from signoff.cli.terminal.options import AppArgument, AppOption, AsJson, Tenant
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Delegation, Person
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.people.directory import DEVELOPMENT_PEOPLE, Directory, declared_people
from signoff.people.eligibility import rights
from signoff.people.on_call import ON_CALL
from signoff.people.people_file import FileDirectory
from signoff.registry.catalog import Catalog
from signoff.registry.gates.inventory import inventory
from signoff.settings import login_roles

app = typer.Typer(help="List and check the people of the directory.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_people(source: AppArgument = "", as_json: AsJson = False) -> None:
    """List all people: tier, roles, source, identities on channels, and delegates."""

    async def body(out: Output) -> int:
        people = await person_rows(find_installation(source))
        out.show(people, people_table(people, system_clock()))
        return 0

    run(body, as_json=as_json)


@app.command()
def signout(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="The id of an undeclared person.")],
    tenant: Tenant = DEFAULT_TENANT,
    source: AppOption = "",
    as_json: AsJson = False,
) -> None:
    """Sign out a person known by login alone: distrust the login and end their sessions until they sign in again."""

    async def body(out: Output) -> int:
        place, now = find_installation(source), system_clock()
        if place.people.find(person, tenant) is not None:
            raise Refused(f"{quote_name(person)} is declared: make them `active: false` where they are")
        # The store's libraries take longer to import than a manifest to read, and few commands need them.
        from signoff.cli.local.people_logins import end_login  # noqa: PLC0415

        ended = await end_login(place, tenant, person, now)
        if not ended:
            raise NotFound(f"nobody signed in as {quote_name(person)}; `signoff people list` shows who did")
        out.show({"person": person, "ended_at": now}, f"{clean(person)} is signed out")
        return 0

    run(body, as_json=as_json)


@app.command()
def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A file of people, if not those in force.")
    ] = None,
    source: AppOption = "",
    as_json: AsJson = False,
) -> None:
    """Check the people against the policies. Exit code 1 for an approver without a person, or an ended delegation."""

    async def body(out: Output) -> int:
        place = find_installation(source, people=file)
        people = place.people.all()
        found = find_problems(place.catalog, place.people, system_clock(), by_login=login_roles(place.settings))
        name = _source(place)
        words = [f"{name}: {each}" for each in found]
        right = f"{name}: {plural(len(people), 'person')}, nothing to report"
        out.show({"source": name, "people": len(people), "findings": found}, *(words or [right]))
        return 1 if found else 0

    run(body, as_json=as_json)


class PersonRow(Person):
    """A person and their source: a file's name, `built in`, or `login`.

    The gateway trusts a login until `until`. `doubt` is the reason for distrust.
    """

    source: str
    until: datetime | None = None
    doubt: str = ""


async def person_rows(place: LocalInstallation) -> list[PersonRow]:
    """Undeclared people come last. Raises `StoreUnavailable`, `ConfigError`."""
    built_in = [] if declared_people(place.people) is place.people else DEVELOPMENT_PEOPLE
    listed = [_make_row(person, "built in" if person in built_in else _source(place)) for person in place.people.all()]
    if place.settings.oidc_issuer is None:
        return listed
    # As in `signout`.
    from signoff.cli.local.people_logins import logins  # noqa: PLC0415

    doubted = await logins(place, system_clock())
    return listed + [_make_row(row.person, "login", until=row.until, doubt=doubt) for row, doubt in doubted]


def people_table(people: Iterable[PersonRow], now: datetime) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("Id", "Name", "Tenant", "Tier", "Roles", "Active", "Known by", "Elsewhere", "Stood in for by"):
        table.add_column(column, no_wrap=column == "Id", overflow="fold")
    for person in people:
        table.add_row(
            person.id,
            clean(person.name),
            person.tenant,
            clean(person.tier),
            ", ".join(person.roles),
            "yes" if person.active else "no",
            clean(_known_by(person)),
            "\n".join(f"{channel} {clean(each)}" for channel, all_ in person.identities.items() for each in all_),
            "\n".join(_delegation(each, now) for each in person.delegations),
        )
    return table


def find_problems(catalog: Catalog, people: Directory, now: datetime, *, by_login: Collection[str] = ()) -> list[str]:
    """Return unreachable approvers of policies and useless delegations, one sentence each.

    `by_login` are the roles that undeclared people may have.
    """
    person_rows = people.all()
    found: list[str] = []
    for tenant in dict.fromkeys(person.tenant for person in person_rows):
        here = [person for person in person_rows if person.tenant == tenant]
        found += [
            _missing(approver, askers, here, tenant)
            for approver, askers in _find_unmet_approvers(catalog, here, by_login).items()
        ]
        found += [each for person in here if person.active for each in _useless(person, people, now)]
    return found


def _find_unmet_approvers(catalog: Catalog, people: list[Person], by_login: Collection[str]) -> dict[str, list[str]]:
    able = {right for person in people if person.active for right in rights(person)}
    able |= {f"role:{role}" for role in by_login}
    vain: dict[str, list[str]] = {}
    for asker, approvers in _list_askers(catalog):
        for approver in dict.fromkeys(approvers):
            # The people of a rota change: `signoff doctor` reads who is on call.
            if approver not in able and not approver.startswith(ON_CALL):
                vain.setdefault(approver, []).append(asker)
    return vain


def _list_askers(catalog: Catalog) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Leave out approvers that are computed per call."""
    for row in inventory(catalog):
        policy = catalog.policy(row.tool).policy
        later = policy.later_approvers if policy is not None and row.approvers else ()
        yield f"tool `{row.tool}`", (*row.approvers, *later)
    for rule, _ in (*catalog.rules.rules, *(() if catalog.bounds is None else catalog.bounds.rules)):
        if rule.effect == "require_approval":
            yield f"rule `{rule.name}`", catalog.default_approvers


def _missing(approver: str, askers: list[str], people: list[Person], tenant: str) -> str:
    kind, _, name = approver.partition(":")
    known = {role for person in people for role in person.roles} if kind == "role" else {each.id for each in people}
    asked = f"`{approver}` is asked by {', '.join(askers)}, but"
    if kind == "role":
        who = "only people who are not active have" if name in known else "nobody has"
        return f"{asked} {who} that role in tenant `{tenant}`{'' if name in known else did_you_mean(name, known)}"
    if name in known:
        return f"{asked} that person is not active in tenant `{tenant}`"
    return f"{asked} there is no such person in tenant `{tenant}`{did_you_mean(name, known)}"


def _useless(person: Person, people: Directory, now: datetime) -> Iterable[str]:
    for each in person.delegations:
        delegate = people.find(each.to, person.tenant)
        if now >= each.until:
            yield f"the delegation of `{person.id}` to `{each.to}` ended at {_moment(each.until)}; remove it"
        elif delegate is None or not delegate.active:
            yield f"`{person.id}` delegates to `{each.to}`, an inactive person"


def _make_row(person: Person, source: str, **more: Any) -> PersonRow:
    return PersonRow(**dict(person), source=source, **more)


def _known_by(person: PersonRow) -> str:
    if person.until is None:
        return person.source
    return f"{person.source}, {person.doubt}" if person.doubt else f"{person.source}, until {_moment(person.until)}"


def _delegation(each: Delegation, now: datetime) -> str:
    return f"{each.to} {'until' if now < each.until else 'ended'} {_moment(each.until)}"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _source(place: LocalInstallation) -> str:
    declared = declared_people(place.people)
    return str(declared.path) if isinstance(declared, FileDirectory) else place.source
