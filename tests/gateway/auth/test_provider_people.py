import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gateway_login import STRANGER, asked_of, bearer, browser, hidden, locked_rig, token_of, words
from gateway_rig import PEOPLE, SIGNER, GatewayRig, turn_of
from oidc_provider import Provider
from provider_login import approve_in_browser, login_settings, provider_rig, sign_in_at_provider
from temporalio.client import Client

from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import SessionKey
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.formats.replace import replace
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.auth.oidc import provider_of
from signoff.keys.secrets import SecretProvider
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.login import id_from_login
from signoff.people.vouched_directory import vouch
from signoff.settings import Settings
from signoff.store.vouched_people import VouchedPeople, vouched_writer

NOW = datetime.now(UTC)
FOREIGN = Signer(PrivateKeys(keys=(new_key(NOW - timedelta(days=30)),)))
GROUPS = {"desk": ("approvers",), "money": ("finance",), "staff": ()}


@pytest.fixture
async def rig(client: Client, tmp_path: Any, provider: Provider) -> AsyncIterator[GatewayRig]:
    async with provider_rig(client, tmp_path, provider, PEOPLE, GROUPS) as open_rig:
        yield open_rig


def cy(provider: Provider, *roles: str, subject: str = "cy") -> Person:
    login = f"{provider.issuer}#{subject}"
    return Person(id=id_from_login(login), name="Cy", roles=roles, identities={"oidc": (login,)})


async def vote(rig: GatewayRig, approval: str, person: Person, *, revision: int = 1) -> Receipt:
    shown = (await rig.request(approval)).question_hash
    draft = DecisionDraft(approval_id=approval, verdict="approved", revision=revision, question_hash=shown)
    return await DecisionService(rig.deps).decide(draft, DecisionAuthor(person, "inbox", "session"))


async def test_person_known_by_claims_alone_approves_and_the_tool_runs(rig: GatewayRig, provider: Provider) -> None:
    approval = await asked_of(rig)
    provider.claims = {"sub": "cy", "name": "Cy", "groups": ["desk"]}
    async with browser(rig) as page:
        assert (await sign_in_at_provider(page)).status_code == 303
        assert "Signed in as Cy" in words((await page.get("/tools")).text)
        assert (await approve_in_browser(page, approval)).status_code == 303
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
    assert result.calls[0].code == "ok"
    assert await rig.runs(approval) == 1
    request = await rig.turns.signoff.request(approval)
    assert (request.decided_by, request.decided_name) == (cy(provider).id, "Cy")
    signed_in = [each.facts for each in await rig.acts() if each.kind == "admin"]
    assert [each["roles"] for each in signed_in if each.get("act") == "sign-in"] == [["approvers"]]


async def test_person_known_by_claims_alone_starts_a_turn(rig: GatewayRig, provider: Provider) -> None:
    provider.claims = {"sub": "cy", "name": "Cy", "groups": ["staff"]}
    async with browser(rig) as page:
        await sign_in_at_provider(page)
        form = hidden((await page.get("/new")).text, "/sessions")
        sent = await page.post("/sessions", data={**form, "text": "small", "actor": "desk"})
        assert sent.status_code == 303, words(sent.text)
        session = SessionKey(*sent.headers["location"].rpartition("/")[2].split("."))
        while not (view := await rig.turns.sessions.session(session)).turns or view.turns[0].state != "complete":
            await asyncio.sleep(0.05)
    assert (view.owner, view.turns[0].requester) == (cy(provider).id, cy(provider).id)
    assert [row[0] for row in rig.ledger.rows] == ["small"]


async def test_removed_role_takes_effect_at_once(rig: GatewayRig, provider: Provider) -> None:
    approval = await asked_of(rig, "both")
    provider.claims = {"sub": "cy", "name": "Cy", "groups": ["money"]}
    async with browser(rig) as page:
        await sign_in_at_provider(page)
        await approve_in_browser(page, approval)
        assert [each.subject for each in (await rig.turns.signoff.request(approval)).votes] == [cy(provider).id]
        provider.claims = {"sub": "cy", "name": "Cy", "groups": ["staff"]}
        await sign_in_at_provider(page)
    headers = bearer(await token_of(rig, "ana"))
    body = {"verdict": "approved", "question_hash": (await rig.request(approval)).question_hash}
    counted = await rig.http.post(f"/v1/approvals/{approval}/decide", json=body, headers=headers)
    assert counted.status_code == 200, counted.text
    view = await rig.turns.until(
        turn_of(approval),
        lambda view: any(call.approval is not None and call.approval.revision == 2 for call in view.calls),
    )
    assert [call.state for call in view.calls] == ["waiting"]
    assert await rig.runs(approval) == 0
    assert (await vote(rig, approval, cy(provider, "finance"), revision=2)).code == "not_allowed"


