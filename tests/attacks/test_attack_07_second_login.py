"""Before the fix a second login was accepted through its group, and one person met a quorum of two."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_login import asked_of, bearer, browser, hidden, locked_rig, token_of, words
from gateway_rig import PEOPLE, SIGNER, GatewayRig
from oidc_provider import CLIENT, Provider
from provider_login import approve_in_browser, provider_rig, sign_in_at_provider
from temporalio.client import Client

from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.person import Person
from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.formats.replace import replace
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.auth.provider_people import ProviderPeople, with_provider_people
from signoff.people.login import id_from_login
from signoff.people.vouched_directory import vouch
from signoff.store.vouched_people import VouchedPeople, vouched_writer

BO = Person(id="bo", name="Bo", roles=("finance",), identities={"email": ("bo@example.com",)})
DECLARED = (*(each for each in PEOPLE if each.id != "bo"), BO)


@pytest.fixture
async def rig(client: Client, tmp_path: Path, provider: Provider) -> AsyncIterator[GatewayRig]:
    async with rig_for(client, tmp_path, provider, *DECLARED) as open_rig:
        yield open_rig


@contextlib.asynccontextmanager
async def rig_for(client: Client, folder: Path, provider: Provider, *people: Person) -> AsyncIterator[GatewayRig]:
    """The group `money` gives the role `finance`, which `both` asks."""
    async with provider_rig(client, folder, provider, people, {"money": ("finance",)}) as open_rig:
        yield open_rig


async def approve_by_token(rig: GatewayRig, approval: str, person: str) -> httpx2.Response:
    headers = bearer(await token_of(rig, person))
    shown = (await rig.deps.requests.load(approval)).request
    body = {"verdict": "approved", "revision": shown.revision, "question_hash": shown.question_hash}
    return await rig.http.post(f"/v1/approvals/{approval}/decide", json=body, headers=headers)


@pytest.mark.parametrize(
    "claims",
    [
        {"email": "bo@example.com"},
        {"email": "Bo@EXAMPLE.com", "email_verified": False},
        {"email": "bo+signoff@example.com", "email_verified": True},
        {"email": "\uff42\uff4f@example.com"},
        {"email": "bo\u200b@example.com."},
        {"email": "other@example.com", "preferred_username": "bo@example.com"},
        {"upn": "BO@example.com"},
        {"preferred_username": "Bo"},
        {"emails": ["other@example.com", "bo@example.com"]},
    ],
)
async def test_second_login_of_a_declared_person_is_refused(
    rig: GatewayRig, provider: Provider, caplog: pytest.LogCaptureFixture, claims: dict[str, Any]
) -> None:
    # For every spelling of a declared address the login is refused, and the quorum of two is not met. Without
    # `DeclaredNames` in `ClaimsDirectory._make_person` the login was accepted, and without the names in `_doubt` and
    # `joined_logins` as well the quorum was met.
    approval = await asked_of(rig, "both")
    assert (await approve_by_token(rig, approval, "bo")).json()["status"] == "counted"
    provider.claims = {"sub": "b-2", "name": "Robert", "groups": ["money"], **claims}
    with caplog.at_level(logging.WARNING):
        async with browser(rig) as page:
            back = await sign_in_at_provider(page)
            await approve_in_browser(page, approval)
    request = await rig.turns.signoff.request(approval)
    assert (request.state, [vote.subject for vote in request.votes]) == ("pending", ["bo"])
    assert await rig.runs(approval) == 0
    assert await VouchedPeople(rig.deps.store).all() == []
    assert back.status_code == 401
    # The refusal names no person; the log does, with the remedy.
    assert "This login belongs to no known person" in words(back.text)
    assert "bo" not in words(back.text).split()
    found = next(each.getMessage() for each in caplog.records if "b-2" in each.getMessage())
    assert "`bo`" in found
    assert f"`{provider.issuer}#b-2`" in found
    assert "`identities`" in found


async def test_startup_warns_of_approvers_without_a_declared_login(
    rig: GatewayRig, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    # With roles from groups, the warning names every approver of a tool without a declared login, and the remedy.
    # Without the warning in `with_provider_people` nothing was logged.
    login = f"{provider.issuer}#b-1"
    people = [replace(each, identities={"oidc": (login,)}) if each is BO else each for each in DECLARED]
    settings = rig.deps.settings
    for roles, named in (({}, None), (dict(settings.oidc_roles), "`approver`, `ana`")):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            locked_rig(rig, people=people, oidc_issuer=provider.issuer, oidc_client_id=CLIENT, oidc_roles=roles)
        entries = [each.getMessage() for each in caplog.records if "no login there" in each.getMessage()]
        assert len(entries) == (named is not None)
        assert all(
            f"have no login there: {named}; write `oidc: ['{provider.issuer}#SUBJECT']`" in each for each in entries
        )


async def test_login_from_before_the_declaration_cannot_approve(rig: GatewayRig, provider: Provider) -> None:
    # The signed row names the address, so the gateway finds the person declared since and refuses. Without the names
    # in `_doubt` the login was accepted, and its answer counted as a second one of Bo's.
    login = f"{provider.issuer}#b-2"
    robert = Person(id=id_from_login(login), name="Robert", roles=("finance",), identities={"oidc": (login,)})
    row = vouch(SIGNER, robert, names=("bo@example.com",), now=datetime.now(UTC), lifetime=timedelta(days=7))
    await rig.deps.store.run(vouched_writer(row))
    deps = with_provider_people(rig.deps)
    await ProviderPeople(deps).look()
    approval = await asked_of(rig, "both")
    await approve_by_token(rig, approval, "bo")
    shown = (await deps.requests.load(approval)).request.question_hash
    draft = DecisionDraft(approval_id=approval, verdict="approved", revision=1, question_hash=shown)
    assert (await DecisionService(deps).decide(draft, DecisionAuthor(robert, "inbox", "session"))).code == "not_allowed"
    assert (await rig.turns.signoff.request(approval)).state == "pending"


async def test_two_entries_of_one_person_fill_one_place_of_a_quorum(
    client: Client, tmp_path: Path, provider: Provider
) -> None:
    # An everyday and an administration account, each with the role: the second answer adds nothing. With `authority`
    # returning the entry's id instead of the person's, the second answer approved the request.
    second = Person(id="bo-admin", person_id="bo", name="Bo (admin)", roles=("finance", "admin"))
    async with rig_for(client, tmp_path, provider, *DECLARED, second) as rig:
        approval = await asked_of(rig, "both")
        await approve_by_token(rig, approval, "bo")
        await approve_by_token(rig, approval, "bo-admin")
        request = await rig.turns.signoff.request(approval)
        assert (request.state, [vote.person_id for vote in request.votes]) == ("pending", ["bo"])
        assert await rig.runs(approval) == 0
        await approve_by_token(rig, approval, "ana")
        assert (await rig.turns.signoff.request(approval)).state == "approved"


@pytest.mark.parametrize("declared_by", ["oidc", "email"])
async def test_requester_by_login_cannot_approve_after_being_declared(
    client: Client, tmp_path: Path, provider: Provider, declared_by: str
) -> None:
    # The earlier gateway knew only the login; the current directory knows its person. With `seat_of` comparing ids
    # instead of people Bo's answer was counted, and with the other gateway's signature it ran the call.
    login = f"{provider.issuer}#b-2"
    named = {"oidc": (login,), "email": ("bo@example.com",)}[declared_by]
    bo = replace(BO, identities={declared_by: named})
    async with rig_for(client, tmp_path, provider, *(each for each in DECLARED if each.id != "bo"), bo) as now:
        before = locked_rig(
            now,
            people=[each for each in PEOPLE if each.id != "bo"],
            **now.deps.settings.model_dump(
                include={"oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_roles"}
            ),
        )
        provider.claims = {"sub": "b-2", "name": "Bo", "groups": ["money"], "email": "bo@example.com"}
        async with browser(before) as page:
            assert (await sign_in_at_provider(page)).status_code == 303
            form = hidden((await page.get("/new")).text, "/sessions")
            sent = await page.post("/sessions", data={**form, "text": "both", "actor": "desk"})
        session = SessionKey(*sent.headers["location"].rpartition("/")[2].split("."))
        while not (view := await now.turns.sessions.session(session)).turns:
            await asyncio.sleep(0.05)
        turn = await now.turns.waiting(TurnKey(session.tenant, session.session, view.turns[0].turn))
        [approval] = [call.approval.id for call in turn.calls if call.approval is not None]
        assert (await now.turns.signoff.request(approval)).requester.user == id_from_login(login)
        answer = await approve_by_token(now, approval, "bo")
        assert answer.json()["code"] == "self_approval"
        # A gateway that has not read the new directory yet signs it. The worker has, and asks again.
        late = locked_rig(now, people=PEOPLE)
        shown = (await now.deps.requests.load(approval)).request.question_hash
        draft = DecisionDraft(approval_id=approval, verdict="approved", revision=1, question_hash=shown)
        assert (
            await DecisionService(late.deps).decide(draft, DecisionAuthor(bo, "inbox", "session"))
        ).status == "counted"
        assert (await approve_by_token(now, approval, "ana")).json()["status"] == "accepted"
        while (await now.deps.requests.load(approval)).request.revision == 1 and not await now.runs(approval):
            await asyncio.sleep(0.05)
        assert await now.runs(approval) == 0
