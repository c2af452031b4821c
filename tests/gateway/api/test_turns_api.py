import asyncio
import json
import string
import uuid
from datetime import UTC, datetime

import pytest
from gateway_rig import PASSWORD, GatewayRig, fresh
from polling import pauses
from tables import table

from signoff.contracts.ids import uuid7


async def test_started_turn_is_readable_at_its_links(gateway: GatewayRig) -> None:
    answer = await gateway.http.post("/v1/turns", json={"text": "hello", "actor": "desk"})
    body = answer.json()
    assert answer.status_code == 201
    assert len(body["turn"]) == 22
    assert body["session"] == body["turn"]
    assert body["links"]["temporal"].startswith("http://127.0.0.1:8233/namespaces/")
    assert body["links"]["temporal"].endswith(f"/workflows/turn%2Fmain%2F{body['turn']}%2F{body['turn']}")
    assert answer.headers["location"] == body["links"]["self"]
    whole = (await gateway.http.get(body["links"]["self"])).json()
    bare = (await gateway.http.get(f"/v1/turns/{body['turn']}")).json()
    assert whole["turn"] == bare["turn"] == body["turn"]
    assert whole["requester"]["user"] == "guest"


async def test_tier_and_roles_come_from_the_directory(gateway: GatewayRig) -> None:
    view = await gateway.turns.signoff.view(await gateway.start("hello", user="ana"))
    assert (view.requester.tier, view.requester.roles) == ("trusted", ("approvers", "finance"))


@table("field", "tier", "roles", "principal")
async def test_identity_in_the_body_is_refused_by_field_name(gateway: GatewayRig, field: str) -> None:
    answer = await gateway.http.post("/v1/turns", json={"text": "x", "actor": "desk", field: "admin"})
    assert answer.status_code == 422
    assert f"`{field}`" in answer.json()["message"]
    assert "directory" in answer.json()["message"]


def _nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@table(
    ("body", "status", "words"),
    ({"text": "x", "actor": "desc"}, 404, "did you mean `desk`"),
    ({"text": "x"}, 422, "name an `actor`: `desk`, `other`"),
    ({"text": "x", "actor": "desk", "user": "aprover"}, 404, "did you mean `approver`"),
    ({"text": "x", "actor": "desk", "user": "gone"}, 404, "no person `gone`"),
    ({"actor": "desk"}, 422, "either `text` or `messages`"),
    ({"text": "  ", "actor": "desk"}, 422, "say something"),
    ({"text": "x", "actor": "desk", "turn": "a b"}, 422, "`turn`"),
    ({"text": "x", "actor": "desk", "colour": 1}, 422, "`colour` is not known here"),
    ({"messages": [{"role": "assistant", "text": "x"}], "actor": "desk"}, 422, "must be the user's"),
    ({"text": "x", "actor": "desk", "context": {"user.tier": "trusted"}}, 422, "`user.tier` cannot be given"),
    (
        {"text": "x", "actor": "desk", "context": {"a": float("nan")}},
        422,
        "the body holds NaN, which is not a JSON number",
    ),
    ({"text": "x", "actor": "desk", "context": {"a": _nested(31)}}, 422, "cannot be taken: values nested deeper"),
    ({"text": "x", "actor": "desk", "context": {"a": _nested(200)}}, 422, "cannot be taken: values nested deeper"),
    ({"text": "x", "actor": "desk", "context": {"a": _nested(700)}}, 422, "cannot be taken: values nested deeper"),
    ({"text": "\ud800", "actor": "desk"}, 422, "a lone surrogate"),
    ({"messages": [{"text": "\ud800"}], "actor": "desk"}, 422, "`messages.0.text`"),
)
async def test_invalid_start_is_refused_in_one_sentence(
    gateway: GatewayRig, body: object, status: int, words: str
) -> None:
    json_header = {"content-type": "application/json"}
    answer = await gateway.http.post("/v1/turns", content=json.dumps(body), headers=json_header)
    assert answer.status_code == status
    assert set(answer.json()) == {"code", "message"}
    assert words in answer.json()["message"]


async def test_same_turn_id_with_other_input_is_a_conflict(gateway: GatewayRig) -> None:
    turn = fresh()
    await gateway.start("hello", turn=turn)
    await gateway.start("hello", turn=turn)
    answer = await gateway.http.post("/v1/turns", json={"text": "other", "actor": "desk", "turn": turn})
    assert answer.status_code == 409
    assert answer.json()["code"] == "conflict"


async def test_long_messages_are_kept_in_the_store(gateway: GatewayRig) -> None:
    view = await gateway.turns.signoff.view(key := await gateway.start("wörd " * 20_000))
    stored = view.model_dump()["messages"][0]["parts"][0]["text"]["blob"]
    assert stored["size"] == 20_000 * 6 + 2
    assert (await gateway.turns.signoff.result(key)).state == "complete"
    answer = await gateway.http.post("/v1/turns", json={"text": "x" * 1_100_000, "actor": "desk"})
    assert answer.status_code == 413


