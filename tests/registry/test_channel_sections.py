from pathlib import Path
from typing import Any

import pytest
from registry_kit import a_tool
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.contracts.person import ContactPreferences
from signoff.people.people_file import load_people
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.catalog_diff import catalog_diff
from signoff.registry.manifest.channel_sections import DeclaredChannel, RoutingRules
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.normal_form import normal_form

MAIL = DeclaredChannel("mail", "email", {"host": "mx", "smtp": {"password": "env:MAIL"}})
CHAT = DeclaredChannel("chat", "slack")
GOOD = """\
version: 1
channels:
  mail: {kind: email, host: mx, smtp: {password: "env:MAIL"}}
  own-1: {kind: pager.of_ours}
routing: {default: [own-1, mail], fallbackAfter: 15m, all: true, digest_over: 2}
"""


def a_catalog(*channels: DeclaredChannel, notify: Any = None, default: tuple[str, ...] = ()) -> Catalog:
    tool = a_tool("pay", requires_approval=ApprovalPolicy(notify=notify))
    return build_catalog(tools=[tool], channels=channels, routing=RoutingRules(default))


def written(folder: Path, text: str) -> Path:
    path = folder / "signoff.yaml"
    path.write_text(text)
    return path


def test_manifest_declares_channels_and_routing(tmp_path: Path) -> None:
    found = load_manifest(written(tmp_path, GOOD)).channels
    assert dict(found.declared) == {"mail": MAIL, "own-1": DeclaredChannel("own-1", "pager.of_ours")}
    assert found.routing == RoutingRules(("own-1", "mail"), 900.0, all=True, digest_over=2)


def test_manifest_without_channels_has_only_the_inbox(tmp_path: Path) -> None:
    found = load_manifest(written(tmp_path, "version: 1\n")).channels
    assert (dict(found.declared), found.routing) == ({}, RoutingRules())
    assert found.select(None) == ()
    assert RoutingRules() == RoutingRules((), 900.0, all=False, digest_over=5)


@table(("notify", "reached"), (None, ("mail",)), ((), ()), (("chat",), ("chat",)), (("chat", "mail"), ("chat", "mail")))
def test_policy_channels_override_the_default(notify: Any, reached: tuple[str, ...]) -> None:
    catalog = a_catalog(MAIL, CHAT, notify=notify, default=("mail",))
    policy = catalog.policy("pay").policy
    assert policy is not None
    assert catalog.channels.select(policy.notify) == reached


@table(
    ("text", "line", "words"),
    ("channels: [mail]\n", 2, "`channels` of the manifest must be a mapping"),
    ("channels:\n  mail: email\n", 3, "channel `mail` must be a mapping with a `kind`"),
    ("channels:\n  mail: {host: mx}\n", 3, "`kind` of channel `mail` is missing"),
    ("channels:\n  mail: {kind: E-Mail}\n", 3, "channel `mail` has the kind `E-Mail`; write `email`"),
    ("channels:\n  mail: {kind: 7}\n", 3, "channel `mail` has the kind `7`"),
    ("channels:\n  a b: {kind: email}\n", 3, "channel `a b` has no name such as `mail`"),
    ("channels:\n  inbox: {kind: email}\n", 3, "has the name of the inbox"),
    ("channels:\n  mail:\n    kind: email\n    password: geheim\n", 5, "has a secret in `password`; write `env:NAME`"),
    ("routing: {default: [mail]}\n", 2, "names the unknown channel `mail`; known: none"),
    ("channels:\n  mail: {kind: email}\nrouting: {default: [mial]}\n", 4, "did you mean `mail`?"),
    ("channels:\n  mail: {kind: email}\nrouting: {default: [mail, mail]}\n", 4, "names the channel `mail` twice"),
    ("routing: {fallback: 15m}\n", 2, "unknown key `fallback` of `routing`"),
    ("routing: {fallback_after: soon}\n", 2, "`soon` is not a duration"),
    ("routing: {digest_over: 0}\n", 2, "`digest_over` of `routing`"),
    ("routing: {all: mail}\n", 2, "`all` of `routing` must be `true` or `false`"),
)
def test_invalid_channel_section_is_one_sentence_with_its_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_manifest(written(tmp_path, "version: 1\n" + text))
    assert words in caught.value.message
    assert caught.value.context["line"] == line, caught.value.message
    assert "geheim" not in caught.value.message


