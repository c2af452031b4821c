import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from gateway_login import STRANGER, asked_of, bearer, locked_rig, token_of
from gateway_rig import FLIGHT, PEOPLE, SIGNER, GatewayRig, fresh, gateway_rig, http_of, turn_of
from temporalio.client import Client

from signoff.contracts.call import CallContext
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import KIB
from signoff.contracts.requests import DecisionAuthor, DecisionDraft, TurnBody
from signoff.engine.turn_client import TurnClient
from signoff.formats.replace import replace
from signoff.gateway.app import build_app
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.turn_starter import start
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.directory import FixedDirectory
from signoff.store.store import open_store

NOW = datetime.now(UTC)
FOREIGN = Signer(PrivateKeys(keys=(new_key(NOW),)))


@pytest.fixture(scope="module")
async def rig(plain_client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayRig]:
    """The worker has public keys only. Nothing is encrypted, because tests read the histories."""
    folder = tmp_path_factory.mktemp("production")
    people = FixedDirectory((*PEOPLE, STRANGER))
    # As long as `signoff`, the name of a real installation: it occurs in every third event.
    queue = f"p{uuid.uuid4().hex[:6]}"
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        gateway_rig(plain_client, store, queue, profile="production", people=people) as open_rig,
    ):
        yield locked_rig(open_rig)


async def answered(rig: GatewayRig, approval: str, person: str = "ana", **body: Any) -> httpx2.Response:
    headers = bearer(await token_of(rig, person))
    shown = (await rig.http.get(f"/v1/approvals/{approval}", headers=headers)).json()
    given = {"verdict": "approved", "question_hash": shown["question_hash"], **body}
    return await rig.http.post(f"/v1/approvals/{approval}/decide", json=given, headers=headers)


async def ended(rig: GatewayRig, approval: str) -> str:
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
    return result.calls[0].code


async def test_turn_with_signed_requester_and_decision_runs(rig: GatewayRig) -> None:
    approval = await asked_of(rig)
    receipt = (await answered(rig, approval)).json()
    assert (receipt["status"], receipt["decided_by"]) == ("accepted", "ana")
    assert await ended(rig, approval) == "ok"
    assert await rig.runs(approval) == 1
    view = await rig.turns.signoff.view(turn_of(approval))
    key = turn_of(approval)
    ctx = CallContext(
        actor=view.actor, tenant=key.tenant, session=key.session, turn=key.turn, channel="api", user=view.requester
    )
    assert SIGNER.verifier().check_principal(ctx)
    [call] = view.calls
    assert call.approval is not None
    [vote] = (await rig.request(approval)).votes
    assert not vote.unsigned
    assert SIGNER.verifier().check_decision(vote.decision)
    assert (vote.decision.question_hash, vote.decision.revision) == (call.approval.question_hash, 1)


async def test_history_of_a_signed_turn_takes_at_most_10_kib(plain_client: Client, rig: GatewayRig) -> None:
    approval = await asked_of(rig)
    assert (await answered(rig, approval)).json()["status"] == "accepted"
    assert await ended(rig, approval) == "ok"
    handle = plain_client.get_workflow_handle(turn_of(approval).workflow_id)
    info = (await handle.describe()).raw_description.workflow_execution_info
    assert info.history_length == 33
    # A machine's name occurs in two of three events. Only the part longer than `12345@host` is not counted.
    events = [event.SerializeToString() for event in (await handle.fetch_history()).events]
    named = sum(event.count(plain_client.identity.encode()) for event in events)
    longer = max(len(plain_client.identity) - len("12345@host"), 0)
    assert info.history_size_bytes - named * longer <= 10 * KIB


async def test_two_people_make_a_quorum(rig: GatewayRig) -> None:
    approval = await asked_of(rig, "both")
    assert (await answered(rig, approval, "ana")).json()["status"] == "counted"
    again = await answered(rig, approval, "ana")
    assert (again.json()["status"], again.json()["code"]) == ("counted", "duplicate")
    assert (await answered(rig, approval, "bo")).json()["status"] == "accepted"
    assert await ended(rig, approval) == "ok"


