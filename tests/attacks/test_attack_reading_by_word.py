import uuid
from typing import Any

from attack_site import AttackSite, approval_id, payee
from impostor import Impostor
from turn_fixtures import query_workflow

from signoff.contracts import names
from signoff.contracts.activity_messages import GateReply, GateTask
from signoff.contracts.content import Content
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.message import CallPart
from signoff.contracts.session_messages import SessionView
from signoff.contracts.turn import CallView, TurnView
from signoff.formats.replace import replace
from signoff.testing import a_request


def plain(view: TurnView | SessionView) -> dict[str, Any]:
    return view.model_dump(mode="json")


async def payment_turn(site: AttackSite, person: str, to: str) -> TurnKey:
    answer = await site.person(person).say(f"s{uuid.uuid4().hex[:10]}", [("pay", {"amount": 9, "to": to})])
    assert answer.status_code in (200, 201, 202), answer.text
    key = TurnKey("main", answer.json()["session"], answer.json()["turn"])
    await site.person("ana").waiting(approval_id(key))
    return key


async def read_by(site: AttackSite, person: str, key: TurnKey) -> list[int]:
    api, page = site.person(person).http, (await site.browser(person)).http
    turn, approval = ".".join(key), approval_id(key)
    paths = (
        f"/v1/turns/{turn}",
        f"/v1/turns/{turn}/calls/c1.1/rest",
        f"/v1/approvals/{approval}",
        f"/v1/approvals/{approval}/values",
    )
    pages = (f"/turns/{turn}", f"/approvals/{approval}", f"/approvals/{approval}/values")
    over_api = [(await api.get(path)).status_code for path in paths]
    return over_api + [(await page.get(path)).status_code for path in pages]


async def test_forged_requester_gives_a_stranger_no_access_to_a_turn(site: AttackSite, impostor: Impostor) -> None:
    # The impostor claims Zoe as requester: she reads nothing, while it runs or after its end, and Rui still does.
    # Without the comparison with the gateway's signature Zoe read Rui's request with all its arguments and votes.
    to, rui, ana = payee(), site.person("rui"), site.person("ana")
    waits = await rui.ask([("pay", {"amount": 9, "to": to})])
    await ana.waiting(approval_id(waits))
    over = await rui.ask([("pay", {"amount": 8, "to": to})])
    await ana.approve(approval_id(over), reason="because of the merger")
    await rui.result(over)
    for key in (waits, over):
        view = await impostor.view(key)
        zoes = replace(view.requester, user="zoe")
        forged = replace(view, requester=zoes, calls=view.calls if key is waits else ())
        await impostor.stop(key)
        await impostor.stand(key, **{names.STATE: plain(forged)}, memo={names.MEMO_REQUESTER: "zoe"})
        assert await read_by(site, "zoe", key) == [404] * 7
        stopped = await site.person("zoe").http.post(f"/v1/turns/{'.'.join(key)}/cancel", json={})
        assert stopped.status_code == 404
        assert (await rui.turn(key))["requester"]["user"] == "rui"
        assert (await rui.see(approval_id(key))).view["args"]["inline"]["to"] == to


async def test_turn_cannot_show_the_request_of_another_turn(site: AttackSite, impostor: Impostor) -> None:
    # Zoe's own turn names Rui's approval and answers as Rui's turn: neither its view nor its events contain his
    # request. Before the fix they contained it with effect, code and approvers, proved by the store.
    to, rui, zoe = payee(), site.person("rui"), site.person("zoe")
    key = await rui.ask([("pay", {"amount": 777, "to": to})])
    await site.person("ana").waiting(approval_id(key))
    hers = await impostor.view(key)
    own = await zoe.ask([("look", {"place": "x"})])
    await zoe.result(own)
    view = await impostor.view(own)
    [call] = view.calls
    forged = await impostor.stand(own, **{names.STATE: plain(view)})
    claims = replace(view, calls=(replace(call, approval=hers.calls[0].approval),))
    for lie, status in (
        (claims, 200),
        (replace(view, calls=hers.calls), 200),
        (hers, 503),
        (replace(hers, requester=view.requester), 503),
    ):
        blank = plain(lie)
        for each in blank["calls"]:
            each["approval"] |= {"card": {"effect": ""}, "args": {"inline": {}}, "approvers": []}
        await forged.forge(**{names.STATE: blank})
        answer = await zoe.http.get(f"/v1/turns/{'.'.join(own)}")
        assert (answer.status_code, to in answer.text) == (status, False)
        assert approval_id(key) not in answer.text
        async with zoe.http.stream("GET", f"/v1/turns/{'.'.join(own)}/events") as events:
            lines = events.aiter_lines()
            first = [line async for line in lines if line.startswith(("data", "{"))][:1] if events.is_error else []
            if not events.is_error:
                first = [line async for line in _until_data(lines)]
            assert to not in "".join(first)


