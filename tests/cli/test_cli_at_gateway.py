import getpass
from pathlib import Path

import pytest
from cli_kit import Cli, Ran, assert_one_sentence
from site_kit import Site, here, token

PEOPLE = """
- {id: ana, name: Ana Sousa, roles: [approvers, admin]}
- {id: rui, name: Rui}
- {id: olga, name: Olga, roles: [auditor]}
"""
UNPROVED = "an operator of this machine, unproved"


@pytest.fixture
def people(tmp_path: Path, clean_env: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "people.yaml"
    path.write_text(PEOPLE, encoding="utf-8")
    return path


async def test_token_permits_lists_reads_and_freezes(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, people: Path
) -> None:
    here(clean_env, site, "gateway")
    clean_env.setenv("SIGNOFF_PEOPLE", str(people))
    await cli("keys", "create")
    tokens = {name: await token(cli, name) for name in ("ana", "rui", "olga")}
    worker = site.folder / "worker"
    worker.mkdir()
    await cli("keys", "export", "--out", str(worker / "public-keys.json"))
    for name in (*site.env("gateway"), "SIGNOFF_PEOPLE"):
        if name.startswith(("SIGNOFF_", "TEMPORAL_")):
            clean_env.delenv(name, raising=False)
    clean_env.setenv("SIGNOFF_PUBLIC_URL", f"http://127.0.0.1:{site.port}")

    async def run_as(person: str, *words: str) -> Ran:
        clean_env.setenv("SIGNOFF_TOKEN", tokens[person])
        return await cli(*words)

    where = {"SIGNOFF_PEOPLE": str(people)}
    async with site.running("worker", **where), site.running("gateway", **where):
        asked = await run_as("rui", "chat", "pay 420", "--session", "s1", "--json")
        assert (asked.code, [turn["state"] for turn in asked.data["turns"]]) == (0, ["suspended"]), asked
        approval = asked.data["turns"][0]["calls"][0]["approval"]["id"]
        turn = approval.rpartition(".c1")[0]
        (row,) = (await run_as("rui", "sessions", "--json")).data
        assert (row["session"][:3], row["requester"], row["title"]) == ("s1-", "rui", "pay 420")
        assert "rui: pay 420" in (await run_as("rui", "sessions", "s1")).out
        listed = (await run_as("ana", "turns", "--limit", "500", "--json")).data
        assert [row["requester"] for row in listed if row["turn"] == asked.data["receipt"]["turn"]] == ["rui"]

        wish = ("--remember", "--where", "args.amount < 500", "--everywhere")
        assert (await run_as("ana", "approve", approval, *wish)).code == 0
        assert (await run_as("rui", "watch", turn)).code == 0
        (grant,) = (await run_as("ana", "grants", "list", "--json")).data
        assert "needs the role `admin`" in assert_one_sentence(await run_as("rui", "grants", "revoke", grant["id"]))
        assert (await run_as("ana", "grants", "revoke", grant["id"])).out.startswith(f"taken back: {grant['id']}")
        twice = await run_as("ana", "grants", "revoke", grant["id"])
        assert twice.out.startswith(f"was taken back already, by ana: {grant['id']}")

        found = await run_as("olga", "audit", "show", turn)
        assert (found.code, "unchanged: " in found.out, "over cli, session" in found.out) == (0, True, True), found
        # Rules may read the channel of a turn's start, so a client cannot set it.
        assert "asked clerk over api" in found.out
        refused = assert_one_sentence(await run_as("rui", "audit", "show", turn))
        assert refused == "the audit log needs the role `auditor` or `admin`"

        again = await run_as("rui", "chat", "pay 440", "--session", "s2", "--json")
        waits = again.data["turns"][0]["calls"][0]["approval"]["id"]
        assert "only the requester" in (await run_as("olga", "withdraw", waits)).out
        assert (await run_as("ana", "withdraw", waits, "--reason", "drill")).out.startswith("withdrawn: ")
        again = await run_as("rui", "chat", "pay 450", "--session", "s3", "--json")
        stopped = again.data["turns"][0]["calls"][0]["approval"]["id"].rpartition(".c1")[0]
        assert "can stop it" in assert_one_sentence(await run_as("olga", "cancel", stopped))
        assert (await run_as("rui", "cancel", stopped)).code == 0
        assert "the turn is cancelled" in (await run_as("rui", "watch", stopped)).out
        assert "is over already: cancelled" in (await run_as("rui", "cancel", stopped)).out

        for words in (("freeze", "main", "--reason", "drill"), ("unfreeze", "main")):
            for who in ("rui", "olga"):
                assert "needs the role `admin`" in assert_one_sentence(await run_as(who, *words))
            assert "cannot act as `ana`" in assert_one_sentence(await run_as("rui", *words, "--as", "ana"))
        waits = await run_as("rui", "chat", "pay 430", "--session", "s1", "--json")
        frozen = await run_as("ana", "freeze", "main", "--reason", "a stolen laptop")
        assert (frozen.code, frozen.out.splitlines()[1]) == (0, "withdrawn requests: 1"), frozen
        assert waits.code == 0
        assert "is frozen: a stolen laptop" in assert_one_sentence(await run_as("rui", "chat", "pay 5"))
        assert "frozen by ana" in (await run_as("ana", "unfreeze", "main")).out
        assert "is not frozen" in assert_one_sentence(await run_as("ana", "unfreeze", "main"))
        acts = (await run_as("ana", "audit", "show", "admin/main", "--json")).data["timeline"]
        done = [(line["who"], line["what"].split(" ")[0]) for line in acts if line["who"] == "ana"]
        assert done == [("ana", "remember"), ("ana", "revoke"), ("ana", "freeze"), ("ana", "unfreeze")]


async def test_store_freeze_works_without_a_gateway(
    cli: Cli, clean_env: pytest.MonkeyPatch, site: Site, people: Path
) -> None:
    here(clean_env, site, "gateway")
    clean_env.setenv("SIGNOFF_PEOPLE", str(people))
    for words in (("freeze", "main", "--reason", "drill"), ("unfreeze", "main")):
        text = assert_one_sentence(await cli(*words))
        assert "no gateway answers" in text
        assert "`signoff store freeze`" in text
    assert "has no people" in assert_one_sentence(await cli("store", "freeze", "mian", "--reason", "drill"))
    assert (await cli("store", "freeze", "main", "--reason", " ")).code == 2
    frozen = await cli("store", "freeze", "main", "--reason", "drill", "--json")
    assert (frozen.code, frozen.data["by"], frozen.data["reason"]) == (0, UNPROVED, "drill")
    assert UNPROVED in (await cli("store", "unfreeze", "main")).out
    assert "is not frozen" in assert_one_sentence(await cli("store", "unfreeze", "main"))
    lines = (await cli("audit", "show", "admin/main", "--json")).data["timeline"]
    assert [(line["who"], line["what"].split(" ")[0]) for line in lines] == [("", "freeze"), ("", "unfreeze")]
    assert all(f"account {getpass.getuser()}" in line["what"] and UNPROVED in line["what"] for line in lines)


async def test_broken_manifest_does_not_prevent_a_freeze(
    cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    manifest = tmp_path / "broken.yaml"
    manifest.write_text("version: [1", encoding="utf-8")
    clean_env.setenv("SIGNOFF_MANIFEST", str(manifest))
    frozen = await cli("store", "freeze", "main", "--reason", "drill")
    assert (frozen.code, "frozen: main by an operator" in frozen.out) == (0, True), frozen
    assert "the people of this tenant are unknown: " in frozen.out
    assert (await cli("store", "unfreeze", "main")).code == 0
