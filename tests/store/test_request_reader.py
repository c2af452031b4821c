import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from signed_askers import signed_asker
from sqlalchemy import Connection, insert, select, update
from turn_fixtures import GUEST, Ledger, catalog_of, pay_tool

from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.binding import digest_with
from signoff.approvals.digest import question_hash
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallContext
from signoff.contracts.errors import NotFound
from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import INLINE_BYTES
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, Verifier, new_key
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.store.questions.questions import Questions
from signoff.store.refusal_counts import refusals_since
from signoff.store.request_reader import RequestReader
from signoff.store.store import Store
from signoff.store.tables import BLOBS, QUESTIONS
from signoff.testing.questions import ask

NOW = datetime.now(UTC)
SIGNER = Signer(PrivateKeys(keys=(new_key(NOW),)))
TURN = TurnKey("main", "s", "t")
ARGS = {"amount": 20, "to": "Ana"}
ASKER = signed_asker(SIGNER, GUEST, *TURN, at=NOW)


async def put(store: Store, args: Any = None, **more: Any) -> ApprovalRequest:
    tool = pay_tool(Ledger(), ApprovalPolicy(edit="approve"), title="Payment")
    deps = WorkerDeps(
        catalog=catalog_of([tool]), store=store, people=catalog_of([tool]).people, drivers={}, mark_key=KEY
    )
    ctx = CallContext(actor="desk", session="s", turn="t", tenant="main", user=more.pop("user", ASKER))
    return await ask(deps, ctx, tool, ARGS if args is None else args, **more)


KEY = b"k" * 32


def reader(store: Store, *, development: bool = False, verifier: Verifier | None = None) -> RequestReader:
    return RequestReader(store, lambda: verifier or SIGNER.verifier(), development=development)


async def unproved(store: Store) -> int:
    await store._refusals.flush()
    return (await refusals_since(store.run, timedelta(days=1))).get("unproved", 0)


async def refuses(store: Store, approval: str = "main.s.t.c1.1", **fields: Any) -> bool:
    """Return whether the request is hidden, unlisted and counted, with the "not found" message."""
    before = await unproved(store)
    with pytest.raises(NotFound, match=f"there is no request `{approval}`"):
        await reader(store, **fields).load(approval)
    assert await unproved(store) == before + 1
    return not await reader(store, **fields).list_waiting("main")


async def change(store: Store, **fields: Any) -> None:
    def write(connection: Connection) -> None:
        body = json.loads(connection.execute(select(QUESTIONS.c.body)).scalar_one())
        connection.execute(update(QUESTIONS).values(body=json.dumps(body | fields)))

    await store.run(write)


async def test_question_with_a_forged_instant_is_not_shown(store: Store) -> None:
    asked = await put(store)
    await change(store, judged_at=(datetime.now(UTC) - timedelta(seconds=70)).isoformat())
    with pytest.raises(NotFound):
        await reader(store).load(asked.id)
    assert await reader(store).list_waiting("main") == []


async def test_request_is_rendered_from_its_row_alone(store: Store) -> None:
    asked = await put(store)
    found = await reader(store).load(asked.id)
    assert (found.request.card.effect, found.request.card.tool_title) == ("Pay 20 to Ana", "Payment")
    assert found.request.card.rows == asked.card.rows
    assert found.request.question_hash == asked.question_hash == question_hash(asked)
    assert (found.args, found.declaration["name"]) == (ARGS, "pay")
    assert (found.request.requester, found.request.expires_at) == (ASKER, asked.expires_at)
    [listed] = await reader(store).list_waiting("main")
    assert (listed.id, listed.effect, listed.code) == (asked.id, "Pay 20 to Ana", asked.code)
    assert await reader(store).find_by_code("main", asked.code) == asked.id


async def test_unknown_request_is_not_found_and_not_counted(store: Store) -> None:
    await put(store)
    for name, revision in (("main.s.t.c9.9", None), ("main.s.t.c1.1", 2)):
        with pytest.raises(NotFound):
            await reader(store).load(name, revision)
    assert await unproved(store) == 0


async def test_settled_request_shows_its_state(store: Store) -> None:
    asked = await put(store)
    await Questions(store).end(asked.id, 1, "cancelled")
    assert (await reader(store).load(asked.id)).request.state == "cancelled"
    assert await reader(store).list_waiting("main") == []


@pytest.mark.parametrize(
    "fields",
    [
        {"args": {"inline": {"amount": 9400, "to": "Ana"}}},
        {"args": {"inline": {"amount": 2**60}}},
        {"digest": "0" * 64},
        {"tool": "refund"},
        {"call": "c1.2"},
        {"turn": "another"},
        {"tenant": "other"},
        {"doubt_of": 1},
        {"definition": "0" * 64},
        {"definition": "\0"},
        {"args": {"blob": {"sha256": "\0", "size": 1}}},
        {"args": {"inline": [1]}},
    ],
)
async def test_row_that_does_not_match_its_call_is_not_shown(store: Store, fields: dict[str, Any]) -> None:
    await put(store)
    await change(store, **fields)
    assert await refuses(store)


