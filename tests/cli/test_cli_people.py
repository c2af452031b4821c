from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_kit import Cli, assert_one_sentence, run_in_thread
from served_stack import MANIFEST, PROJECT

from signoff.audit.log import AuditLog
from signoff.cli.local.installation import account
from signoff.contracts.person import Person
from signoff.keys.key_files import create_key, read_private
from signoff.keys.signatures import Signer
from signoff.people.login import id_from_login
from signoff.people.vouched_directory import vouch
from signoff.registry.installation import people_of
from signoff.registry.manifest.loader import load_manifest
from signoff.settings import load_settings
from signoff.store.store import open_store
from signoff.store.vouched_people import vouched_writer

PEOPLE = """\
- id: ana
  name: Ana Sousa
  roles: [approvers, finance]
  identities: {email: [ana@example.com], slack: ["T1:U1"]}
  delegations:
    - {to: rui, until: "2100-01-31T18:00:00Z"}
- {id: rui, name: "Rui \\u202e"}
"""


@pytest.fixture
def people(cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    path = tmp_path / "people.yaml"
    path.write_text(PEOPLE)
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def cli_of(*arguments: str) -> tuple[int, list[str]]:
    ran = await run_in_thread(*arguments, "--json")
    return ran.code, ran.data["findings"]


def manifest_with(folder: Path, old: str, new: str) -> Path:
    text = MANIFEST.read_text()
    assert old in text
    path = folder / "signoff.yaml"
    path.write_text(f"path: ['{PROJECT}']\n{text.replace(old, new)}")
    return path


async def test_list_shows_every_person(people: Path, cli: Cli, clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_PEOPLE", str(people))
    shown = await cli("people", "list")
    assert shown.code == 0
    for words in ("guest", "Ana Sousa", "approvers, finance", "email ana@example.com", "slack T1:U1", "rui until 2100"):
        assert words in shown.out
    assert "\u202e" not in shown.out
    rows = {row["id"]: row for row in (await cli("people", "list", "--json")).data}
    assert list(rows) == ["guest", "approver", "ana", "rui"]
    assert rows["ana"]["delegations"] == [{"to": "rui", "until": "2100-01-31T18:00:00Z"}]
    assert rows["ana"]["identities"] == {"email": ["ana@example.com"], "slack": ["T1:U1"]}


async def test_list_without_a_file_shows_the_manifests_people(people: Path, cli: Cli) -> None:
    assert [row["id"] for row in (await cli("people", "list", "--json")).data] == ["guest", "approver", "ana", "rui"]
    assert "finance" not in (await cli("people", "list")).out


async def test_list_names_the_source_file_of_each_person(people: Path, cli: Cli, tmp_path: Path) -> None:
    inline = "\npeople:\n  - id: ana\n    name: Ana Sousa\n    roles: [approvers]\n  - id: rui\n    name: Rui\n"
    manifest = manifest_with(tmp_path, inline, "\npeople: people.yaml\n")
    rows = {row["id"]: row["source"] for row in (await cli("people", "list", str(manifest), "--json")).data}
    assert (rows["guest"], rows["ana"]) == ("built in", str(people))
    checked = await cli("people", "check", "--app", str(manifest), "--json")
    assert checked.data["source"] == str(people)


async def test_person_known_by_login_only_is_listed_and_signed_out(
    people: Path, cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "keys"
    clean_env.setenv("SIGNOFF_STATE_DIR", str(tmp_path / "state"))
    clean_env.setenv("SIGNOFF_PUBLIC_KEYS", str(folder / "public.json"))
    clean_env.setenv("SIGNOFF_STORE_URL", f"sqlite:///{tmp_path}/people.db")
    clean_env.setenv("SIGNOFF_OIDC_ISSUER", "https://login.example.com")
    now = datetime.now(UTC)
    create_key(folder / "private.json", folder / "public.json", now - timedelta(days=9))
    signer = Signer(read_private(folder / "private.json"))
    logins = [f"https://login.example.com#{each}" for each in (1, 2)]
    cy, old = (
        Person(id=id_from_login(each), name="Cy", roles=("board",), identities={"oidc": (each,)}) for each in logins
    )
    async with open_store(f"sqlite:///{tmp_path}/people.db") as store:
        for person, at in ((old, now - timedelta(days=8)), (cy, now - timedelta(days=7, hours=-1))):
            row = vouch(signer, person, names=(), now=at, lifetime=timedelta(days=7))
            await store.run(vouched_writer(row))
    rows = {row["id"]: row for row in (await cli("people", "list", "--json")).data}
    assert (rows["guest"]["source"], rows["ana"]["source"]) == ("built in", str(MANIFEST))
    assert [(rows[each.id]["source"], rows[each.id]["doubt"]) for each in (cy, old)] == [
        ("login", ""),
        ("login", "over"),
    ]
    assert "login, until" in " ".join((await cli("people", "list")).out.split())
    assert (await cli("people", "signout", cy.id)).code == 0
    assert cy.id not in {row["id"] for row in (await cli("people", "list", "--json")).data}
    assert "nobody signed in as" in assert_one_sentence(await cli("people", "signout", cy.id))
    assert "is declared" in assert_one_sentence(await cli("people", "signout", "ana"))
    async with open_store(f"sqlite:///{tmp_path}/people.db") as store:
        [entries] = [each.facts for each in await AuditLog(store).stream("admin/main") if each.kind == "admin"]
    assert (entries["act"], entries["person"], entries["account"]) == ("people signout", cy.id, account())


def test_built_in_people_exist_in_development_only(people: Path) -> None:
    catalog = load_manifest(MANIFEST)
    for file in (None, people):
        for profile, built_in in (("production", []), ("development", ["guest", "approver"])):
            settings = load_settings(profile=profile, people=file)
            assert [person.id for person in people_of(settings, catalog).all()] == [*built_in, "ana", "rui"]


async def test_check_reports_a_valid_file(people: Path, cli: Cli) -> None:
    ran = await cli("people", "check", str(people))
    assert (ran.code, ran.out.strip()) == (0, f"{people}: 4 persons, nothing to report")
    ran = await cli("people", "check", "--json")
    assert (ran.code, ran.data) == (0, {"source": str(MANIFEST), "people": 4, "findings": []})


@pytest.mark.parametrize(
    ("approvers", "person", "finding"),
    [
        ("role:finence", "", "nobody has that role in tenant `main`; did you mean `finance`?"),
        ("role:legal", "", "nobody has that role in tenant `main`"),
        ("role:audit", "- {id: eva, roles: [audit], active: false}", "only people who are not active have that role"),
        ("user:ruy_", "- {id: ruy}", "there is no such person in tenant `main`; did you mean `ruy`?"),
        ("user:eva", "- {id: eva, active: false}", "that person is not active in tenant `main`"),
    ],
)
async def test_check_finds_approvers_without_a_person(people: Path, approvers: str, person: str, finding: str) -> None:
    write(people, f"{PEOPLE}{person}\n")
    manifest = manifest_with(people.parent, "      timeout: 12s", f"      approvers: ['{approvers}', 'role:approvers']")
    code, found = await cli_of("people", "check", str(people), "--app", str(manifest))
    assert code == 1
    assert len(found) == 1
    assert found[0].startswith(f"`{approvers}` is asked by tool `hurry`, but ")
    assert found[0].endswith(finding) or f"{finding} in tenant `main`" in found[0]
    ran = await run_in_thread("people", "check", str(people), "--app", str(manifest))
    assert (ran.code, ran.out.strip()) == (1, f"{people}: {found[0]}")


async def test_check_covers_rules_and_every_tenant(people: Path) -> None:
    write(people, f"{PEOPLE}- {{id: ana, tenant: other, roles: [finance]}}\n")
    rule = "policies: [{name: careful, rule: 'true', effect: require_approval}]\nactors:"
    manifest = manifest_with(people.parent, "actors:", rule)
    _, found = await cli_of("people", "check", str(people), "--app", str(manifest))
    assert found == [
        "`role:approvers` is asked by tool `hurry`, tool `look`, tool `pay`, rule `careful`, but nobody has that role "
        "in tenant `other`"
    ]


async def test_check_finds_useless_delegations(people: Path) -> None:
    write(
        people,
        PEOPLE.replace("2100", "2020")
        + "- {id: bo, delegations: [{to: eva, until: '2100-01-01T00:00Z'}]}\n- {id: eva, active: false, "
        "delegations: [{to: bo, until: '2020-01-01T00:00Z'}]}\n",
    )
    assert await cli_of("people", "check", str(people)) == (
        1,
        [
            "the delegation of `ana` to `rui` ended at 2020-01-31 18:00 UTC; remove it",
            "`bo` delegates to `eva`, an inactive person",
        ],
    )


async def test_check_names_the_line_of_a_broken_file(people: Path, cli: Cli) -> None:
    write(people, "- id: ana\n  rolls: [finance]\n")
    message = assert_one_sentence(await cli("people", "check", str(people)))
    assert message.startswith(f"{people}:2: unknown key `rolls` of a person")
    assert "did you mean `roles`?" in message
    nowhere = people.with_name("nowhere.yaml")
    assert assert_one_sentence(await cli("people", "check", str(nowhere))) == f"{nowhere}: there is no such file"
    for wrong in (("people", "check", "--nonsense"), ("people", "chekc"), ("people", "check", "a", "b")):
        assert (await cli(*wrong)).code == 2


async def test_broken_active_file_can_be_checked_and_replaced(
    people: Path, cli: Cli, clean_env: pytest.MonkeyPatch
) -> None:
    broken = people.with_name("broken.yaml")
    write(broken, "- ana\n")
    clean_env.setenv("SIGNOFF_PEOPLE", str(broken))
    assert "broken.yaml:1:" in assert_one_sentence(await cli("people", "check"))
    assert (await cli("people", "check", str(people))).code == 0
