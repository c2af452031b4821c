import uuid

import pytest
from aap_rig import Adapter, adapter, asking
from agentapprovalprotocol import CredentialRefused, NotFound
from call_rig import CallRig, production_gateway, refusals
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import BASE


async def test_request_without_the_agents_token_is_refused(agent: CallRig) -> None:
    locked = CallRig(locked_rig(agent.rig))
    async with adapter(locked) as own, adapter(locked, "clerk", "/aap/coder") as other:
        asked = await own.ask(asking())
        person = await token_of(locked.rig, "ana")
        for token, status in (("sgf_guessed", 401), (person, 403), (other.token, 403)):
            own.token = token
            with pytest.raises(CredentialRefused, match=str(status)):
                await own.ask(asking())
            with pytest.raises(CredentialRefused, match=str(status)):
                await own.client.get(asked.id)
            for method, path in (("DELETE", ""), ("POST", "/consume"), ("POST", "/outcome")):
                told, code = await own.send(method, f"/{asked.id}{path}", idempotency_key="use-1")
                assert told == status, code
        bare = await own.http.get(f"{BASE}/aap/coder/v1/requests/{asked.id}")
        assert (bare.status_code, bare.headers["www-authenticate"]) == (401, "Bearer")


async def test_agent_of_several_people_has_an_address_for_each(agent: CallRig) -> None:
    users = "/aap/clerk/users"
    async with adapter(agent, "clerk", f"{users}/ana") as ana, adapter(agent, "clerk", f"{users}/bo") as bo:
        asked = await ana.allowed()
        assert asked.status == "approved"
        assert (await ana.client.consume(asked.id, "use-1")).consumption is not None
        with pytest.raises(NotFound):
            await bo.client.get(asked.id)
        bo.base = f"{users}/guest"
        with pytest.raises(CredentialRefused):
            await bo.ask(asking(20))
        bo.base = "/aap/clerk"
        assert await bo.send("POST", "", asking(20), idempotency_key="x") == (400, "malformed")
        bo.base = "/aap/desk"
        assert (await bo.send("POST", "", asking(20), idempotency_key="x"))[0] == 403


async def test_requests_of_another_agent_are_not_found(agent: CallRig, coder: Adapter) -> None:
    asked = await coder.ask(asking())
    async with adapter(agent, "roamer") as roamer:
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/consume"), ("POST", "/outcome")):
            body = {"status": "failed"} if path == "/outcome" else None
            assert await roamer.send(method, f"/{asked.id}{path}", body, idempotency_key="use-1") == (404, "not_found")
    assert (await coder.client.get(asked.id)).status == "pending"


async def test_unserved_paths_are_not_found(coder: Adapter) -> None:
    answer = await coder.agent.http.post("/aap/coder/v1/instances", json={}, headers=bearer(coder.token))
    assert answer.status_code == 404
    for name in ("x", str(uuid.uuid4()), "a.b.c", "%2e%2e"):
        assert (await coder.send("GET", f"/{name}"))[0] == 404


async def test_malformed_key_or_wait_is_refused(coder: Adapter) -> None:
    assert await coder.send("POST", "", asking(20)) == (400, "missing_idempotency_key")
    asked = await coder.allowed()
    assert await coder.send("POST", f"/{asked.id}/consume") == (400, "missing_idempotency_key")
    for wait in ("30", "0s", "-1s", "1.5s", "s", "1d", "30 s", "999999999h"):
        assert await coder.send("GET", f"/{asked.id}?wait={wait}") == (400, "malformed")
    assert (await coder.send("GET", f"/{asked.id}?wait=8000h"))[0] == 200


async def test_only_json_is_accepted(coder: Adapter) -> None:
    asked = await coder.allowed()
    headers = bearer(coder.token) | {"content-type": "text/plain", "idempotency-key": "use-1"}
    for path in ("", f"/{asked.id}/consume", f"/{asked.id}/outcome"):
        answer = await coder.agent.http.post(f"/aap/coder/v1/requests{path}", content=b"{}", headers=headers)
        assert answer.status_code == 415


async def test_refusals_are_recorded_under_the_agent(agent: CallRig) -> None:
    rig = production_gateway(agent.rig)
    async with adapter(CallRig(rig)) as own:
        body, key = asking(20), uuid.uuid4().hex
        await own.ask(body, key)
        pay = {"tool": "pay", "arguments": {"amount": 20, "to": "Ana"}, "timeout": "1m"}
        tried = [
            ("/aap/coder/users/ana", "GET", f"/{uuid.uuid4()}", None, "not_allowed"),
            ("/aap/clerk", "POST", "", body, "not_allowed"),
            ("/aap/coder", "GET", f"/{uuid.uuid4()}", None, "unknown"),
            ("/aap/coder", "POST", "", body | {"timeout": "11m"}, "conflict"),
            ("/aap/coder", "POST", "", pay, "not_allowed"),
        ]
        before = [len(await refusals(rig, "actor:coder", tool)) for tool in ("", "refund", "pay")]
        for base, method, path, sent, _ in tried:
            own.base = base
            assert (await own.send(method, path, sent, idempotency_key=key if sent != pay else uuid.uuid4().hex))[
                0
            ] >= 400
    found = [await refusals(rig, "actor:coder", tool) for tool in ("", "refund", "pay")]
    new = [[each["code"] for each in rows[seen:]] for rows, seen in zip(found, before, strict=True)]
    assert new == [["not_allowed", "not_allowed", "unknown"], ["conflict"], ["not_allowed"]]
