"""Stores and lists the absences of people, for the API and the inbox."""

from signoff.approvals.audit_events import admin_entry
from signoff.audit.log import entry_writer
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.person import Absence, Person
from signoff.contracts.requests import AbsenceBody
from signoff.formats.nearest_name import quote_name
from signoff.gateway.deps import GatewayDeps
from signoff.people.absences import LONGEST, is_signed, sign_absence
from signoff.store.questions.absences import Absences


async def go_away(deps: GatewayDeps, person: Person, body: AbsenceBody, channel: str) -> Absence:
    """Replace the person's absence. Raises `Refused` (`malformed`), `StoreUnavailable`."""
    now = deps.clock()
    since = body.since or now
    if problem := _find_problem(deps, person, body):
        raise Refused(problem, code="malformed")
    absence = Absence(
        tenant=person.tenant,
        person=person.id,
        since=since,
        until=body.until,
        tools=body.tools,
        to=body.to,
        said_at=now,
    )
    if deps.signer is not None:
        absence = sign_absence(absence, deps.signer)
    facts = absence.model_dump(mode="json", include={"since", "until", "tools", "to", "key_id", "signature"})
    entry = admin_entry(person.tenant, "away", person.id, now, channel=channel, **facts)
    await Absences(deps.store).put(absence, entry_writer([entry]))
    return absence


async def come_back(deps: GatewayDeps, person: Person, channel: str) -> None:
    """Raises `NotFound` without an absence, `StoreUnavailable`."""
    entry = admin_entry(person.tenant, "back", person.id, deps.clock(), channel=channel)
    if not await Absences(deps.store).remove(person.tenant, person.id, entry_writer([entry])):
        raise NotFound(f"{quote_name(person.id)} is not away")


async def list_absences(deps: GatewayDeps, tenant: str) -> tuple[Absence, ...]:
    """Return entered absences, and absences of calendars. Raises `StoreUnavailable`."""
    return (*await list_entered(deps, tenant), *deps.calendars.list_of(tenant, deps.clock()))


async def list_entered(deps: GatewayDeps, tenant: str) -> tuple[Absence, ...]:
    """Leaves out ended ones, and those without a valid signature. Raises `StoreUnavailable`."""
    now, verifier, unsigned = deps.clock(), deps.verifier(), deps.development and deps.signer is None
    found = await Absences(deps.store).list_of(tenant)
    return tuple(each for each in found if now < each.until and (unsigned or is_signed(each, verifier)))


def _find_problem(deps: GatewayDeps, person: Person, body: AbsenceBody) -> str:
    now = deps.clock()
    since = body.since or now
    if body.until.tzinfo is None or since.tzinfo is None:
        return "`since`, `until`: write a time and its zone, `2030-01-31T18:00:00Z`"
    if not max(since, now) < body.until <= now + LONGEST:
        return f"`until`: a time after `since` and within {LONGEST.days} days"
    known = {tool.name for tool in deps.catalog.every_tool}
    if unknown := [each for each in body.tools if each not in known]:
        return f"`tools`: there is no tool {quote_name(unknown[0])}"
    other = deps.people.find(body.to, person.tenant) if body.to else None
    if body.to and (other is None or not other.active or other.id == person.id):
        return f"`to`: {quote_name(body.to)} is not another active person"
    return ""
