"""`people list` and `people check`."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from signoff.approvals.arguments import plural
from signoff.cli.options import AsJson, Manifest
from signoff.cli.output import Output, run
from signoff.cli.words import clean, utc_now
from signoff.cli.workplace import Workplace, find_workplace
from signoff.contracts.person import Delegation, Person
from signoff.registry.catalog import Catalog
from signoff.registry.inventory import inventory
from signoff.registry.nearest import did_you_mean
from signoff.registry.people import Directory
from signoff.registry.seats import rights

app = typer.Typer(help="List and check the people of the directory.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_people(manifest: Manifest = None, as_json: AsJson = False) -> None:
    """List everybody: tier, roles, who they are elsewhere, and who stands in for them."""

    async def body(out: Output) -> int:
        people = find_workplace(manifest).people.all()
        out.show(people, people_table(people, utc_now()))
        return 0

    run(body, as_json=as_json)


@app.command()
def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A file of people, if not those in force.")
    ] = None,
    manifest: Manifest = None,
    as_json: AsJson = False,
) -> None:
    """Check the people against the policies; exit code 1 if somebody is asked whom nobody is, or a delegation ended."""

    async def body(out: Output) -> int:
        place = find_workplace(manifest, people=file)
        people = place.people.all()
        found = findings(place.catalog, place.people, utc_now())
        source = str(_source(place))
        words = [f"{source}: {each}" for each in found]
        right = f"{source}: {plural(len(people), 'person')}, nothing to report"
        out.show({"source": source, "people": len(people), "findings": found}, *(words or [right]))
        return 1 if found else 0

    run(body, as_json=as_json)


def people_table(people: Iterable[Person], now: datetime) -> Table:
    """One line a person."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("Id", "Name", "Tenant", "Tier", "Roles", "Active", "Elsewhere", "Stood in for by"):
        table.add_column(column, no_wrap=column == "Id", overflow="fold")
    for person in people:
        table.add_row(
            person.id,
            clean(person.name),
            person.tenant,
            clean(person.tier),
            ", ".join(person.roles),
            "yes" if person.active else "no",
            "\n".join(f"{channel} {clean(each)}" for channel, all_ in person.identities.items() for each in all_),
            "\n".join(_delegation(each, now) for each in person.delegations),
        )
    return table


def findings(catalog: Catalog, people: Directory, now: datetime) -> list[str]:
    """Whom policies ask in vain, and delegations that are of no use, one sentence each."""
    everybody = people.all()
    found: list[str] = []
    for tenant in dict.fromkeys(person.tenant for person in everybody):
        here = [person for person in everybody if person.tenant == tenant]
        found += [_missing(approver, askers, here, tenant) for approver, askers in _vain(catalog, here).items()]
        found += [each for person in here if person.active for each in _useless(person, people, now)]
    return found


def _vain(catalog: Catalog, people: list[Person]) -> dict[str, list[str]]:
    """The approvers that no active person is, each with what asks them."""
    able = {right for person in people if person.active for right in rights(person)}
    vain: dict[str, list[str]] = {}
    for asker, approvers in _asked(catalog):
        for approver in dict.fromkeys(approvers):
            if approver not in able:
                vain.setdefault(approver, []).append(asker)
    return vain


def _asked(catalog: Catalog) -> Iterable[tuple[str, tuple[str, ...]]]:
    """What asks people, each with whom; those a policy works out for each call are not known before."""
    for row in inventory(catalog):
        policy = catalog.policy(row.tool).policy
        later = (policy.escalate_to or ()) if policy is not None and row.approvers else ()
        yield f"tool `{row.tool}`", (*row.approvers, *later)
    for rule, _ in catalog.rules.rules:
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
            yield f"`{person.id}` delegates to `{each.to}`, who is not active"


def _delegation(each: Delegation, now: datetime) -> str:
    return f"{each.to} {'until' if now < each.until else 'ended'} {_moment(each.until)}"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _source(place: Workplace) -> Path:
    return place.settings.people or place.settings.manifest
