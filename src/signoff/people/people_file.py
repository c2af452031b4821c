"""Reads people from YAML, and follows changes."""

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import StringConstraints

from signoff.contracts.errors import ConfigError
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import ContactPreferences, Delegation, Person
from signoff.formats.hours import read_zone
from signoff.formats.record_section import record_fields, record_section, to_record
from signoff.formats.yaml_file import Place, YamlFile, read_yaml
from signoff.formats.yaml_section import read_section
from signoff.keys.secret_references import FORMS, is_reference
from signoff.people.directory import Directory, FixedDirectory

CHECK_SECONDS: Final = 1.0
"""How long a `FileDirectory` may return old data after a change of its file."""

_CLOCK: Final = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]\Z")

_log = logging.getLogger(__name__)


_SCHEMES: Final = ("https://", "webcal://", "http://")
_MAY_SET: Final = r"^(route|step|transient|context(\..+)?)$"

PersonSection: Final = record_section(
    Person,
    # The inner sections are read one by one, so that an error names its own line.
    delegations=list[Any],
    reach=dict[str, Any],
    may_set=list[Annotated[str, StringConstraints(pattern=_MAY_SET)]],
)
DelegationSection: Final = record_section(Delegation, until=str)
ReachSection: Final = record_section(
    ContactPreferences, quiet_days=list[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]]
)


class FileDirectory:
    """Reads people from a YAML file again when its time, size or inode changes.

    It checks at most once a second. If a new file is invalid or missing, the last valid people stay and one message is
    logged. The first file must be valid: raises `ConfigError`. `clock` returns monotonic seconds.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = Path(path)
        self._clock = clock
        self._due = clock() + CHECK_SECONDS
        # Read this before the content, so that a write in between shows as a change at the next check.
        self._stamp = _stamp(self._path)
        self._people: Directory = FixedDirectory(load_people(self._path))

    @property
    def path(self) -> Path:
        return self._path

    def find(self, person_id: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        return self._present().find(person_id, tenant)

    def all(self, tenant: str | None = None) -> tuple[Person, ...]:
        return self._present().all(tenant)

    def by_identity(self, channel: str, identity: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        return self._present().by_identity(channel, identity, tenant)

    def person_id(self, subject: str, tenant: str = DEFAULT_TENANT) -> str:
        return self._present().person_id(subject, tenant)

    def delegators(self, person_id: str, tenant: str, now: datetime) -> tuple[Person, ...]:
        return self._present().delegators(person_id, tenant, now)

    def _present(self) -> Directory:
        now = self._clock()
        if now >= self._due:
            self._due = now + CHECK_SECONDS
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                # Set this before reading, as at the start, so that one invalid file is logged once instead of at each
                # check.
                self._stamp = stamp
                self._read_anew()
        return self._people

    def _read_anew(self) -> None:
        try:
            # Keep the previous people after an error: without people, one typo would stop every decision.
            self._people = FixedDirectory(load_people(self._path))
        except ConfigError as error:
            _log.error("%s; the people read before stay in force", error.message)
        else:
            _log.info("%s was read anew", self._path)


def load_people(path: str | os.PathLike[str]) -> tuple[Person, ...]:
    """The file is a list of persons. Raises `ConfigError` with file and line."""
    file = read_yaml(Path(path), str(path))
    return read_people(file, (), file.data)


def read_people(file: YamlFile, place: Place, data: Any) -> tuple[Person, ...]:
    """Check people against each other, too. Raises `ConfigError` with file and line."""
    if not isinstance(data, list):
        raise file.error(place, "people are a list of persons, each with an `id`")
    people = tuple(_person(file, (*place, index), each) for index, each in enumerate(data))
    try:
        FixedDirectory(people)
    except ConfigError as error:
        where = (int(part) if part.isdecimal() else part for part in str(error.context["field"]).split("."))
        here = (*place, int(str(error.context["index"])), *where)
        raise file.error(here, error.message, **error.context) from None
    return people


def is_calendar(written: str) -> bool:
    """Whether a person's `calendar` is a reference or a web address."""
    return is_reference(written) or written.startswith(_SCHEMES)


def _person(file: YamlFile, place: Place, data: Any) -> Person:
    if not isinstance(data, Mapping):
        raise file.error(place, "a person is a mapping with an `id`")
    given = record_fields(read_section(file, place, PersonSection, data, "a person"))
    delegations = enumerate(given["delegations"])
    given["delegations"] = tuple(_delegation(file, (*place, "delegations", at), each) for at, each in delegations)
    if given["reach"] is not None:
        given["reach"] = _reach(file, (*place, "reach"), given["reach"])
    # An address is often a secret: the message does not quote it.
    if given["calendar"] and not is_calendar(given["calendar"]):
        message = f"`calendar` of a person is an address that begins with `https://`, or {FORMS}"
        raise file.error((*place, "calendar"), message, field="calendar")
    return Person(**given)


def _delegation(file: YamlFile, place: Place, data: Any) -> Delegation:
    if not isinstance(data, Mapping):
        raise file.error(place, "a delegation is a mapping with `to` and `until`")
    given = record_fields(read_section(file, place, DelegationSection, data, "a delegation"))
    text = given["until"]
    until = _utc(text)
    if until is None:
        message = f"`until` of a delegation is `{text}`; write a time and its zone, `2030-01-31T18:00:00Z`"
        raise file.error((*place, "until"), message, field="until", value=text)
    return Delegation(**given | {"until": until})


def _reach(file: YamlFile, place: Place, data: Mapping[str, Any]) -> ContactPreferences:
    given: ContactPreferences = to_record(read_section(file, place, ReachSection, data, "`reach` of a person"))
    for name, value in (("quiet_from", given.quiet_from), ("quiet_to", given.quiet_to)):
        if value and _CLOCK.match(value) is None:
            message = f"`{name}` of `reach` is `{value}`; write hours and minutes in quotes, such as `'22:00'`"
            raise file.error((*place, name), message, field=name, value=value)
    if bool(given.quiet_from) != bool(given.quiet_to):
        missing = "quiet_to" if given.quiet_from else "quiet_from"
        raise file.error(place, f"`reach` says only one end of the quiet hours; add `{missing}`", field=missing)
    try:
        read_zone(given.timezone)
    except ValueError as error:
        message = f"`timezone` of `reach`: {error}"
        raise file.error((*place, "timezone"), message, field="timezone", value=given.timezone) from None
    return given


def _utc(text: str) -> datetime | None:
    """Return `None` without a zone, and for anything else."""
    try:
        moment = datetime.fromisoformat(text)
        # `astimezone` overflows for a year 1 or 9999 if the zone leads beyond it.
        return moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    # Include the inode: a replacing file may have the same size and time.
    return status.st_mtime_ns, status.st_size, status.st_ino
