from typing import Any

from authzen_rig import EVALUATION, REQUESTS, EnforcementPoint, asking
from authzen_schemas import schema_problems
from gateway_login import bearer, locked_rig, token_of
from tables import table


async def test_configuration_names_both_endpoints(point: EnforcementPoint) -> None:
    answer = await locked_rig(point.agent.rig).http.get("/.well-known/authzen-configuration")
    base = point.agent.rig.deps.settings.public_url
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {
        "policy_decision_point": base,
        "access_evaluation_endpoint": f"{base}{EVALUATION}",
        "access_request_endpoint": f"{base}{REQUESTS}",
        "capabilities": ["urn:openid:authzen:capability:access-request"],
    }


async def test_request_without_an_agents_token_is_refused(point: EnforcementPoint) -> None:
    locked = locked_rig(point.agent.rig)
    person = bearer(await token_of(locked, "ana"))
    for headers, status in (({}, 401), (bearer("sgf_guessed"), 401), (person, 403)):
        answer = await locked.http.post(EVALUATION, json=asking(20), headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")
        assert ("www-authenticate" in answer.headers) is (status == 401)
        for method, path in (("POST", REQUESTS), ("GET", f"{REQUESTS}/x"), ("POST", f"{REQUESTS}/x/cancel")):
            sent: dict[str, Any] = {"json": {}} if method == "POST" else {}
            told = await locked.http.request(method, path, headers=headers, **sent)
            assert (told.status_code, told.headers["content-type"]) == (status, "application/problem+json")
            assert told.json()["type"] == "about:blank"


@table(
    "body",
    b"",
    b"{",
    b"[]",
    b"null",
    b"[" * 50_000,
    b'{"subject": {"type": "user", "id": "guest"}}',
    b'{"subject": {"type": "user"}, "action": {"name": "x"}, "resource": {"type": "t", "id": "r"}}',
    b'{"subject": {"type": "user", "id": 7}, "action": {"name": "x"}, "resource": {"type": "t", "id": "r"}}',
    b'{"subject": "guest", "action": {"name": "x"}, "resource": {"type": "t", "id": "r"}}',
    b'{"subject": {"type": "u", "id": "g"}, "action": {"name": "x"}, "resource": {"type": "t", "id": "r"}, '
    b'"context": 7}',
)
async def test_malformed_request_is_a_bad_request(point: EnforcementPoint, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = await point.http.post(EVALUATION, content=body, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8"), answer.text
    assert answer.text
    told = await point.http.post(REQUESTS, content=body, headers=headers)
    assert (told.status_code, told.headers["content-type"]) == (400, "application/problem+json")


async def test_unknown_request_fields_are_ignored(point: EnforcementPoint) -> None:
    body = asking(20) | {"options": {"x": 1}}
    body["subject"] = body["subject"] | {"realm": "north"}
    answer = await point.http.post(EVALUATION, json=body)
    assert (answer.status_code, answer.json()) == (200, {"decision": True})
    assert schema_problems("response", answer.json()) == []


async def test_request_id_is_returned(point: EnforcementPoint) -> None:
    for path, body in ((EVALUATION, asking(20)), (EVALUATION, {}), (REQUESTS, {})):
        answer = await point.http.post(path, json=body, headers={"x-request-id": "r-17"})
        assert answer.headers["x-request-id"] == "r-17"
    long = await point.http.post(EVALUATION, json=asking(20), headers={"x-request-id": "r" * 201})
    assert "x-request-id" not in long.headers


async def test_only_json_is_read(point: EnforcementPoint) -> None:
    answer = await point.http.post(EVALUATION, content=b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 415
