"""The people whom the store knows by their logins alone."""

from datetime import datetime

from signoff.approvals.audit_events import admin_entry
from signoff.audit.log import entry_writer
from signoff.cli.local.installation import LocalInstallation, account
from signoff.keys.key_files import FileVerifier
from signoff.people.vouched_directory import VouchedPerson, vouching_problem
from signoff.store.store import working_store
from signoff.store.vouched_people import VouchedPeople


async def logins(place: LocalInstallation, now: datetime) -> list[tuple[VouchedPerson, str]]:
    """Return each person with the reason for distrust, or "". Raises `StoreUnavailable`."""
    verifier = FileVerifier(place.settings.public_keys)
    async with working_store(place.settings) as store:
        rows = await VouchedPeople(store).all()
    return [(row, vouching_problem(row, place.people, verifier, now)) for row in rows]


async def end_login(place: LocalInstallation, tenant: str, person: str, now: datetime) -> bool:
    """Distrust the login and end its sessions. Return whether there was one."""
    by = account()
    entry = admin_entry(tenant, "people signout", "", now, channel="cli", person=person, account=by)
    async with working_store(place.settings) as store:
        return await VouchedPeople(store).end(tenant, person, by=by[:64], now=now, also=entry_writer([entry]))
