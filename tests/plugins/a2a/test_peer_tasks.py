import asyncio
import base64
import contextlib
import json
from typing import Any

import httpx
import pytest
from a2a.client.client import ClientCallContext
from a2a.client.errors import A2AClientError
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from gateway_login import bearer, token_of
from google.protobuf.json_format import MessageToDict
from peer_rig import PARTNER, PeerClient, PeerRig, answer_of, fresh_id, key_of, message, state_of
from starlette.requests import Request

from signoff.contracts.limits import STREAMS_OF_ONE
from signoff.contracts.names import PEER
from signoff.gateway.auth.dependencies import TokenAccess
from signoff.gateway.peer_turns import OwnTurns
from signoff.plugins.a2a.agent_card import PART, TOOLS
from signoff.plugins.a2a.peer_tasks import PeerTasks
from signoff.plugins.a2a.rpc_request import ListParams


async def read(client: PeerClient, task: Task, **fields: Any) -> Task:
    return await client.sdk.get_task(GetTaskRequest(id=task.id), **fields)


async def over(client: PeerClient, task: Task) -> Task:
    # An ended task has no subscription.
    with contextlib.suppress(UnsupportedOperationError):
        async for _ in client.live.subscribe(SubscribeToTaskRequest(id=task.id)):
            pass
    return await read(client, task)


def page_of(at: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([at, "x"]).encode()).decode()


def told(task: Task) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = MessageToDict(task.metadata)[TOOLS]["calls"]
    return found


@pytest.mark.row("V06")
async def test_message_becomes_a_turn_whose_calls_pass_the_same_gates(peers: PeerRig) -> None:
    before = len(peers.gateway.ledger.rows)
    async with peers.agent() as client:
        task = await client.send("pay")
        assert state_of(task) == "AUTH_REQUIRED"
        key = key_of(task)
        view = await peers.gateway.turns.waiting(key)
        asked = view.calls[0].approval
        assert asked is not None
        assert (asked.tool, asked.requester.user) == ("pay", "partner")
        given = await peers.gateway.deps.client.input_of(key)
        assert given is not None
        assert (given.channel, given.actor, given.session_id) == (PEER, "desk", task.context_id)
        (words, fact) = (MessageToDict(part) for part in task.status.message.parts)
        code = f"{asked.code[:3]}-{asked.code[3:]}"
        assert words["text"] == f"Waiting for approval, {code}. People decide; no message to this task does."
        assert fact["data"]["code"] == code
        assert fact["data"]["page"] == f"{peers.url}/approvals/{asked.id}"
        assert {"type", "code", "tool", "page", "expiresAt"} == set(fact["data"])
        await client.decide(task)
        ended = await over(client, task)
    assert (state_of(ended), answer_of(ended)) == ("COMPLETED", "pay: ok paid")
    assert told(ended) == [{"tool": "pay", "type": "ToolResult", "code": "ok"}]
    assert len(peers.gateway.ledger.rows) == before + 1


@pytest.mark.row("B14")
async def test_peers_see_and_call_only_exposed_tools(peers: PeerRig) -> None:
    before = [row for row in peers.gateway.ledger.rows if row[0] in ("hidden", "own")]
    async with peers.agent() as client:
        offered = answer_of(await client.send("offered"))
        assert offered.split() == ["pay", "refund", "small", "respond"]
        assert [skill.id for skill in client.card.skills] == ["pay", "refund", "small"]
        for name in ("hidden", "own"):
            task = await client.send(name)
            assert answer_of(task).startswith(f"{name}: not_available Unknown tool: {name}")
            assert told(task) == []
        ran = await client.send("small")
    assert (state_of(ran), answer_of(ran)) == ("COMPLETED", "small: ok paid")
    assert [row for row in peers.gateway.ledger.rows if row[0] in ("hidden", "own")] == before
    # The same actor offers them to a person.
    token = await token_of(peers.gateway, "guest")
    async with httpx.AsyncClient(headers=bearer(token), timeout=60) as http:
        await http.post(f"{peers.url}/v1/turns", json={"text": "hidden", "actor": "desk"})
        while len([row for row in peers.gateway.ledger.rows if row[0] == "hidden"]) == len(before):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("word", "source", "reason"), [("refund", "policy", "deny_if"), ("pay", "human", "not this month")]
)
async def test_denied_call_rejects_the_task(peers: PeerRig, word: str, source: str, reason: str) -> None:
    async with peers.agent() as client:
        task = await client.send(word)
        if source == "human":
            await client.decide(task, "denied", reason=reason)
            task = await over(client, task)
    assert state_of(task) == "REJECTED"
    (call,) = told(task)
    assert (call["type"], call["code"], call["source"]) == ("ToolDenied", "denied", source)
    assert reason in call["reason"]
    assert task.status.message.parts[0].text.startswith(f"Denied ({source}): ")


