import json
from typing import Any

import httpx
import pytest
from gateway_login import bearer, token_of
from peer_rig import PeerRig

SAID = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
PUSH = {"message": SAID["message"], "configuration": {"taskPushNotificationConfig": {"url": "https://example.com"}}}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("message/send", SAID, -32601),
        ("Nonsense", {}, -32601),
        ("SendMessage", {}, -32602),
        ("SendMessage", PUSH, -32003),
        ("GetTask", {}, -32602),
        ("GetTask", {"id": "main.a.b"}, -32001),
        ("CancelTask", {"id": "x"}, -32001),
        ("SubscribeToTask", {"id": "x"}, -32001),
        ("CreateTaskPushNotificationConfig", {}, -32003),
        ("GetTaskPushNotificationConfig", {}, -32003),
        ("ListTaskPushNotificationConfigs", {}, -32003),
        ("DeleteTaskPushNotificationConfig", {}, -32003),
        ("GetExtendedAgentCard", {}, -32004),
    ],
)
async def test_refused_method_returns_the_protocols_error_code(
    peers: PeerRig, method: str, params: Any, code: int
) -> None:
    found = await peers.rpc(method, params, id="mine")
    assert (found["jsonrpc"], found["id"], found["error"]["code"]) == ("2.0", "mine", code)
    assert found["error"]["data"][0]["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"


@pytest.mark.parametrize(("body", "code"), [(b"{", -32700), (b"[]", -32600), (b'{"jsonrpc":"2.0"}', -32600)])
async def test_malformed_request_is_answered_without_an_id(peers: PeerRig, body: bytes, code: int) -> None:
    found = await peers.post(body)
    assert (found["id"], found["error"]["code"]) == (None, code)


@pytest.mark.parametrize("version", ["", "0.3", "2.0"])
async def test_other_protocol_versions_are_refused(peers: PeerRig, version: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": SAID}).encode()
    assert (await peers.post(body, **{"a2a-version": version}))["error"]["code"] == -32009


async def test_only_a_peers_token_is_accepted(peers: PeerRig) -> None:
    person = await token_of(peers.gateway, "partner")
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"})
    wanted: list[tuple[dict[str, str], int]] = [
        ({}, 401),
        (bearer("sgf_made_up"), 401),
        (bearer(person), 403),
    ]
    async with httpx.AsyncClient(timeout=60) as http:
        for headers, status in wanted:
            given = {"content-type": "application/json", "a2a-version": "1.0", **headers}
            answer = await http.post(f"{peers.url}/a2a/desk", content=body, headers=given)
            assert answer.status_code == status
            assert ("www-authenticate" in answer.headers) == (status == 401)
        given = {"a2a-version": "1.0", **bearer(await peers.token())}
        plain = {**given, "content-type": "text/plain"}
        assert (await http.post(f"{peers.url}/a2a/desk", content=body, headers=plain)).status_code == 415
        json_given = {**given, "content-type": "application/json"}
        answer = await http.post(f"{peers.url}/a2a/other", content=body, headers=json_given)
        assert (answer.status_code, answer.json()["message"]) == (404, "there is no such agent")


@pytest.mark.parametrize("added", ["", "/", "//"])
async def test_actors_address_with_added_slashes_is_the_same(peers: PeerRig, added: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}
    async with httpx.AsyncClient(timeout=60) as http:
        given = {"a2a-version": "1.0", **bearer(await peers.token())}
        answer = await http.post(f"{peers.url}/a2a/desk{added}", json=body, headers=given)
        assert (answer.status_code, "result" in answer.json()) == (200, True)
        refused = await http.post(f"{peers.url}/a2a/desk{added}", content=b"{}", headers=given)
        assert refused.status_code == 415
        for path in (f"{added}/.well-known/agent-card.json", f"/.well-known/agent-card.json{added}"):
            card = await http.get(f"{peers.url}/a2a/desk{path}")
            assert (card.status_code, card.json()["name"]) == (200, "desk")