async def test_body_without_content_length_is_refused(gateway: GatewayRig) -> None:
    async def chunks():  # type: ignore[no-untyped-def]
        for _ in range(40):
            yield b" " * 50_000

    headers = {"content-type": "application/json"}
    answer = await gateway.http.post("/v1/turns", content=chunks(), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (411, "length")


async def test_unknown_turn_returns_404(gateway: GatewayRig) -> None:
    assert (await gateway.http.get(f"/v1/turns/{fresh()}")).status_code == 404
    assert (await gateway.http.get("/v1/turns/a.b")).status_code == 404
    answer = await gateway.http.get("/v1/turns/main.s.t.c1.1")
    assert "did you mean `main.s.t`" in answer.json()["message"]


async def test_ambiguous_turn_id_is_refused_with_both_names(gateway: GatewayRig) -> None:
    """Otherwise one turn could be read or stopped instead of another."""
    turn = fresh()
    names = sorted([f"main.a-{turn}.{turn}", f"main.b-{turn}.{turn}"])
    for name in names:
        body = {"text": "hello", "actor": "desk", "session": name.split(".")[1], "turn": turn}
        assert (await gateway.http.post("/v1/turns", json=body)).status_code == 201
    async with asyncio.timeout(60):
        # Visibility shows a turn some milliseconds after its start.
        while (answer := await gateway.http.get(f"/v1/turns/{turn}")).status_code != 422:
            await asyncio.sleep(0.05)
    assert answer.json()["code"] == "ambiguous"
    assert answer.json()["message"].endswith(f": {', '.join(names)}")


async def test_events_end_with_the_result(gateway: GatewayRig) -> None:
    key = await gateway.start("small")
    async with gateway.http.stream("GET", f"/v1/turns/{'.'.join(key)}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        text = (await stream.aread()).decode()
    views = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert views[-1]["result"]["state"] == "complete"
    assert [call["state"] for call in views[-1]["calls"]] == ["ok"]


async def test_turns_are_listed_and_filtered(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    turn = approval.split(".")[2]
    wanted = {"state": "suspended", "actor": "desk", "limit": 500}
    # The server lists a turn's new state a moment later.
    for pause in pauses():
        listed = (await gateway.http.get("/v1/turns", params=wanted)).json()
        if approval.rpartition(".c")[0] in [row["id"] for row in listed["turns"]]:
            break
        await asyncio.sleep(pause)
    others = (await gateway.http.get("/v1/turns", params={"actor": "other"})).json()
    assert turn not in [row["turn"] for row in others["turns"]]


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
async def test_since_outside_the_range_of_dates_is_refused(gateway: GatewayRig, since: str) -> None:
    answer = await gateway.http.get("/v1/turns", params={"since": since})
    assert answer.status_code == 404
    assert "is no time of a turn" in answer.json()["message"]


async def test_cancelled_turn_ends_cancelled(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    name = approval.rsplit(".", 2)[0]
    headers = {"content-type": "application/json"}
    assert (await gateway.http.post(f"/v1/turns/{name}/cancel", headers=headers)).status_code == 202
    async with gateway.http.stream("GET", f"/v1/turns/{name}/events") as stream:
        await stream.aread()
    view = (await gateway.http.get(f"/v1/turns/{name}")).json()
    assert view["state"] == "cancelled"
    assert view["calls"][0]["approval"]["state"] == "cancelled"
    assert await gateway.runs(approval) == 0
    over = await gateway.http.post(f"/v1/turns/{name}/cancel", headers=headers)
    assert (over.status_code, over.json()) == (202, {"id": name, "state": "cancelled"})


async def test_secret_arguments_are_in_no_view(gateway: GatewayRig) -> None:
    approval = await gateway.asked("login")
    name = approval.rsplit(".", 2)[0]
    texts = [
        (await gateway.http.get(f"/v1/turns/{name}")).text,
        (await gateway.http.get(f"/v1/approvals/{approval}")).text,
        (await gateway.http.get("/v1/approvals")).text,
    ]
    await gateway.decide(approval, verdict="denied")
    async with gateway.http.stream("GET", f"/v1/turns/{name}/events") as stream:
        texts.append((await stream.aread()).decode())
    assert not any(PASSWORD in text for text in texts)
    assert all("hidden, 13 characters" in text for text in (texts[0], texts[1], texts[3]))
    digest = (await gateway.turns.signoff.request(approval)).digest
    assert not any(digest in text for text in texts), "a bare digest lets a short secret be guessed"


def test_uuid7_sorts_by_time() -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 2000, tzinfo=UTC)
    first, second = uuid7(early), uuid7(late)
    assert first < second
    assert len(first) == len(second) == 22
    number = 0
    for digit in first:
        number = number * 62 + (string.digits + string.ascii_uppercase + string.ascii_lowercase).index(digit)
    written = uuid.UUID(int=number)
    assert (written.version, written.variant) == (7, uuid.RFC_4122)
    assert written.int >> 80 == int(early.timestamp() * 1000)
    assert uuid7(early) != first