async def test_peer_cannot_answer_its_own_tasks_request(peers: PeerRig) -> None:
    async with peers.agent() as client:
        task = await client.send("pay")
        with pytest.raises(UnsupportedOperationError, match="approvers decide"):
            await client.send("approved", task_id=task.id)
        view = await peers.gateway.turns.waiting(key_of(task))
        (approval,) = [each.approval for each in view.calls if each.approval is not None]
        yes = {"verdict": "approved", "question_hash": approval.question_hash}
        for method, path, body in (
            ("POST", f"/v1/approvals/{approval.id}/decide", yes),
            ("POST", "/v1/turns", {"text": "pay"}),
            ("POST", f"/v1/sessions/{task.context_id}/messages", {"text": "pay"}),
            ("GET", f"/v1/turns/{task.id}", None),
            ("GET", f"/v1/approvals/{approval.id}", None),
            ("GET", "/v1/events", None),
        ):
            answer = await client.http.request(method, peers.url + path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "scope"), path
        assert state_of(await read(client, task)) == "AUTH_REQUIRED"
        stopped = await client.sdk.cancel_task(CancelTaskRequest(id=task.id))
    assert state_of(stopped) == "CANCELED"


async def test_task_is_visible_only_to_its_own_peer(peers: PeerRig) -> None:
    async with peers.agent() as client:
        task = await client.send("small")
        for person, tenant in (("rival", "main"), ("far", "globex")):
            async with peers.agent(person, tenant=tenant) as other:
                assert task.id not in [each.id for each in (await other.sdk.list_tasks(ListTasksRequest())).tasks]
                with pytest.raises(TaskNotFoundError):
                    await read(other, task)
                with pytest.raises(TaskNotFoundError):
                    await other.sdk.cancel_task(CancelTaskRequest(id=task.id))
                with pytest.raises(TaskNotFoundError):
                    await other.send("more", task_id=task.id)
                with pytest.raises(InvalidParamsError):
                    await other.send("more", context_id=task.context_id)
                with pytest.raises(TaskNotFoundError):
                    await anext(other.live.subscribe(SubscribeToTaskRequest(id=task.id)))
        assert state_of(await read(client, task)) == "COMPLETED"


async def test_turn_started_elsewhere_by_the_same_person_is_no_task(peers: PeerRig) -> None:
    headers = bearer(await token_of(peers.gateway, "partner"))
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        started = (
            await http.post(f"{peers.url}/v1/turns", json={"text": "small", "actor": "desk", "session": "peer-own"})
        ).json()
    async with peers.agent() as client:
        for name in (started["id"], "main.x.y", "nonsense", ""):
            with pytest.raises((TaskNotFoundError, InvalidParamsError)):
                await client.sdk.get_task(GetTaskRequest(id=name))
        listed = await client.sdk.list_tasks(ListTasksRequest(page_size=100))
    assert started["id"] not in [each.id for each in listed.tasks]


