"""The section of rotas in the manifest."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import is_id
from signoff.contracts.names import DEFAULT_TENANT
from signoff.formats.declared_fields import IN_CODE, FieldSpec
from signoff.formats.hours import read_zone
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.record_section import record_fields, record_section
from signoff.formats.yaml_file import YamlFile
from signoff.formats.yaml_section import read_section
from signoff.keys.secret_references import FORMS, is_reference
from signoff.people.on_call import ON_CALL
from signoff.people.people_file import is_calendar
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.registry.actor import Actor

SOURCES: Final = ("ical", "pagerduty", "opsgenie")


@dataclass(frozen=True)
class VendorSchedule:
    """A schedule of PagerDuty or Opsgenie."""

    schedule: str = ""
    """The id of the schedule."""
    token: str = field(default="", repr=False)
    """The [reference](#secrets) of an API key that may read schedules."""
    url: Annotated[str, FieldSpec(unset="of the United States")] = ""
    """The address of the API, such as `https://api.eu.opsgenie.com`."""


@dataclass(frozen=True)
class OnCallRota:
    """People on call, from one source: `ical`, `pagerduty` or `opsgenie`."""

    name: Annotated[str, FieldSpec(key=IN_CODE)]
    ical: str = field(default="", repr=False)
    """The https address of an iCal file, or its [reference](#secrets)."""
    pagerduty: VendorSchedule | None = None
    """A schedule of PagerDuty."""
    opsgenie: VendorSchedule | None = None
    """A schedule of Opsgenie."""
    tenant: str = DEFAULT_TENANT
    """The tenant of its people and of the requests."""
    timezone: str = "UTC"
    """The zone of days, and of times without one, in the iCal file."""


OnCallSection: Final = record_section(OnCallRota)


def read_on_call(file: YamlFile, rotas: Mapping[str, Any]) -> list[OnCallRota]:
    """Raises `ConfigError` with file and line."""
    return [
        OnCallRota(
            name=name,
            **record_fields(read_section(file, ("oncall", name), OnCallSection, data, f"rota `{name}`")),
        )
        for name, data in rotas.items()
    ]


def build_on_call(
    rotas: Iterable[OnCallRota],
    policies: Mapping[str, CompiledPolicy],
    actors: Mapping[str, Actor],
    default_approvers: Iterable[str],
) -> Mapping[str, OnCallRota]:
    """Check rotas alone and against the approvers that name them. Raises `ConfigError`."""
    known: dict[str, OnCallRota] = {}
    for rota in rotas:
        if rota.name in known:
            raise _refuse(rota.name, "", "is declared twice; keep one")
        _check(rota)
        known[rota.name] = rota
    _check_entries(default_approvers, known, "`approvers` of `defaults`", field="default_approvers")
    for tool, policy in policies.items():
        entries = (*policy.rules.named_approvers, *policy.rules.later_approvers)
        _check_entries(entries, known, f"tool `{tool}`", tool_name=tool, field="approvers")
    for name, actor in actors.items():
        directed = actor.escalation
        named = () if directed is None else (*directed.approvers, *directed.escalate_to)
        _check_entries(named, known, f"`escalation` of actor `{name}`", actor=name, field="escalation")
    return MappingProxyType(known)


def _check(rota: OnCallRota) -> None:
    if not is_id(rota.name):
        raise _refuse(rota.name, "", "has no name such as `payments`: letters, digits, `_`, `-`, at most 48")
    given = [each for each in SOURCES if vars(rota)[each]]
    if len(given) != 1:
        raise _refuse(rota.name, given[1] if given else "", "needs one of `ical`, `pagerduty` and `opsgenie`")
    # An address is often a secret: the message does not quote it.
    if rota.ical and not is_calendar(rota.ical):
        raise _refuse(rota.name, "ical", f"needs an address that begins with `https://` in `ical`, or {FORMS}")
    schedule = rota.pagerduty or rota.opsgenie
    if schedule is not None:
        _check_schedule(rota.name, given[0], schedule)
    if not is_id(rota.tenant):
        raise _refuse(rota.name, "tenant", f"has the invalid tenant {quote_name(rota.tenant)}")
    try:
        read_zone(rota.timezone)
    except ValueError as error:
        raise _refuse(rota.name, "timezone", f"has a wrong `timezone`: {error}") from None


def _check_schedule(name: str, source: str, schedule: VendorSchedule) -> None:
    if not schedule.schedule:
        raise _refuse(name, f"{source}.schedule", "needs the id of a schedule in `schedule`")
    # Declarations are printed and compared, so they must not hold a secret.
    if not is_reference(schedule.token):
        raise _refuse(name, f"{source}.token", f"needs an API key in `token`, as {FORMS}")
    parts = urlsplit(schedule.url)
    if schedule.url and (parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment):
        raise _refuse(name, f"{source}.url", "needs an address that begins with `https://` in `url`")


def _check_entries(entries: Iterable[str], known: Mapping[str, Any], who: str, **context: str) -> None:
    for entry in entries:
        name = entry.removeprefix(ON_CALL)
        if entry.startswith(ON_CALL) and name not in known:
            near = did_you_mean(name, known) or "; declare it in `oncall`"
            raise ConfigError(f"{who} names the unknown rota `{name}`{near}", **context, value=entry)


def _refuse(name: str, field_name: str, why: str) -> ConfigError:
    where = f"oncall.{name}.{field_name}" if field_name else f"oncall.{name}"
    return ConfigError(f"rota {quote_name(name)} {why}", field=where, value=name)