async def test_expired_forged_or_ended_sign_in_is_not_accepted(rig: GatewayRig, provider: Provider) -> None:
    approval, person, store = await asked_of(rig), cy(provider, "approvers"), rig.deps.store
    week = timedelta(days=7)
    rows = {
        "never signed in": None,
        "over": vouch(SIGNER, person, names=(), now=NOW - week, lifetime=week),
        "another key": vouch(FOREIGN, person, names=(), now=NOW, lifetime=week),
        "another key under our name": replace(
            vouch(FOREIGN, person, names=(), now=NOW, lifetime=week), key_id=SIGNER.key_id
        ),
        "more roles": replace(vouch(SIGNER, cy(provider), names=(), now=NOW, lifetime=week), person=person),
    }
    for name, row in rows.items():
        if row is not None:
            await store.run(vouched_writer(row))
        assert (await vote(rig, approval, person)).code == "not_allowed", name
    await store.run(vouched_writer(vouch(SIGNER, person, names=(), now=NOW, lifetime=week)))
    await VouchedPeople(store).end("main", person.id, by="ada", now=NOW)
    assert (await vote(rig, approval, person)).code == "not_allowed"
    assert (await rig.turns.signoff.request(approval)).votes == ()


async def test_sign_in_and_sign_out_are_known_to_every_gateway(rig: GatewayRig, provider: Provider) -> None:
    provider.claims = {"sub": "cy", "name": "Cy", "groups": ["desk"]}
    async with browser(rig) as page:
        await sign_in_at_provider(page)
        other = locked_rig(rig, people=PEOPLE, **login_settings(provider, GROUPS))
        async with browser(other) as there:
            there.cookies.update(page.cookies)
            assert "Signed in as Cy" in words((await there.get("/tools")).text)
            await VouchedPeople(rig.deps.store).end("main", cy(provider).id, by="ada", now=NOW)
            assert (await there.get("/tools")).status_code == 303
        assert (await page.get("/tools")).status_code == 303


async def test_person_without_groups_loses_access(rig: GatewayRig, provider: Provider) -> None:
    approval = await asked_of(rig)
    provider.claims = {"sub": "cy", "name": "Cy", "groups": ["desk"]}
    async with browser(rig) as page:
        await sign_in_at_provider(page)
        provider.claims = {"sub": "cy", "name": "Cy", "groups": []}
        assert (await sign_in_at_provider(page)).status_code == 401
        assert (await page.get("/tools")).status_code == 303
    assert (await vote(rig, approval, cy(provider, "approvers"))).code == "not_allowed"


def test_sign_in_lasts_seven_days() -> None:
    assert Settings().oidc_days == 7


async def test_tenant_claim_selects_the_persons_tenant(rig: GatewayRig, provider: Provider) -> None:
    settings = login_settings(provider, GROUPS) | {"oidc_tenant_claim": "org"}
    there = locked_rig(rig, people=(*PEOPLE, STRANGER), **settings)
    approval = await asked_of(rig)
    provider.claims = {"sub": "cy", "groups": ["desk"], "org": "acme"}
    async with browser(there) as page:
        assert (await sign_in_at_provider(page)).status_code == 303
        assert (await page.get(f"/approvals/{approval}")).status_code == 404
        [row] = await VouchedPeople(rig.deps.store).all()
        assert row.person.tenant == "acme"
        for wrong in (None, ["acme"], "nowhere"):
            provider.claims = {"sub": "cy", "groups": ["desk"], "org": wrong}
            refused = await sign_in_at_provider(page)
            assert (refused.status_code, "names no known tenant" in words(refused.text)) == (401, True)
        assert (await page.get("/")).status_code == 303
    assert await VouchedPeople(rig.deps.store).all() == []
    provider.claims = {"sub": "cy", "groups": ["desk"], "org": "main"}
    async with browser(there) as page:
        assert (await sign_in_at_provider(page)).status_code == 303
        assert (await page.get(f"/approvals/{approval}")).status_code == 200


def test_tenant_map_without_a_tenant_claim_is_refused_at_start(provider: Provider) -> None:
    settings = Settings(**login_settings(provider, GROUPS), oidc_tenants={"9f": "acme"})
    with pytest.raises(ConfigError, match="set SIGNOFF_OIDC_TENANT_CLAIM"):
        provider_of(settings, lambda: NOW, SecretProvider())
