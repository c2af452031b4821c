import asyncio
import contextlib
import json
import time
import uuid
from functools import partial
from typing import Any

from attack_site import AttackSite, Caller, Shown, approval_id, binding, payee, receipt, until
from bounds_kit import bearable
from stranger import Line, dialled, head

from signoff.contracts import limits

JSON = {"content-type": "application/json"}


async def sent(caller: Caller, path: str, body: bytes) -> int:
    return (await caller.http.post(path, content=body, headers=JSON)).status_code


async def test_request_body_over_the_limit_is_refused(site: AttackSite) -> None:
    # `REQUEST_BODY_BYTES`: a turn of that many bytes starts, one more byte is refused. With twice as much accepted in
    # `_body_bytes` of `gateway/app.py` the gateway waited for the longer one and answered 408.
    rui = site.person("rui")
    shell = len(json.dumps({"text": "", "actor": "clerk"}))
    just = json.dumps({"text": "x" * (limits.REQUEST_BODY_BYTES - shell), "actor": "clerk"}).encode()
    assert len(just) == limits.REQUEST_BODY_BYTES
    async with bearable(site):
        assert await sent(rui, "/v1/turns", just) == 201
        # A long body is refused by its head: a sender of all of it may find the connection closed.
        token = {"authorization": f"Bearer {site.tokens['rui']}", "content_length": str(len(just) + 1)}
        async with dialled(site.url) as line:
            await line.send(head(site.url, "POST", "/v1/turns", content_type="application/json", **token))
            assert (await line.answer())[0] == 413