async def test_people_and_peers_share_no_session(peers: PeerRig) -> None:
    """Otherwise a peer's next turn would contain results that were shown only to the person's other token."""
    headers = bearer(await token_of(peers.gateway, "partner"))
    async with httpx.AsyncClient(headers=headers, timeout=60) as http, peers.agent() as client:
        context = (await client.send("hello")).context_id
        body = {"text": "hidden", "actor": "desk"}
        for path, more in ((f"/v1/sessions/{context}/messages", {}), ("/v1/turns", {"session": context})):
            answer = await http.post(peers.url + path, json=body | more)
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), path
        # A session that a person names like a peer's is not shared, either.
        answer = await http.post(f"{peers.url}/v1/sessions/peer-review/messages", json=body)
        assert answer.status_code == 201, answer.text
        with pytest.raises(InvalidParamsError, match="no such context"):
            await client.send("before", context_id=answer.json()["session"].rpartition(".")[2])


async def test_grant_for_others_runs_no_call_of_a_peer(peers: PeerRig) -> None:
    wish = {"remember": {"scope": "tenant", "uses": 1}}
    headers = bearer(await token_of(peers.gateway, "guest"))
    async with httpx.AsyncClient(headers=headers, timeout=60) as http, peers.agent("rival") as client:
        begun = (await http.post(f"{peers.url}/v1/turns", json={"text": "pay", "actor": "desk"})).json()
        await client.decide(Task(id=begun["id"]), **wish)
        task = await client.send("pay")
        assert state_of(task) == "AUTH_REQUIRED"
        await client.decide(task, **wish)
        await over(client, task)
        async with peers.agent() as other:
            task = await other.send("pay")
            assert state_of(task) == "AUTH_REQUIRED"
            await other.sdk.cancel_task(CancelTaskRequest(id=task.id))
        assert state_of(await client.send("pay")) == "COMPLETED"


async def test_context_is_one_conversation(peers: PeerRig) -> None:
    async with peers.agent() as client:
        first = await client.send("which one")
        assert (state_of(first), answer_of(first)) == ("COMPLETED", "To whom?")
        assert MessageToDict(first.metadata)[TOOLS]["state"] == "clarifying"
        second = await client.send("before", context_id=first.context_id)
        assert (second.context_id, answer_of(second)) == (first.context_id, "which one / before")
        assert second.id != first.id
        with pytest.raises(UnsupportedOperationError, match="it is over"):
            await client.send("more", task_id=first.id)
        with pytest.raises(InvalidParamsError, match="another than that of the task"):
            await client.send("more", task_id=first.id, context_id="peer-other")
        for made_up in ("peer-mine", "trip", "../x"):
            with pytest.raises(InvalidParamsError, match="no such context"):
                await client.send("more", context_id=made_up)


async def test_repeated_message_is_the_same_task(peers: PeerRig) -> None:
    name = fresh_id()
    before = len(peers.gateway.ledger.rows)
    async with peers.agent() as client:
        first = await client.send("small", message_id=name)
        assert (await client.send("small", message_id=name)).id == first.id
        assert len(peers.gateway.ledger.rows) == before + 1
        with pytest.raises(A2AClientError, match="-32000"):
            await client.send("refund", message_id=name)


@pytest.mark.row("B79")
async def test_parts_with_extensions_reach_only_peers_that_list_them(peers: PeerRig) -> None:
    async with peers.agent() as client:
        task = await client.send("parts")
        kinds = [MessageToDict(part.metadata)["type"] for part in task.artifacts[0].parts]
        assert kinds == ["response", "citation"]
        listed = [PART + "chart", PART + "llm-context"]
        context = ClientCallContext(service_parameters=ServiceParametersFactory.create([with_a2a_extensions(listed)]))
        whole = await read(client, task, context=context)
        kinds = [MessageToDict(part.metadata)["type"] for part in whole.artifacts[0].parts]
        assert kinds == ["response", "chart", "citation", "llm-context"]
        assert list(whole.artifacts[0].extensions) == listed
        assert MessageToDict(whole.artifacts[0].parts[1])["data"] == {"of": "chart"}