def test_policy_may_only_name_declared_channels(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"`notify` of tool `pay` names the unknown channel `mial`; did you mean `mail`"
    ):
        a_catalog(MAIL, notify=("mial",))
    with pytest.raises(ConfigError, match="names the channel `mail` twice"):
        a_catalog(MAIL, notify=("mail", "mail"))
    (tmp_path / "notify_tools.py").write_text("async def pay() -> None:\n    '''Pay.'''\n")
    text = f"version: 1\npath: ['{tmp_path}']\ntools:\n  pay:\n    handler: notify_tools:pay\n    scope: generalist\n"
    with pytest.raises(ConfigError) as caught:
        load_manifest(written(tmp_path, text + "    requiresApproval:\n      quorum: 2\n      notify: [mail]\n"))
    assert caught.value.context["line"] == 9
    assert "names the unknown channel `mail`; known: none" in caught.value.message


@table(
    ("channel", "words"),
    (DeclaredChannel("mail", "email", {"at": float("nan")}), "has options that are not plain JSON"),
    (DeclaredChannel("mail", "email", {"keys": ["x"], "api_key": ["abc"]}), "has a secret in `api_key`"),
    (DeclaredChannel("mail", ""), "has the kind"),
    (DeclaredChannel("", "email"), "has no name such as"),
)
def test_channels_declared_in_code_are_checked(channel: DeclaredChannel, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        build_catalog(channels=[channel])
    assert caught.value.context["channel"] == channel.name
    with pytest.raises(ConfigError, match="declared twice"):
        build_catalog(channels=[CHAT, CHAT])


def test_channels_are_part_of_hash_and_normal_form() -> None:
    one, other = a_catalog(MAIL), a_catalog(DeclaredChannel("mail", "email", {**MAIL.options, "host": "mx2"}), CHAT)
    assert len({a_catalog().hash, one.hash, other.hash, a_catalog(MAIL, default=("mail",)).hash}) == 4
    assert normal_form(one)["channels"] == {"mail": {"kind": "email", "options": dict(MAIL.options)}}
    assert [change.words for change in catalog_diff(one, other).changes] == [
        "+ channel `chat`", "~ channel `mail`: options.host"
    ]  # fmt: skip
    assert [change.words for change in catalog_diff(one, a_catalog(MAIL, default=("mail",))).changes] == [
        "~ setting `routing`"
    ]


def people(folder: Path, reach: str) -> Path:
    path = folder / "people.yaml"
    path.write_text(f"- id: ana\n  reach: {reach}\n")
    return path


def test_person_declares_contact_preferences(tmp_path: Path) -> None:
    full = (
        "{channels: [chat, mail], quietFrom: '22:00', quiet_to: 07:00, timezone: Europe/Lisbon, quiet_days: [sat, sun]}"
    )
    (ana,) = load_people(people(tmp_path, full))
    assert ana.reach == ContactPreferences(
        channels=("chat", "mail"),
        quiet_from="22:00",
        quiet_to="07:00",
        timezone="Europe/Lisbon",
        quiet_days=("sat", "sun"),
    )
    assert [each.reach for each in load_people(people(tmp_path, "{}"))] == [ContactPreferences()]
    assert [each.reach for each in load_people(people(tmp_path, "~"))] == [None]


@table(
    ("reach", "words"),
    ("[mail]", "`reach` of a person must be a mapping"),
    ("{channel: [mail]}", "unknown key `channel` of `reach` of a person"),
    ("{quiet_from: '24:00', quiet_to: '07:00'}", "`quiet_from` of `reach` is `24:00`; write hours and minutes"),
    ("{quiet_from: '22:00', quiet_to: '7:00'}", "`quiet_to` of `reach` is `7:00`"),
    ("{quiet_from: '22:00'}", "only one end of the quiet hours; add `quiet_to`"),
    ("{quiet_to: '07:00'}", "add `quiet_from`"),
    ("{timezone: Europe/Lisbonne}", "`Europe/Lisbonne` is no time zone that this machine knows"),
    ("{timezone: ../etc/passwd}", "is no time zone"),
    ("{quiet_days: [sunday]}", "must be `mon`, `tue`"),
)
def test_invalid_contact_preference_is_one_sentence(tmp_path: Path, reach: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_people(people(tmp_path, reach))
    assert words in caught.value.message, caught.value.message
    assert caught.value.context["line"] == 2