@pytest.mark.parametrize("what", ["arguments", "declaration"])
async def test_request_with_an_altered_blob_is_not_shown(store: Store, what: str) -> None:
    asked = await put(store, {"amount": 1, "to": "x" * INLINE_BYTES})
    assert asked.args.blob is not None
    sha256 = asked.args.blob.sha256 if what == "arguments" else asked.definition
    body = b'{"amount":1,"to":"Eve"}' if what == "arguments" else b'{"name":"pay","effect":"Nothing"}'
    await store.run(
        lambda connection: connection.execute(update(BLOBS).where(BLOBS.c.sha256 == sha256).values(body=body)).close()
    )
    assert await refuses(store)


async def test_request_with_the_declaration_of_another_tool_is_not_shown(store: Store) -> None:
    await put(store)
    other = pay_tool(Ledger(), name="look")
    row = {"sha256": other.definition, "size": 9, "body": json.dumps(other.declaration).encode()}
    await store.run(lambda connection: connection.execute(insert(BLOBS).values(**row)).close())
    await change(store, definition=other.definition)
    assert await refuses(store)


@pytest.mark.parametrize(
    "body",
    [b"x", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"name":"pay"}', b'{"name":"pay","title":[],"secrets":1}'],
    ids=["no json", "list", "null", "no text", "deep", "incomplete", "wrong types"],
)
async def test_request_with_a_malformed_declaration_is_not_shown(store: Store, body: bytes) -> None:
    await put(store)
    sha256 = hashlib.sha256(body).hexdigest()
    row = {"sha256": sha256, "size": len(body), "body": body}
    await store.run(lambda connection: connection.execute(insert(BLOBS).values(**row)).close())
    await change(store, definition=sha256)
    assert await refuses(store)


async def test_request_with_an_incomplete_declaration_does_not_stop_the_list(store: Store) -> None:
    asked = await put(store)
    body = b'{"name":"pay"}'
    forged = replace(asked, definition=hashlib.sha256(body).hexdigest())
    row = {"sha256": forged.definition, "size": len(body), "body": body}
    await store.run(lambda connection: connection.execute(insert(BLOBS).values(**row)).close())
    await change(store, definition=forged.definition, digest=digest_with(forged)(ARGS))
    sound = await put(store, call="c2.1")
    assert [each.id for each in await reader(store).list_waiting("main")] == [sound.id]


async def test_request_in_the_row_of_another_is_not_shown(store: Store) -> None:
    await put(store)
    await store.run(lambda connection: connection.execute(update(QUESTIONS).values(approval="main.s.t.c9.9")).close())
    with pytest.raises(NotFound):
        await reader(store).load("main.s.t.c9.9")
    assert await unproved(store) == 1


async def test_request_in_an_unreadable_row_is_not_shown(store: Store) -> None:
    await put(store)
    await change(store, revision="many")
    assert await refuses(store)
    assert await Questions(store).list_unanswered(0.0, 9, None) == ([], None)


@pytest.mark.parametrize("change_of", [{"user": "ana"}, {"tier": "trusted"}, {"signature": ""}, {"nonce": "other"}])
async def test_request_of_a_forged_requester_is_not_shown(store: Store, change_of: dict[str, Any]) -> None:
    asked = await put(store, user=replace(ASKER, **change_of))
    assert await refuses(store)
    assert await refuses(store, development=True)
    assert await refuses(store, approval=asked.id, verifier=Verifier())


async def test_unsigned_request_is_shown_only_in_development(store: Store) -> None:
    await put(store, user=GUEST)
    assert await refuses(store)
    assert (await reader(store, development=True).load("main.s.t.c1.1")).request.requester == GUEST


async def test_request_list_reads_each_declaration_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for call in ("c1.1", "c1.2", "c1.3"):
        await put(store, call=call)
    read, real = list[str](), store.get_blob

    async def counted(sha256: str) -> bytes | None:
        read.append(sha256)
        return await real(sha256)

    monkeypatch.setattr(store, "get_blob", counted)
    listed = await reader(store).list_waiting("main")
    assert [each.effect for each in listed] == ["Pay 20 to Ana"] * 3
    assert len(read) == 1

    def rename(connection: Connection) -> None:
        body = json.loads(connection.execute(select(QUESTIONS.c.body).where(QUESTIONS.c.approval == last)).scalar_one())
        renamed = json.dumps(body | {"tool": "other"})
        connection.execute(update(QUESTIONS).where(QUESTIONS.c.approval == last).values(body=renamed))

    last = listed[-1].id
    await store.run(rename)
    assert [each.id for each in await reader(store).list_waiting("main")] == [each.id for each in listed[:-1]]
