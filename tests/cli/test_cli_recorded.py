import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli
from served_stack import MANIFEST


async def acts(cli: Cli) -> list[dict[str, Any]]:
    ran = await cli("audit", "show", "admin/main", "--json")
    assert ran.code == 0, ran.err
    return [json.loads(record["data"]) for record in ran.data["records"]]


@pytest.fixture
def place(cli: Cli, clean_env: pytest.MonkeyPatch) -> Cli:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    return cli


async def test_tokens_are_recorded_by_id(place: Cli) -> None:
    made = (await place("token", "create", "ana", "--scope", "read", "--json")).data
    for _ in range(2):
        assert (await place("token", "revoke", made["id"])).code == 0
    found = await acts(place)
    assert [facts["act"] for facts in found] == ["token create", "token revoke"]
    for facts in found:
        assert (facts["token"], facts["person"], facts["scopes"]) == (made["id"], "ana", ["read"])
        assert facts["account"]
    assert made["token"] not in str(found)


async def test_keys_are_recorded_by_id(place: Cli) -> None:
    made = [(await place("keys", "create", "--json")).data for _ in range(2)]
    ids = [each["id"] for each in made]
    for _ in range(2):
        assert (await place("keys", "retire", ids[0])).code == 0
    found = await acts(place)
    assert [(facts["act"], facts["key_id"]) for facts in found] == [
        ("keys create", ids[0]),
        ("keys create", made[0]["encryption_key"]),
        ("keys create", ids[1]),
        ("keys retire", ids[0]),
    ]
    private = await asyncio.to_thread(Path(".signoff/signing-keys.json").read_text)
    assert not [key for key in json.loads(private)["keys"] if key["private"] in str(found)]


async def test_key_is_created_although_the_store_is_down(place: Cli, clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_STORE_URL", "sqlite:///nowhere/signoff.db")
    ran = await place("keys", "create")
    assert (ran.code, "not recorded: the folder `nowhere`" in ran.out) == (0, True), ran.out
