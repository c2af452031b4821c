from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, assert_one_sentence, waiting_request
from served_stack import gateway_alone

from signoff.cli.local.installation import find_installation
from signoff.contracts.call import REQUIRES_APPROVAL
from signoff.contracts.decision import GrantRequest
from signoff.contracts.grant import Grant, GrantScope
from signoff.contracts.receipt import Receipt
from signoff.store.grants import write_grant
from signoff.store.store import working_store
from signoff.temporal.embedded_server import ServerHandle


async def test_several_requests_are_approved_by_one_command(served_cli: Cli) -> None:
    cards = [await waiting_request(served_cli, f"pay {amount}") for amount in (100, 200)]
    ran = await served_cli("approve", cards[0]["code"], "ZZZ-ZZZ", cards[1]["id"], "--json")
    receipts = [Receipt.model_validate(each) for each in ran.data]
    assert (ran.code, [(each.status, each.code) for each in receipts]) == (
        1,
        [("accepted", ""), ("refused", "unknown"), ("accepted", "")],
    )
    assert [each.approval_id for each in (receipts[0], receipts[2])] == [card["id"] for card in cards]


async def test_several_requests_are_denied_with_one_reason(served_cli: Cli) -> None:
    cards = [await waiting_request(served_cli, f"pay {amount}") for amount in (110, 120)]
    ran = await served_cli("deny", *(card["code"] for card in cards), "--reason", "not today")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"{cards[0]['code']}: denied: Pay 110 EUR to Ana",
        f"{cards[1]['code']}: denied: Pay 120 EUR to Ana",
    ]


async def test_grant_is_created_listed_used_and_revoked(served_cli: Cli) -> None:
    card = await waiting_request(served_cli, "pay 300")
    wish = ("--remember", "--where", "args.amount <= 300", "--for", "2h", "--uses", "5", "--everywhere")
    approved = await served_cli("approve", card["code"], *wish)
    assert (approved.code, approved.err) == (0, "")
    await served_cli("watch", card["turn"])
    (listed,) = (await served_cli("grants", "list", "--json")).data
    grant = Grant.model_validate(listed)
    assert (grant.people, grant.uses_left, grant.like.where) == (("approver",), 5, "args.amount <= 300")
    ran = await served_cli("ask", "pay 299")
    assert f"by rule grant:{grant.id}" in ran.out
    table = await served_cli("grants", "list")
    assert "approved: pay where args.amount <= 300" in table.out
    assert "4 of 5" in table.out
    refused = await served_cli("grants", "revoke", grant.id, "--as", "rui")
    assert "needs the role `admin`" in assert_one_sentence(refused)
    revoked = await served_cli("grants", "revoke", grant.id)
    assert (revoked.code, revoked.out.startswith(f"taken back: {grant.id}")) == (0, True)
    twice = await served_cli("grants", "revoke", grant.id)
    assert (twice.code, twice.out.startswith(f"was taken back already, by approver: {grant.id}")) == (0, True)
    assert (await served_cli("grants", "list")).out.strip() == "no remembered answers"
    assert "taken back by approver" in (await served_cli("grants", "list", "--all")).out
    again = await waiting_request(served_cli, "pay 299")
    assert (await served_cli("deny", again["code"], "--reason", "no")).code == 0


async def test_invalid_grant_wish_is_refused_with_a_reason(served_cli: Cli) -> None:
    card = await waiting_request(served_cli, "pay 400")
    wrong = await served_cli("approve", card["code"], "--remember", "--where", "args.amount < 5")
    assert (wrong.code, "not true of the arguments" in wrong.out) == (1, True)
    without = await served_cli("approve", card["code"], "--where", "args.amount < 5")
    assert (without.code, "--remember" in without.err) == (2, True)
    bad = await served_cli("approve", card["code"], "--remember", "--for", "soon")
    assert (bad.code, "not a duration" in bad.err) == (2, True)
    assert (await served_cli("approve", card["code"])).code == 0


async def test_freeze_withdraws_open_requests_and_unfreezing_permits_new_ones(served_cli: Cli) -> None:
    card = await waiting_request(served_cli, "pay 500")
    stranger = await served_cli("freeze", "main", "--reason", "drill", "--as", "rui")
    assert "needs the role `admin`" in assert_one_sentence(stranger)
    frozen = await served_cli("freeze", "main", "--reason", "a stolen laptop")
    assert (frozen.code, frozen.err) == (0, "")
    assert "frozen: main by approver since " in frozen.out
    assert "a stolen laptop; no calls start" in frozen.out
    assert "withdrawn requests: 1" in frozen.out
    shown = await served_cli("show", card["id"])
    assert "cancelled" in shown.out
    for text in ("pay 5", "pay 500", "look"):
        page_text = assert_one_sentence(await served_cli("ask", text, "--no-wait"))
        assert page_text == "the tenant `main` is frozen: a stolen laptop; nothing new starts until it is unfrozen"
    assert (await served_cli("unfreeze", "main")).code == 0
    assert "is not frozen" in assert_one_sentence(await served_cli("unfreeze", "main"))
    assert "pay: ran by rule" in (await served_cli("ask", "pay 5")).out


async def test_freeze_needs_a_reason_and_a_person_of_the_tenant(served_cli: Cli) -> None:
    assert (await served_cli("freeze", "main", "--reason", " ")).code == 2
    assert "there is no person" in assert_one_sentence(await served_cli("freeze", "elsewhere", "--reason", "drill"))
    assert "there is no grant" in assert_one_sentence(await served_cli("grants", "revoke", "g0"))


async def test_grants_of_another_tenant_are_separate(
    cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path, cli_server: ServerHandle, task_queue: str
) -> None:
    people = tmp_path / "people.yaml"
    people.write_text(
        "- {id: zoe, tenant: acme, roles: [admin]}\n- {id: kim, tenant: acme}\n- {id: ana, roles: [admin]}\n",
        encoding="utf-8",
    )
    clean_env.setenv("SIGNOFF_PEOPLE", str(people))
    like = GrantScope(
        tenant="acme",
        tool="pay",
        definition="d" * 64,
        where="args.amount <= 5",
        rule=REQUIRES_APPROVAL,
        policy_hash="p",
    )
    whose: dict[str, Any] = {"people": ("zoe",), "approval_id": "acme.s.t.c1.1", "requester": "rui"}
    async with gateway_alone(clean_env, cli_server, task_queue):
        async with working_store(find_installation().settings) as store:
            await store.run(lambda connection: write_grant(connection, "g1", "approved", like, GrantRequest(), **whose))
        assert (await cli("grants", "list")).out.strip() == "no remembered answers"
        there = ("--tenant", "acme")
        assert [each["id"] for each in (await cli("grants", "list", *there, "--json")).data] == ["g1"]
        assert "there is no grant `g1`" in assert_one_sentence(await cli("grants", "revoke", "g1", "--as", "ana"))
        revoke = ("grants", "revoke", "g1", *there, "--as")
        assert "there is no person `ana`" in assert_one_sentence(await cli(*revoke, "ana"))
        assert "needs the role `admin`" in assert_one_sentence(await cli(*revoke, "kim"))
        assert (await cli(*revoke, "zoe")).out.startswith("taken back: g1")
        assert (await cli("grants", "list", *there)).out.strip() == "no remembered answers"