async def test_malformed_large_request_is_refused_quickly(site: AttackSite) -> None:
    # `REQUEST_BODY_BYTES` of unknown names, nesting, digits and half characters: refused quickly. Without the checks
    # of `bounds_problem` on the context in `gateway/turn_starter.py` and `engine/turn_client.py` a turn started with
    # 90 levels (201), and the long list was refused only by its size (413); that in `gateway/turn_starter.py` alone
    # refused both. Without `_with_few_unknown` in `contracts/requests.py` health waited 0.6 s for the unknown names on
    # an idle machine, and 3.6 s on a busy one.
    rui, maxi = site.person("rui"), site.person("max")
    deps = limits.REQUEST_BODY_BYTES - 100
    unknown = b",".join(b'"%05x":0' % number for number in range(deps // 10))
    context = b'{"text":"x","actor":"clerk","context":{"budget":%s}}'
    async with bearable(site):
        assert await sent(rui, "/v1/turns", b"{%s}" % unknown) == 422
        assert await sent(rui, "/v1/turns", b'{"messages":[%s]}' % b",".join([b"{%s}" % unknown[:899]] * 1_000)) == 422
        assert await sent(rui, "/v1/turns", b"[" * deps) in (400, 422)
        assert await sent(rui, "/v1/turns", b'{"messages":[%s]}' % b",".join([b"0"] * (deps // 2 - 10))) == 422
        assert await sent(rui, "/v1/turns", b'{"text":"x","actor":"%s"}' % (b"a" * deps)) == 404
        assert await sent(rui, "/v1/turns", b'{"text":"%s","actor":"clerk"}' % (b"\\ud800" * (deps // 6))) == 422
        assert await sent(maxi, "/v1/turns", context % (b"[%s]" % b",".join([b"0"] * (deps // 2 - 10)))) == 422
        assert await sent(maxi, "/v1/turns", context % (b"[" * 90 + b"]" * 90)) == 422
        assert await sent(maxi, "/v1/turns", context % (b"9" * 4_000)) == 422
        assert await sent(maxi, "/v1/turns", context % b"1e999") == 422
        assert await sent(maxi, "/v1/turns", context % (b'"%s"' % (b"\\u0301\\u0323" * (deps // 12)))) in (201, 422)


async def test_messages_over_the_mailbox_limit_are_refused(site: AttackSite) -> None:
    # `SESSION_MAILBOX`: so many messages wait if they arrive faster than they are answered; the next one is `full`.
    # Without the check of `SESSION_MAILBOX` in `workflows/conversation.py` 138 waited, until their bytes were too
    # many.
    rui, session = site.person("rui"), f"s{uuid.uuid4().hex[:8]}"
    statuses: list[int] = []
    async with bearable(site):
        while 429 not in statuses:
            assert len(statuses) < 4 * limits.SESSION_MAILBOX
            responses = await asyncio.gather(*(rui.say(session, [("look", {"place": "x"})]) for _ in range(10)))
            statuses += [answer.status_code for answer in responses]
            assert {answer.json()["code"] for answer in responses if answer.status_code == 429} <= {"full"}
        waiting = (await rui.http.get(f"/v1/sessions/{session}")).json()["queued"]
        assert len(waiting) <= limits.SESSION_MAILBOX
    assert statuses.count(201) >= limits.SESSION_MAILBOX


async def test_streams_over_the_limit_of_one_person_are_refused(site: AttackSite) -> None:
    # `STREAMS_OF_ONE`: so many are open at once, more are refused; other people follow theirs, and a closed one is
    # free. Without the refusal in `check_streams` the 21st was served.
    rui, token = site.person("rui"), {"authorization": f"Bearer {site.tokens['rui']}"}
    key = await rui.ask([("pay", {"amount": 1, "to": payee()})])
    await rui.waiting(approval_id(key))
    begins = head(site.url, "GET", f"/v1/turns/{'.'.join(key)}/events", **token)

    async def begun(line: Line) -> int:
        await line.send(begins)
        first = await line.reader.readline()
        return int(first.split()[1])

    async with bearable(site), contextlib.AsyncExitStack() as stack:
        # Each connection sends its request at once: the gateway closes an idle connection after some seconds.
        lines: list[Line] = []
        statuses: list[int] = []
        for _ in range(2 * limits.STREAMS_OF_ONE):
            lines.append(await stack.enter_async_context(dialled(site.url)))
            statuses.append(await begun(lines[-1]))
        assert statuses == [200] * limits.STREAMS_OF_ONE + [429] * limits.STREAMS_OF_ONE
        async with site.person("ana").http.stream("GET", f"/v1/turns/{'.'.join(key)}/events") as others:
            assert others.status_code == 200
        lines[0].writer.close()

        async def free() -> bool:
            async with dialled(site.url) as line:
                return await begun(line) == 200

        await until(free)


async def test_decision_over_the_byte_limit_is_refused(site: AttackSite) -> None:
    # `DECISION_BYTES`, with the gateway's own fields: a decision of that size is accepted; a byte more changes
    # nothing. With twice as much accepted in `read_decide` and in `envelope_problem` of `approvals/approval_book.py` a
    # byte more was accepted; with the former alone it was still refused.
    rui, ana = site.person("rui"), site.person("ana")
    approval = approval_id(await rui.ask([("wire", {"amount": 1, "to": payee()})]))
    shown = await ana.waiting(approval)

    def body(size: int) -> bytes:
        fields: dict[str, Any] = {"verdict": "approved", "revision": 1, **binding(shown.view)}
        deps = size - len(json.dumps(fields | {"edited_args": {"amount": 2, "to": ""}}))
        return json.dumps(fields | {"edited_args": {"amount": 2, "to": "x" * deps}}).encode()

    async with bearable(site):
        path = f"/v1/approvals/{approval}/decide"
        assert await sent(ana, path, body(limits.DECISION_BYTES + 1)) == 422
        assert (await ana.see(approval)).view["revision"] == 1
        assert await sent(ana, path, body(limits.DECISION_BYTES - limits.KIB)) in (200, 202)
        await until(lambda: revised(ana, approval, 2))


async def test_batch_over_the_decision_limit_is_refused(site: AttackSite) -> None:
    # `BATCH_DECISIONS`: one request answers so many; with one more it is refused and none of them counts. Without the
    # `max_length` in `contracts/requests.py` all were answered.
    rui, ana, to = site.person("rui"), site.person("ana"), payee()
    half = limits.BATCH_DECISIONS // 2
    calls = [(tool, {"amount": n, "to": to}) for n in range(1, half // 2 + 1) for tool in ("pay", "petty")]
    keys = [await rui.ask(calls) for _ in range(2)]
    names = [approval_id(key, f"c1.{at}") for key in keys for at in range(1, half + 1)]
    asked = [*await asyncio.gather(*map(ana.waiting, names))]
    decisions = [answer(shown) for shown in asked]
    async with bearable(site):
        more = await ana.http.post("/v1/approvals/decide", json={"decisions": [*decisions, decisions[0]]})
        assert (more.status_code, (await ana.see(asked[0].view["id"])).view["state"]) == (422, "pending")
        found = await ana.http.post("/v1/approvals/decide", json={"decisions": decisions})
        assert {each["status"] for each in found.json()["receipts"]} <= {"accepted", "pending"}
        for key in keys:
            await rui.result(key)
    assert site.ledger(to) == []


async def test_edit_over_the_revision_limit_is_refused(site: AttackSite) -> None:
    # `MAX_REVISIONS`: two approvers edit in turn; the last edit is refused, and they may still answer. Without the
    # check of `MAX_REVISIONS` in `_edit` of `workflows/approval_flow.py` it was asked as revision 21.
    rui, editors, to = site.person("rui"), (site.person("ana"), site.person("bo")), payee()
    approval = approval_id(await rui.ask([("wire", {"amount": 1, "to": to})]))
    await editors[0].waiting(approval)
    async with bearable(site):
        for revision in range(1, limits.MAX_REVISIONS + 1):
            editor = editors[revision % 2]
            shown = await until(partial(revised, editor, approval, revision))
            changed = await editor.decide(shown, edited_args={"amount": revision + 1, "to": to})
            if revision < limits.MAX_REVISIONS:
                assert changed.status_code in (200, 202), changed.text
        await until(lambda: revised(editors[0], approval, limits.MAX_REVISIONS))
        view = (await editors[0].see(approval)).view
    assert (view["revision"], view["state"]) == (limits.MAX_REVISIONS, "pending")
    assert receipt(await editors[0].decide(await editors[0].see(approval), "denied"))["status"] in (
        "accepted",
        "pending",
    )


async def test_answers_over_the_limit_of_one_person_are_refused(site: AttackSite) -> None:
    # `ANSWERS_OF_ONE`: so many edits that the gates refuse are stored; then the person may still deny. Without
    # `_too_many` in `decisions/answer_taker.py` all 30 were stored and given to the turn, 60 KB each.
    rui, ana, to = site.person("rui"), site.person("ana"), payee()
    key = await rui.ask([("wire", {"amount": 1, "to": to})])
    shown = await ana.waiting(approval_id(key))
    deps = "x" * (limits.DECISION_BYTES - 4 * limits.KIB)
    statuses: list[int] = []
    async with bearable(site):
        for number in range(limits.ANSWERS_OF_ONE + 10):
            # Not a number: the gates refuse it, and it makes no revision.
            response = await ana.decide(shown, edited_args={"amount": f"{number}", "to": deps})
            statuses.append(response.status_code)
    assert 403 not in statuses[: limits.ANSWERS_OF_ONE]
    assert statuses[limits.ANSWERS_OF_ONE :] == [403] * 10
    assert receipt(await ana.decide(shown, "denied", reason="no"))["state"] == "denied"
    assert (await rui.result(key))["calls"][0]["code"] == "denied"


async def test_refused_attempts_over_the_limit_are_not_recorded(site: AttackSite) -> None:
    # `ATTEMPTS_A_MINUTE`: refused attempts of maximum size, ten times as many as are recorded. Without the early
    # return in `AttemptRecords.note` all 100 were recorded.
    rui, zoe = site.person("rui"), site.person("zoe")
    key = await rui.ask([("pay", {"amount": 1, "to": payee()})])
    shown = await rui.waiting(approval_id(key))
    padding: dict[str, Any] = {"edited_args": {"amount": 1, "to": "x" * (limits.DECISION_BYTES - 1_000)}}
    begun = time.monotonic()
    async with bearable(site):
        for _ in range(limits.ATTEMPTS_A_MINUTE):
            answers = await asyncio.gather(*(zoe.decide(shown, **padding) for _ in range(10)))
            assert {each.status_code for each in answers} <= {403, 404}
    minutes = 2 + int(time.monotonic() - begun) // 60
    written = [each for each in await site.person("aud").record(key) if each["kind"] == "attempt"]
    assert 0 < len(written) <= minutes * limits.ATTEMPTS_A_MINUTE


def answer(shown: Shown) -> dict[str, Any]:
    return {"approval_id": shown.view["id"], "revision": 1, "verdict": "denied", **binding(shown.view)}


async def revised(caller: Caller, approval: str, revision: int) -> Shown | None:
    shown = await caller.see(approval)
    return shown if shown.view.get("revision") == revision and shown.view.get("state") == "pending" else None
