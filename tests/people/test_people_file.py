import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from some import some
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Delegation, Person
from signoff.people.directory import (
    DevelopmentDirectory,
    Directory,
    FixedDirectory,
    declared_people,
    development_directory,
)
from signoff.people.login import id_from_login
from signoff.people.people_file import CHECK_SECONDS, FileDirectory, is_calendar, load_people
from signoff.people.vouched_directory import VouchedDirectory
from signoff.registry.manifest.loader import load_manifest

GOOD = """\
- id: ana
  name: Ana
  tier: trusted
  roles: [finance, admin]
  locale: de
  attributes: {costCentre: "4711"}
  identities:
    email: [Ana@Example.com, ana@example.org]
    slack: ["T1:U1"]
  delegations:
    - {to: bo, until: "2030-01-31T18:00:00+01:00"}
- {id: bo, active: false}
- {id: ana, tenant: other, identities: {email: [ana@example.com]}}
"""
END = datetime(2030, 1, 31, 17, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "people.yaml"
    file.write_text(GOOD)
    return file


def test_every_key_of_a_person_is_read(path: Path) -> None:
    ana, bo, other = load_people(path)
    assert ana == Person(
        id="ana",
        name="Ana",
        tier="trusted",
        roles=("finance", "admin"),
        locale="de",
        attributes={"costCentre": "4711"},
        identities={"email": ("Ana@Example.com", "ana@example.org"), "slack": ("T1:U1",)},
        delegations=(Delegation(to="bo", until=END),),
    )
    assert (bo.active, bo.name, bo.roles, bo.tenant) == (False, "", (), "main")
    assert other.tenant == "other"


@table(
    ("text", "line", "words"),
    ("", 1, "people are a list of persons"),
    ("people: []\n", 1, "people are a list of persons"),
    ("- ana\n", 1, "a person is a mapping with an `id`"),
    ("- {name: Ana}\n", 1, "`id` of a person is missing"),
    ("- id: ana\n  role: finance\n", 2, "unknown key `role` of a person; did you mean"),
    ("- id: ana\n  role: finance\n", 2, "did you mean `roles`?"),
    ("- id: 5\n", 1, "`id` of a person must be text"),
    ("- id: ana\n- id: bo\n  roles: finance\n", 3, "`roles` of a person must be a list"),
    ("- id: ana\n  active: yes\n", 2, "`active` of a person must be `true` or `false`"),
    ("- id: a b\n", 1, "does not match"),
    ("- id: ana\n  roles:\n    - finance\n    - chief accountant\n", 4, "`roles` of person `ana`"),
    ("- id: ana\n  tenant: a.b\n", 2, "`tenant` of person `ana`"),
    ("- id: ana\n\n- id: ana\n", 3, "declared twice in tenant `main`"),
    ("- id: ana\n  identities: {email: a@b}\n", 2, "`identities` of a person"),
    ("- id: ana\n  identities:\n    e mail: [a@b]\n", 3, "`identities` of person `ana` is `e mail`"),
    ("- id: ana\n  identities:\n    email:\n      - ana\n", 4, "no plain address such as"),
    ("- id: ana\n  identities:\n    email:\n      - '\"ana\"@corp.com'\n", 4, "no plain address such as"),
    ("- id: ana\n  identities:\n    email:\n      - mailto:ana@corp.com\n", 4, "no plain address such as"),
    ("- id: ana\n  identities:\n    slack:\n      - ''\n", 4, "empty"),
    ("- id: ana\n  identities:\n    slack:\n      - 'T1:U1 '\n", 4, "blanks around it"),
    (
        "- id: ana\n  identities: {email: [a@b.c]}\n- id: bo\n  identities:\n    email:\n      - A@B.C\n",
        6,
        "person `bo` has the email identity `a@b.c`, which is that of `ana`; keep one",
    ),
    ("- {id: ana}\n- id: bo\n  person_id: anna\n", 3, "is not declared in tenant `main`; did you mean `ana`"),
    ("- {id: ana, tenant: other}\n- id: bo\n  person_id: ana\n", 3, "not declared in tenant `main`"),
    ("- {id: a1}\n- {id: a2, person_id: a1}\n- id: a3\n  person_id: a2\n", 4, "itself an entry of `a1`"),
    ("- id: a1\n  person_id: a2\n- {id: a2, person_id: a1}\n", 2, "itself an entry of `a1`"),
    ("- id: ana\n  delegations: [bo]\n", 2, "a delegation is a mapping with `to` and `until`"),
    ("- id: ana\n  delegations:\n    - {to: ana, until: '2030-01-01T00:00Z'}\n", 3, "delegates to themselves"),
    (
        "- id: ana\n  delegations:\n    - {to: robret, until: '2030-01-01T00:00Z'}\n- id: robert\n",
        3,
        "delegates to `robret`, who is not declared in tenant `main`; did you mean `robert`?",
    ),
    (
        "- id: ana\n  delegations:\n    - {to: bo, until: '2030-01-01T00:00Z'}\n- {id: bo, tenant: other}\n",
        3,
        "not declared in tenant `main`",
    ),
    ("- id: ana\n  delegations:\n    - to: ana\n", 3, "`until` of a delegation is missing"),
    ("- id: ana\n  delegations:\n    - to: bo\n      til: x\n", 4, "unknown key `til` of a delegation"),
    ("- id: ana\n  delegations:\n    - to: bo\n      until: tomorrow\n", 4, "write a time and its zone"),
    ("- id: ana\n  delegations:\n    - to: bo\n      until: 2030-01-01\n", 4, "write a time and its zone"),
    ("- id: ana\n  delegations:\n    - to: bo\n      until: 0001-01-01T00:00+14:00\n", 4, "and its zone"),
    ("- id: ana\n  delegations:\n    - to: bo\n      until: 2030\n", 4, "`until` of a delegation must be text"),
    ("- id: ana\n  calendar: private-4711.ics\n", 2, "`calendar` of a person is an address that begins with"),
)
def test_each_error_in_a_people_file_is_one_sentence_with_its_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    file = tmp_path / "people.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_people(file)
    error = caught.value
    assert words in error.message, error.message
    assert error.message.startswith(f"{file}:{line}: ")
    assert (error.context["file"], error.context["line"]) == (str(file), line)
    assert "\n" not in error.message
    assert not error.message.endswith(".")
    assert "4711" not in f"{error.message} {error.context}"


def test_wrong_spelling_of_a_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "people.yaml"
    file.write_text("- id: ana\n- id: bo\n  roles: []\n  Roles: []\n")
    with pytest.raises(ConfigError, match=r"people\.yaml:4: unknown key `Roles`.*did you mean `roles`"):
        load_people(file)


def test_directory_in_code_is_validated_like_a_file() -> None:
    ana = Person(id="ana", delegations=(Delegation(to="bo", until=datetime(2030, 1, 1)),))
    with pytest.raises(ConfigError, match="without a zone"):
        FixedDirectory([ana, Person(id="bo")])


def test_accounts_and_logins_of_one_person_share_an_id(tmp_path: Path) -> None:
    file = tmp_path / "people.yaml"
    file.write_text(
        "- {id: ana, identities: {oidc: ['https://x#1']}}\n"
        "- {id: ana-admin, person_id: ana, identities: {oidc: ['https://x#2']}}\n"
        "- {id: bo, person_id: bo}\n"
    )
    people = DevelopmentDirectory(VouchedDirectory(FileDirectory(file), joined={("main", "oidc-3"): "ana-admin"}))
    for subject in ("ana", "ana-admin", id_from_login("https://x#1"), id_from_login("https://x#2"), "oidc-3"):
        assert people.person_id(subject) == "ana"
        assert people.person_id(subject, "other") == subject
    assert (people.person_id("bo"), people.person_id("nobody"), people.person_id("guest")) == ("bo", "nobody", "guest")


def test_person_is_found_by_identity(path: Path) -> None:
    directory = FixedDirectory(load_people(path))
    for address in ("ana@example.com", "ANA@EXAMPLE.COM", "Ana@Example.com"):
        found = some(directory.by_identity("email", address))
        assert (found.id, found.tenant) == ("ana", "main")
    other = some(directory.by_identity("email", "ana@example.com", "other"))
    assert other.tenant == "other"
    assert directory.by_identity("slack", "T1:U1") == directory.find("ana")
    for channel, identity in (("slack", "t1:u1"), ("slack", "ana@example.com"), ("email", "T1:U1"), ("email", "")):
        assert directory.by_identity(channel, identity) is None


def test_address_in_look_alike_letters_is_another_address() -> None:
    directory = FixedDirectory([Person(id="kim", identities={"email": ("kim@example.com",)})])
    assert "\u212aim@example.com".lower() == "kim@example.com"
    assert directory.by_identity("email", "\u212aim@example.com") is None


def test_delegators_are_those_with_a_valid_delegation() -> None:
    until = (Delegation(to="bo", until=END), Delegation(to="bo", until=END + timedelta(hours=1)))
    people = [
        Person(id="cy", delegations=until[:1]),
        Person(id="ana", delegations=until),
        Person(id="gone", active=False, delegations=until),
        Person(id="bo", delegations=(Delegation(to="ana", until=END),)),
        Person(id="bo", tenant="other"),
    ]
    directory = FixedDirectory(people)

    def ids(person: str, tenant: str, now: datetime) -> list[str]:
        return [each.id for each in directory.delegators(person, tenant, now)]

    before = END - timedelta(microseconds=1)
    assert ids("bo", "main", before) == ["cy", "ana"]
    assert ids("bo", "main", END) == ["ana"]
    assert ids("bo", "main", END + timedelta(hours=1)) == []
    assert (ids("bo", "other", before), ids("ana", "main", before), ids("gone", "main", before)) == ([], ["bo"], [])


def test_built_in_people_are_added_to_any_directory(path: Path) -> None:
    declared = FileDirectory(path)
    both = DevelopmentDirectory(declared)
    assert isinstance(both, Directory)
    assert [person.id for person in both.all("main")] == ["guest", "approver", "ana", "bo"]
    assert [person.id for person in both.all("other")] == ["ana"]
    assert both.find("approver", "other") is None
    assert both.by_identity("slack", "T1:U1") == both.find("ana")
    assert declared_people(both) is declared
    assert declared_people(declared) is declared
    assert development_directory([Person(id="guest", tier="trusted")]).all()[0].id == "approver"


def test_file_change_is_seen_within_a_second(path: Path) -> None:
    clock = Clock()
    directory = FileDirectory(path, clock=clock)
    path.write_text(GOOD.replace("finance, admin", "finance"))
    clock.seconds = CHECK_SECONDS / 2
    assert directory.find("ana") == FixedDirectory(load_people_of(GOOD, path.parent)).find("ana")
    clock.seconds = CHECK_SECONDS
    found = some(directory.find("ana"))
    assert found.roles == ("finance",)


def load_people_of(text: str, folder: Path) -> tuple[Person, ...]:
    other = folder / "other.yaml"
    other.write_text(text)
    return load_people(other)


def test_every_lookup_uses_the_new_file(path: Path) -> None:
    asked = (
        lambda d: d.find("bo"),
        lambda d: d.all("main"),
        lambda d: d.by_identity("slack", "T1:U1"),
        lambda d: d.person_id("al") == "ana",
        lambda d: d.delegators("bo", "main", END - timedelta(days=1)),
    )
    for ask in asked:
        path.write_text(f"{GOOD}- {{id: al, person_id: ana}}\n")
        clock = Clock()
        directory = FileDirectory(path, clock=clock)
        assert ask(directory)
        path.write_text("[]\n")
        clock.seconds = CHECK_SECONDS
        assert not ask(directory)


@pytest.mark.parametrize("broken", ["- id: ana\n  rolls: []\n", "- id: [\n", "", None])
def test_invalid_new_file_keeps_the_last_valid_one(
    path: Path, caplog: pytest.LogCaptureFixture, broken: str | None
) -> None:
    clock = Clock()
    directory = FileDirectory(path, clock=clock)
    caplog.set_level(logging.INFO)
    if broken is None:
        path.unlink()
    else:
        path.write_text(broken)
    for _ in range(3):
        clock.seconds += CHECK_SECONDS
        assert directory.find("ana") is not None
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert caplog.records[0].message.startswith(f"{path}:")
    assert caplog.records[0].message.endswith("; the people read before stay in force")
    path.write_text("- id: cy\n")
    clock.seconds += CHECK_SECONDS
    assert (directory.find("ana"), directory.find("cy")) == (None, Person(id="cy"))
    assert caplog.records[-1].message == f"{path} was read anew"


def test_replaced_file_of_equal_size_and_time_is_read_again(path: Path) -> None:
    clock = Clock()
    directory = FileDirectory(path, clock=clock)
    new = path.with_name("new.yaml")
    new.write_text(GOOD.replace("trusted", "distrus"))
    before = path.stat()
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert new.stat().st_size == before.st_size
    new.rename(path)
    clock.seconds = CHECK_SECONDS
    found = some(directory.find("ana"))
    assert found.tier == "distrus"


def test_unchanged_file_is_not_read_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    directory = FileDirectory(path, clock=clock)
    caplog.set_level(logging.INFO)
    people = directory.all()
    clock.seconds = 10 * CHECK_SECONDS
    assert all(one is other for one, other in zip(directory.all(), people, strict=True))
    assert caplog.records == []


def test_first_file_must_be_valid(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        FileDirectory(tmp_path / "nowhere.yaml")


def test_people_file_of_a_manifest_is_followed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signoff.people.people_file.CHECK_SECONDS", 0.0)
    manifest = path.with_name("signoff.yaml")
    manifest.write_text("version: 1\npeople: people.yaml\n")
    catalog = load_manifest(manifest)
    assert isinstance(declared_people(catalog.people), FileDirectory)
    path.write_text("- {id: cy, name: Cy Young}\n")
    assert [person.id for person in catalog.people.all()] == ["guest", "approver", "cy"]


@table(
    "written, good",
    ("env:ANA_CALENDAR", True),
    ("https://calendar.example.com/a.ics", True),
    ("webcal://calendar.example.com/a.ics", True),
    ("calendar.example.com", False),
    ("ftp://calendar.example.com", False),
)
def test_calendar_is_a_web_address_or_a_reference(written: str, good: bool) -> None:
    assert is_calendar(written) is good