async def _until_data(lines: Any) -> Any:
    async for line in lines:
        if line.startswith("data"):
            yield line
            return


async def test_forged_owner_gives_a_stranger_no_access_to_a_session(site: AttackSite, impostor: Impostor) -> None:
    # Only the session's workflow is replaced and claims Zoe as owner: she reads neither it nor its honest turn. Before
    # the fix Zoe read Rui's running turn and its request.
    to, zoe = payee(), site.person("zoe")
    key = await payment_turn(site, "rui", to)
    hers = await payment_turn(site, "zoe", payee())
    handle = impostor.client.get_workflow_handle(SessionKey("main", hers.session).workflow_id)
    view = await query_workflow(handle, names.STATE, result_type=SessionView)
    session = SessionKey("main", key.session)
    await impostor.client.get_workflow_handle(session.workflow_id).terminate()
    for lie in (view, replace(view, session=key.session, owner="zoe")):
        forged = await impostor.client.start_workflow(
            names.ACTOR_TURN, {names.STATE: plain(lie)}, id=session.workflow_id, task_queue=impostor.queue
        )
        assert await read_by(site, "zoe", key) == [404] * 7
        assert (await zoe.http.get(f"/v1/sessions/{'.'.join(session)}")).status_code == 404
        await forged.terminate()


async def test_forged_memo_adds_no_session_to_a_list(site: AttackSite, impostor: Impostor) -> None:
    # A session started under the id of Rui's, with Zoe in its memo, is in no list of hers. Before the fix her list had
    # the code and the approvers of Rui's request.
    to, zoe = payee(), site.person("zoe")
    key, hers = await payment_turn(site, "rui", to), await payment_turn(site, "zoe", payee())
    session = SessionKey("main", key.session)
    described = await impostor.client.get_workflow_handle(session.workflow_id).describe()
    await impostor.client.get_workflow_handle(session.workflow_id).terminate()
    await impostor.client.start_workflow(
        names.SESSION,
        "x",
        id=session.workflow_id,
        task_queue=impostor.queue,
        memo={names.MEMO_REQUESTER: "zoe", names.MEMO_TITLE: "t"},
        search_attributes=described.typed_search_attributes,
    )

    async def listed(person: str) -> dict[str, Any]:
        answer = await site.person(person).http.get("/v1/sessions", params={"limit": 500})
        return {row["session"]: row for row in answer.json()["sessions"]}

    while not {key.session, hers.session} <= set(await listed("aud")):
        pass
    assert key.session not in await listed(zoe.name)
    assert hers.session in await listed(zoe.name)
    assert (await listed("aud"))[key.session]["requester"] != "zoe"


async def test_approver_of_one_turn_reads_only_that_turn(site: AttackSite, impostor: Impostor) -> None:
    # A question that the impostor forces under an ended turn opens only that turn to Ana. Before the fix she read
    # Rui's whole session.
    to, rui, ana = payee(), site.person("rui"), site.person("ana")
    turns = []
    name = f"s{uuid.uuid4().hex[:10]}"
    for _ in range(2):
        answer = (await rui.say(name, [("look", {"place": to})])).json()
        turns.append(TurnKey("main", answer["session"], answer["turn"]))
        await rui.result(turns[-1])
    ctx, view = await impostor.ctx(turns[0]), await impostor.view(turns[0])
    forged = await impostor.stand(turns[0], **{names.STATE: plain(view)})
    asked = GateTask(ctx=ctx, calls=(CallPart(call="c9.1", tool="pay", args=Content(inline={"amount": 1, "to": to})),))
    gate_decision = GateReply.model_validate(await forged.schedule(names.GATE, "g1", asked)).gate_decisions[0]
    assert gate_decision.kind == "ask"
    assert gate_decision.question is not None
    own = a_request(id=approval_id(turns[0], "c9.1"), call="c9.1", session=turns[0].session, turn=turns[0].turn)
    waits = CallView(call="c9.1", tool="pay", state="waiting", approval=own)
    await forged.forge(**{names.STATE: plain(replace(view, calls=(*view.calls, waits)))})
    assert (await ana.see(approval_id(turns[0], "c9.1"))).status == 200
    second, session = ".".join(turns[1]), ".".join(turns[1][:2])
    assert (await ana.http.get(f"/v1/turns/{second}")).status_code == 404
    assert (await ana.http.get(f"/v1/sessions/{session}")).status_code == 404
    assert (await rui.turn(turns[1]))["state"] == "complete"
