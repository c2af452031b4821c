"""The section of rooms in the manifest: the rooms of a team, which show its waiting requests without arguments."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import is_id
from signoff.contracts.names import DEFAULT_TENANT
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.record_section import record_section, to_record
from signoff.formats.yaml_file import YamlFile
from signoff.formats.yaml_section import read_section
from signoff.languages.catalogue import spoken_language

_ROLE: Final = "role:"
ROOM_ADDRESSES: Final[Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {
        "slack": re.compile(r"[CG][A-Z0-9]{1,30}\Z"),
        # A channel of a team. A conversation with one person begins with `a:`.
        "teams": re.compile(r"19:[A-Za-z0-9_.@-]{1,150}\Z"),
        # Groups have negative numbers. A positive one is a person.
        "telegram": re.compile(r"-[1-9][0-9]{0,18}\Z"),
    }
)
"""The addresses of rooms, by kind of channel. Other kinds have no rooms, except modules of your own."""


@dataclass(frozen=True)
class TeamRoom:
    """A room of a team on a channel. It shows requests of one tenant."""

    channel: str
    """The name of a channel."""
    room: str
    """The room's address on the channel, such as `C0123` of Slack."""
    tenant: str = DEFAULT_TENANT
    """The tenant of the requests."""
    locale: str = ""
    """The language of its cards, such as `de`. English by default."""


TeamRooms = Mapping[str, tuple[TeamRoom, ...]]
"""Rooms by approver entry, such as `role:finance`."""
RoomSection: Final = record_section(TeamRoom)


def read_rooms(file: YamlFile, rooms: Mapping[str, Any]) -> dict[str, tuple[TeamRoom, ...]]:
    """Raises `ConfigError` with file and line."""
    read: dict[str, tuple[TeamRoom, ...]] = {}
    for entry, data in rooms.items():
        if not isinstance(data, list):
            raise file.error(("rooms", entry), f"the rooms of `{entry}` must be a list", field="rooms")
        read[entry] = tuple(
            to_record(read_section(file, ("rooms", entry, index), RoomSection, each, f"room {index + 1} of `{entry}`"))
            for index, each in enumerate(data)
        )
    return read


def build_rooms(rooms: Mapping[str, Sequence[TeamRoom]] | None, kinds: Mapping[str, str]) -> TeamRooms:
    """Check rooms against the channels. `kinds` maps each channel to its kind. Raises `ConfigError`."""
    built: dict[str, tuple[TeamRoom, ...]] = {}
    for entry, each in (rooms or {}).items():
        if not entry.startswith(_ROLE) or not is_id(entry.removeprefix(_ROLE)):
            raise _refuse(entry, "write a role there, such as `role:finance`")
        for room in each:
            _check(entry, room, kinds)
        if len({(room.channel, room.room, room.tenant) for room in each}) < len(each):
            raise _refuse(entry, "name a room twice; keep one")
        built[entry] = tuple(each)
    return MappingProxyType(built)


def find_rooms(rooms: TeamRooms, approvers: Iterable[str], tenant: str) -> tuple[TeamRoom, ...]:
    """Return the rooms that show a request of these approver entries, each once."""
    every = dict.fromkeys(room for entry in approvers for room in rooms.get(entry, ()))
    return tuple(room for room in every if room.tenant == tenant)


def _check(entry: str, room: TeamRoom, kinds: Mapping[str, str]) -> None:
    if room.channel not in kinds:
        raise _refuse(entry, f"name the unknown channel {quote_name(room.channel)}{did_you_mean(room.channel, kinds)}")
    kind = kinds[room.channel]
    if kind not in ROOM_ADDRESSES and "." not in kind:
        known = ", ".join(f"`{each}`" for each in ROOM_ADDRESSES)
        raise _refuse(entry, f"name channel `{room.channel}` of kind `{kind}`, which has no rooms; kinds with: {known}")
    pattern = ROOM_ADDRESSES.get(kind)
    if not room.room or (pattern is not None and pattern.match(room.room) is None):
        raise _refuse(entry, f"have {quote_name(room.room)}, which is no address of a room of kind `{kind}`")
    if room.locale and not spoken_language(room.locale):
        raise _refuse(entry, f"have {quote_name(room.locale)}, a language without texts")
    if not is_id(room.tenant):
        raise _refuse(entry, f"have the invalid tenant {quote_name(room.tenant)}")


def _refuse(entry: str, why: str) -> ConfigError:
    return ConfigError(f"the rooms of {quote_name(entry)} {why}", field="rooms", value=entry)