@pytest.mark.parametrize("signer", [None, FOREIGN])
async def test_turn_without_a_valid_requester_signature_runs_no_tool(rig: GatewayRig, signer: Signer | None) -> None:
    turn = fresh()
    asker = PEOPLE[0]
    assert asker.id == "guest"
    deps = dataclasses.replace(rig.deps, signer=signer)
    key = await start(deps, TurnBody(text="pay small", actor="desk", turn=turn), "api")
    result = await asyncio.wait_for(rig.turns.signoff.result(key), 60)
    assert [call.code for call in result.calls] == ["refused", "refused"]


async def test_same_start_is_the_same_turn_across_a_key_rotation(rig: GatewayRig) -> None:
    body = TurnBody(text="hello", actor="desk", turn=fresh())
    rotated = dataclasses.replace(rig.deps, signer=FOREIGN, clock=lambda: NOW + timedelta(minutes=1))
    assert await start(rig.deps, body, "api") == await start(rotated, body, "api")


async def test_answer_without_the_questions_hash_is_not_signed(rig: GatewayRig) -> None:
    approval = await asked_of(rig)
    request = await rig.request(approval)
    away = dataclasses.replace(rig.deps, client=Blind(rig.turns.client))
    author = DecisionAuthor(PEOPLE[2], "api", "session")
    for named, code in (("", "malformed"), (request.card.mark, "stale"), ("0" * 64, "stale")):
        draft = DecisionDraft(approval_id=approval, verdict="approved", revision=1, question_hash=named)
        receipt = await DecisionService(away).decide(draft, author)
        assert (receipt.status, receipt.code) == ("refused", code)
    assert (await rig.request(approval)).votes == ()
    shown = replace(draft, question_hash=request.question_hash)
    bound = await DecisionService(away).decide(shown, author)
    assert bound.status == "accepted"
    assert await ended(rig, approval) == "ok"


class Blind(TurnClient):
    """No worker answers its queries."""

    async def view(self, key: TurnKey) -> Any:
        raise ServerUnavailable("no worker answered in time")


async def test_unsafe_json_number_is_not_signed(rig: GatewayRig) -> None:
    approval = await asked_of(rig, "book")
    shown = (await rig.request(approval)).question_hash
    edited = {**FLIGHT, "cost": 2**60}
    draft = DecisionDraft(approval_id=approval, verdict="approved", revision=1, question_hash=shown, edited_args=edited)
    receipt = await DecisionService(rig.deps).decide(draft, DecisionAuthor(PEOPLE[2], "api", "session"))
    assert (receipt.status, receipt.code) == ("refused", "malformed")
    assert (await rig.turns.signoff.request(approval)).votes == ()


async def test_withdrawal_by_the_requester_is_recorded_with_their_name(rig: GatewayRig) -> None:
    approval = await asked_of(rig)
    headers = bearer(await token_of(rig, "guest"))
    done = await rig.http.post(f"/v1/approvals/{approval}/withdraw", json={}, headers=headers)
    assert (done.status_code, done.json()["state"]) == (200, "cancelled")
    request = await rig.turns.signoff.request(approval)
    assert request.decided_by == "guest"


async def test_private_key_is_in_no_history_and_no_answer(rig: GatewayRig) -> None:
    private = new_key(NOW)
    signer = Signer(PrivateKeys(keys=(private,)))
    deps = dataclasses.replace(rig.deps, signer=signer)
    assert private.private not in repr(deps)
    key = await start(deps, TurnBody(text="hello", actor="desk", turn=fresh()), "api")
    history = await rig.turns.client.get_workflow_handle(key.workflow_id).fetch_history()
    written = b"".join(event.SerializeToString() for event in history.events)
    assert signer.key_id.encode() in written
    assert private.private.encode() not in written
    async with http_of(build_app(deps)) as http:
        headers = bearer(await token_of(rig, "guest"))
        shown = await http.get(f"/v1/turns/{'.'.join(key)}", headers=headers)
    assert private.private not in shown.text


async def test_temporal_links_appear_only_with_a_known_ui(rig: GatewayRig) -> None:
    key = TurnKey("main", "s", "t")
    known = dataclasses.replace(rig.deps, settings=replace(rig.deps.settings, temporal_ui="https://t.example/"))
    assert rig.deps.temporal_link(key) == ""
    assert known.temporal_link(key) == "https://t.example/namespaces/default/workflows/turn%2Fmain%2Fs%2Ft"
