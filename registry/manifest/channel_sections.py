"""The sections of channels and routing in the manifest, and the channels of a catalog."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final, TypedDict

from pydantic import Field

from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import is_id
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.record_section import record_section, to_record
from signoff.formats.yaml_file import Place, YamlFile
from signoff.formats.yaml_section import read_section
from signoff.keys.secret_references import FORMS, literal_secrets
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.registry.extras import CHANNEL_EXTRAS, missing_extra
from signoff.registry.manifest.room_sections import TeamRoom, TeamRooms, build_rooms, read_rooms
from signoff.registry.manifest.sections import ManifestSection

INBOX: Final = "inbox"
"""Every person has it, so no channel may have this name."""
_KIND: Final = re.compile(r"[a-z][a-z0-9_]*\Z|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z", re.ASCII)


@dataclass(frozen=True)
class DeclaredChannel:
    """One declared channel."""

    name: str
    kind: str
    """`email`, `slack` and so on, or a module."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the channel. Secrets among them are references."""


@dataclass(frozen=True)
class RoutingRules:
    """The first channels to reach people, if neither the policy nor the person chooses."""

    default: tuple[str, ...] = ()
    """Channels, in order, if the policy has no `notify`."""
    fallback_after: float = 900.0
    """When an unread card's next channel is tried."""
    all: bool = False
    """Try all of a person's channels at once."""
    digest_over: Annotated[int, Field(ge=1)] = 5
    """More cards than this for one person become one."""


RoutingSection: Final = record_section(RoutingRules)


@dataclass(frozen=True)
class Channels:
    """The channels of a catalog."""

    declared: Mapping[str, DeclaredChannel] = field(default_factory=dict)
    routing: RoutingRules = RoutingRules()
    rooms: TeamRooms = field(default_factory=dict)

    def select(self, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the channels of a request whose policy wants these. `None` leaves it to the rules."""
        return self.routing.default if wanted is None else wanted

    @property
    def content(self) -> dict[str, Any]:
        """The part for the catalog's hash, without secrets."""
        declared = {each.name: {"kind": each.kind, "options": each.options} for each in self.declared.values()}
        rooms = {entry: [vars(room) for room in each] for entry, each in self.rooms.items()}
        return {"declared": declared, "routing": vars(self.routing), **({"rooms": rooms} if rooms else {})}


NO_CHANNELS: Final = Channels()


class ChannelFields(TypedDict):
    """The fields of a catalog that this module reads."""

    channels: list[DeclaredChannel]
    routing: RoutingRules
    rooms: Mapping[str, Sequence[TeamRoom]]


def read_channels(file: YamlFile, top: ManifestSection) -> ChannelFields:
    """Raises `ConfigError` with file and line."""
    routing = to_record(read_section(file, ("routing",), RoutingSection, top.routing, "`routing`"))
    channels = [_channel(file, name, data) for name, data in top.channels.items()]
    return {"channels": channels, "routing": routing, "rooms": read_rooms(file, top.rooms)}


def build_channels(
    declared: Iterable[DeclaredChannel],
    routing: RoutingRules | None,
    policies: Mapping[str, CompiledPolicy],
    rooms: Mapping[str, Sequence[TeamRoom]] | None = None,
) -> Channels:
    """Check channels alone and against the names that refer to them. Raises `ConfigError`."""
    known: dict[str, DeclaredChannel] = {}
    for each in declared:
        if each.name in known:
            raise _refuse(each.name, "", "is declared twice; keep one")
        _check(each)
        known[each.name] = each
    rules = RoutingRules() if routing is None else routing
    # At build: otherwise the first card would reach nobody because of an unknown name.
    _check_names("`default` of `routing`", rules.default, known, field="routing.default")
    for tool, policy in policies.items():
        wanted = None if policy.policy is None else policy.policy.notify
        _check_names(f"`notify` of tool `{tool}`", wanted or (), known, tool_name=tool, field="notify")
    kinds = {name: each.kind for name, each in known.items()}
    return Channels(MappingProxyType(known), rules, build_rooms(rooms, kinds))


def _channel(file: YamlFile, name: str, data: Any) -> DeclaredChannel:
    place: Place = ("channels", name)
    if not isinstance(data, Mapping):
        raise file.error(place, f"channel `{name}` must be a mapping with a `kind` and the options of that kind")
    if "kind" not in data:
        raise file.error(place, f"`kind` of channel `{name}` is missing", field=f"channels.{name}.kind")
    return DeclaredChannel(name, data["kind"], {key: value for key, value in data.items() if key != "kind"})


def _check(given: DeclaredChannel) -> None:
    if not is_id(given.name):
        raise _refuse(given.name, "", "has no name such as `mail`: letters, digits, `_`, `-`, at most 48")
    if given.name == INBOX:
        raise _refuse(given.name, "", "has the name of the inbox, which every person has; rename it")
    if not isinstance(given.kind, str) or _KIND.match(given.kind) is None:
        raise _refuse(
            given.name, "kind", f"has the kind {quote_name(str(given.kind))}; write `email`, or `package.module`"
        )
    extra = CHANNEL_EXTRAS.get(given.kind)
    if extra is not None and (lacks := missing_extra(extra)):
        raise _refuse(given.name, "kind", f"is of kind `{given.kind}`, which {lacks}")
    # Options are hashed, compared and printed: a secret among them would leak.
    for name in literal_secrets(given.options):
        raise _refuse(given.name, name, f"has a secret in `{name}`; write {FORMS} there and put it where that leads")
    try:
        # Hash here, where the channel is known: the catalog's hash would fail without its name.
        sha256_hex(given.options)
    except NotCanonical as error:
        raise _refuse(given.name, "", f"has options that are not plain JSON: {error}") from None


def _check_names(who: str, names: Iterable[str], known: Mapping[str, Any], **context: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name not in known:
            near = did_you_mean(name, known) or f"; known: {', '.join(f'`{each}`' for each in known) or 'none'}"
            raise ConfigError(f"{who} names the unknown channel {quote_name(name)}{near}", **context, value=name)
        # Channels are tried in turn: a second entry would repeat an unread card to the same person.
        if name in seen:
            raise ConfigError(f"{who} names the channel `{name}` twice; keep one", **context, value=name)
        seen.add(name)


def _refuse(name: str, field_name: str, why: str) -> ConfigError:
    where = f"channels.{name}.{field_name}" if field_name else f"channels.{name}"
    return ConfigError(f"channel {quote_name(name)} {why}", channel=name, field=where, value=name)