async def test_stream_sends_every_step_in_order(peers: PeerRig) -> None:
    seen: list[StreamResponse] = []
    decided = False
    async with peers.agent() as client:
        async for each in client.stream("pay"):
            seen.append(each)
            status = each.task.status if each.HasField("task") else each.status_update.status
            # The stream may repeat that the task waits.
            if status.state == TaskState.TASK_STATE_AUTH_REQUIRED and not decided:
                decided = True
                task = each.task if each.HasField("task") else Task(id=each.status_update.task_id)
                await client.decide(task)
    kinds = [str(each.WhichOneof("payload")) for each in seen]
    assert kinds[0] == "task"
    assert kinds.count("artifact_update") == 1
    assert kinds[-2:] == ["artifact_update", "status_update"]
    assert seen[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    assert seen[-2].artifact_update.artifact.parts[0].text == "pay: ok paid"
    assert all(each == "status_update" for each in kinds[1:-2])


async def test_subscriber_receives_the_task_and_later_events(peers: PeerRig) -> None:
    async with peers.agent() as client, peers.agent() as again:
        task = await client.send("pay")

        # A subscriber after the decision may receive an ended task and no later event.
        both_see_it = asyncio.Barrier(3)

        async def follow(one: PeerClient) -> list[StreamResponse]:
            events: list[StreamResponse] = []
            async for each in one.live.subscribe(SubscribeToTaskRequest(id=task.id)):
                events.append(each)
                if len(events) == 1:
                    await both_see_it.wait()
            return events

        running = asyncio.gather(*(follow(each) for each in (client, again)))
        await both_see_it.wait()
        await client.decide(task)
        first, second = await running
        assert first[0].HasField("task")
        assert first[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        # The task shows its start time until the server has closed the turn, after the last answer.
        for events in (first, second):
            events[-1].status_update.status.ClearField("timestamp")
        assert first[-2:] == second[-2:]
        with pytest.raises(UnsupportedOperationError, match="nothing follows"):
            await anext(client.live.subscribe(SubscribeToTaskRequest(id=task.id)))


async def test_task_is_readable_at_once_and_cancelled_once(peers: PeerRig) -> None:
    async with peers.agent() as client:
        request = message("pay")
        request.configuration.return_immediately = True
        (event,) = [each async for each in client.sdk.send_message(request)]
        task = event.task
        assert state_of(task) in ("SUBMITTED", "WORKING", "AUTH_REQUIRED")
        await peers.gateway.turns.waiting(key_of(task))
        assert state_of(await client.sdk.cancel_task(CancelTaskRequest(id=task.id))) == "CANCELED"
        with pytest.raises(TaskNotCancelableError):
            await client.sdk.cancel_task(CancelTaskRequest(id=task.id))


async def test_tasks_are_listed_by_page_with_the_newest_first(peers: PeerRig) -> None:
    async with peers.agent() as client:
        first = await client.send("small")
        context = first.context_id
        ids = [first.id] + [(await client.send("hello", context_id=context)).id for _ in range(2)]
        denied = await client.send("refund", context_id=context)
        found: list[str] = []
        token = ""
        for _ in range(4):
            page = await client.sdk.list_tasks(ListTasksRequest(context_id=context, page_size=3, page_token=token))
            found += [each.id for each in page.tasks]
            token = page.next_page_token
            if not token and len(found) == 4:
                break
        assert found == [denied.id, *reversed(ids)]
        assert page.total_size == 4
        assert not any(each.artifacts for each in page.tasks)
        rejected = await client.sdk.list_tasks(
            ListTasksRequest(context_id=context, status=TaskState.TASK_STATE_REJECTED, include_artifacts=True)
        )
        assert [each.id for each in rejected.tasks] == [denied.id]
        assert rejected.tasks[0].artifacts
        for made_up in ("made up", page_of("0001-01-01T00:00:00+14:00"), base64.b64encode(b"[" * 100_000).decode()):
            with pytest.raises(InvalidParamsError, match="pageToken"):
                await client.sdk.list_tasks(ListTasksRequest(page_token=made_up))


async def test_list_loads_answers_only_on_request(peers: PeerRig) -> None:
    """The answers of 500 tasks would fill a gateway's memory with one request."""
    async with peers.agent() as client:
        context = (await client.send("hello")).context_id
    deps, state = peers.gateway.deps, peers.gateway.app.state
    turns = OwnTurns(deps, state.live, Request({"type": "http"}), PARTNER)
    tasks = PeerTasks(turns, state.external_calls.exposed, "desk", peers.url)
    for asked, parts in ((False, 0), (True, 1)):
        params = ListParams(context_id=context, status="TASK_STATE_COMPLETED", include_artifacts=asked)
        found, _, total = await tasks.list_page(params)
        assert ([len(each.parts) for each in found], total) == ([parts], 1)


async def test_peer_without_a_free_stream_is_answered_at_once(peers: PeerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = [(b"authorization", f"Bearer {await peers.token()}".encode())]
    app = peers.gateway.app
    request = Request({"type": "http", "method": "POST", "path": "/a2a/desk", "headers": headers, "app": app})
    await TokenAccess("token", "peer").admit(request)
    async with peers.agent() as client, contextlib.AsyncExitStack() as held:
        for _ in range(STREAMS_OF_ONE):
            await held.enter_async_context(app.state.streams.hold(request))
        # Long enough for a busy machine to send two requests in it.
        monkeypatch.setattr("signoff.gateway.auth.streams._PAUSE_SECONDS", 600)
        begun = {"message": MessageToDict(message("pay").message)}
        async with httpx.AsyncClient(headers=bearer(await peers.token()), timeout=60) as http:
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": begun}
            sends = [await http.post(f"{peers.url}/a2a/desk", json=body, headers={"a2a-version": "1.0"}) for _ in "ab"]
        assert [each.headers["retry-after"] for each in sends] == ["600", "600"]
        assert "id" in sends[0].json()["result"]["task"]
        assert "streams already" in sends[1].json()["error"]["message"]
        name = fresh_id()
        with pytest.raises(A2AClientError, match="streams already"):
            await anext(client.stream("small", message_id=name))
        with pytest.raises(A2AClientError, match="streams already"):
            await client.sdk.list_tasks(ListTasksRequest())
        await held.aclose()
        # Another message under its id: nothing of the first was kept.
        assert answer_of(await client.send("hello", message_id=name)) == "You said: hello"


async def test_passed_turn_continues_the_task_with_exposed_tools_only(peers: PeerRig) -> None:
    async with peers.agent() as client:
        task = await client.send("pass it")
    assert state_of(task) == "COMPLETED"
    assert answer_of(task) == "You said: pass it"


async def test_unsupported_content_is_refused_before_anything_starts(peers: PeerRig) -> None:
    async with peers.agent() as client:
        request = message("look")
        request.message.parts.add(url="https://example.com/x.pdf")
        with pytest.raises(ContentTypeNotSupportedError):
            [each async for each in client.sdk.send_message(request)]
        with pytest.raises(InvalidParamsError, match="says nothing"):
            await client.send("  ")
        only = message("hello")
        only.configuration.accepted_output_modes.append("image/png")
        with pytest.raises(ContentTypeNotSupportedError):
            [each async for each in client.sdk.send_message(only)]
        task = await client.send("data", data={"order": "A7"})
    assert answer_of(task) == 'You said: data\n\n{"order": "A7.0"}'.replace("A7.0", "A7")


async def test_freeze_is_reported_and_starts_nothing(peers: PeerRig) -> None:
    headers = bearer(await token_of(peers.gateway, "boss", tenant="globex"))
    async with httpx.AsyncClient(headers=headers, timeout=60) as http, peers.agent("far", tenant="globex") as client:
        body = {"tenant": "globex", "reason": "looked into"}
        assert (await http.post(f"{peers.url}/v1/freezes", json=body)).status_code in (200, 201)
        with pytest.raises(A2AClientError, match="looked into"):
            await client.send("hello")
        await http.request("DELETE", f"{peers.url}/v1/freezes/globex", json={})
        assert answer_of(await client.send("hello")) == "You said: hello"


async def test_conflict_names_the_peers_message_id(peers: PeerRig) -> None:
    async with peers.agent() as client:
        own = fresh_id()
        await client.send("hello", message_id=own)
        with pytest.raises(A2AClientError, match=own):
            await client.send("something else", message_id=own)
        with pytest.raises(TaskNotFoundError, match=r"main\.a\.b"):
            await client.sdk.get_task(GetTaskRequest(id="main.a.b"))
