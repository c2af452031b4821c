from pathlib import Path

import pytest
from tables import table

from signoff.channels.channel_loader import channel_class, known_kinds
from signoff.contracts.errors import ConfigError
from signoff.contracts.names import PLUGIN_NAMES
from signoff.plugins.loader import Plugins
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.catalog_diff import catalog_diff
from signoff.registry.manifest.channel_sections import DeclaredChannel
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.manifest.room_sections import ROOM_ADDRESSES, TeamRoom
from signoff.registry.normal_form import normal_form

CHAT = DeclaredChannel("chat", "slack")
GOOD = """\
version: 1
channels:
  chat: {kind: slack}
  phone: {kind: telegram}
rooms:
  role:finance: [{channel: chat, room: C0123}, {channel: phone, room: "-100123", tenant: other}]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "signoff.yaml"
    path.write_text(text)
    return path


def with_rooms(*rooms: TeamRoom, entry: str = "role:finance") -> Catalog:
    return build_catalog(channels=[CHAT], rooms={entry: rooms})


def test_manifest_declares_rooms_of_roles(tmp_path: Path) -> None:
    found = load_manifest(written(tmp_path, GOOD)).channels.rooms
    assert found == {"role:finance": (TeamRoom("chat", "C0123"), TeamRoom("phone", "-100123", "other"))}


@table(
    ("old", "new", "why"),
    ("channel: chat", "channel: chot", "unknown channel `chot`; did you mean `chat`"),
    ("kind: slack", "kind: webhook", "`webhook`, which has no rooms"),
    ("C0123", "D0123", "`D0123`, which is no address of a room of kind `slack`"),
    ("C0123", '""', "no address"),
    ('"-100123"', '"123"', "`123`, which is no address of a room of kind `telegram`"),
    ('"-100123"', "-100123", "must be text"),
    ("role:finance", "user:ana", "write a role"),
    ("role:finance", "role:", "write a role"),
    ("tenant: other", 'tenant: "a b"', "invalid tenant"),
    ("tenant: other", "tenent: other", "tenant"),
    ("tenant: other", "locale: xx", "`xx`, a language without texts"),
    ("[{channel: chat, room: C0123}", "[{channel: chat, room: C0123}, {channel: chat, room: C0123}", "twice"),
)
def test_unusable_room_is_refused_at_load(old: str, new: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        load_manifest(written(tmp_path, GOOD.replace(old, new, 1)))


def test_rooms_of_a_role_must_be_a_list(tmp_path: Path) -> None:
    rooms = "rooms:\n  role:finance: {channel: chat, room: C0123}\n"
    with pytest.raises(ConfigError, match="must be a list"):
        load_manifest(written(tmp_path, f"version: 1\nchannels:\n  chat: {{kind: slack}}\n{rooms}"))


def test_room_of_an_own_module_may_have_any_address() -> None:
    own = DeclaredChannel("own", "pager.of_ours")
    catalog = build_catalog(channels=[own], rooms={"role:finance": [TeamRoom("own", "hall 3")]})
    assert catalog.channels.rooms == {"role:finance": (TeamRoom("own", "hall 3"),)}


def test_rooms_change_the_hash_and_the_normal_form() -> None:
    without, first, second = with_rooms(), with_rooms(TeamRoom("chat", "C1")), with_rooms(TeamRoom("chat", "C2"))
    assert len({without.hash, first.hash, second.hash}) == 3
    assert normal_form(first)["rooms"] == {"role:finance": [{"channel": "chat", "room": "C1"}]}
    assert [change.name for change in catalog_diff(first, second).changes] == ["rooms"]


def test_kinds_with_addresses_are_the_kinds_with_rooms() -> None:
    plugins = Plugins(PLUGIN_NAMES)
    assert {kind for kind in known_kinds(plugins) if channel_class(kind, plugins).rooms} == set(ROOM_ADDRESSES)
