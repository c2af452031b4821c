from typing import Any

import pytest
from gateway_rig import GatewayRig, fresh
from tables import table


@pytest.mark.row("X21", "Q6")
async def test_field_names_of_other_designs_are_accepted_but_never_returned(gateway: GatewayRig) -> None:
    turn = fresh()
    theirs = await gateway.http.post("/v1/turns", json={"text": "hello", "handler": "desk", "event": turn})
    ours = await gateway.http.post("/v1/turns", json={"text": "hello", "actor": "desk", "turn": turn})
    assert (theirs.status_code, theirs.json()["turn"]) == (201, turn)
    assert theirs.json() == ours.json()
    view = (await gateway.http.get(theirs.json()["links"]["self"])).json()
    assert (view["actor"], view["turn"]) == ("desk", turn)
    assert not {"handler", "event", "conversationState"} & {*view, *theirs.json()}


@table(
    ("more", "words"),
    ({"actor": "desk", "handler": "other"}, "`actor` and `handler` mean the same and differ"),
    ({"handler": "desc"}, "did you mean `desk`"),
    ({"handler": "desk", "conversationState": "complete"}, "`conversationState` is not known here"),
)
async def test_contradicting_field_names_are_refused(gateway: GatewayRig, more: dict[str, Any], words: str) -> None:
    answer = await gateway.http.post("/v1/turns", json={"text": "x", **more})
    assert answer.status_code in (404, 422)
    assert words in answer.json()["message"]


@table(
    ("method", "path", "body", "words"),
    ("POST", "/v1/turns", {"text": "x", "as": "bo"}, "`as` cannot be given: name the person by `user` in the body"),
    ("POST", "/v1/turns?as=bo", {"text": "x"}, "`as` is not taken in this address; name the person by `user` in"),
    (
        "POST",
        "/v1/freezes",
        {"reason": "x", "user": "bo"},
        "`user` cannot be given: name the person by `?as=PERSON`",
    ),
    (
        "POST",
        "/v1/freezes?user=bo",
        {"reason": "x"},
        "`user` is not taken in this address; name the person by `?as=",
    ),
    ("POST", "/v1/approvals/x/decide", {"verdict": "denied", "user": "bo"}, "name the person by `?as=PERSON`"),
    ("GET", "/v1/approvals?user=bo", None, "`user` is not taken in this address; name the person by `?as=PERSON`"),
    ("GET", "/v1/tools?as=bo", None, "`as` is not taken in this address; the token names the person"),
    ("POST", "/v1/hooks/codex?as=bo", {"hook_event_name": "x"}, "name the person by `?user=PERSON` in the address"),
)
async def test_errors_say_where_as_and_user_belong(
    gateway: GatewayRig, method: str, path: str, body: Any, words: str
) -> None:
    answer = await gateway.http.request(method, path, json=body) if body else await gateway.http.request(method, path)
    assert words in answer.json()["message"], answer.text


async def test_many_unknown_fields_are_shortened_with_identity_first(gateway: GatewayRig) -> None:
    unknown = {f"x{number}": 0 for number in range(20_000)}
    answer = await gateway.http.post("/v1/turns", json={"text": "x", "actor": "desk", **unknown})
    text = "`x0` is not known here; `x1` is not known here; `x2` is not known here"
    assert (answer.status_code, answer.json()["message"]) == (422, text)
    answer = await gateway.http.post("/v1/turns", json={"text": "x", "actor": "desk", **unknown, "tier": "admin"})
    assert answer.status_code == 422
    assert answer.json()["message"].startswith("`tier` cannot be given")
