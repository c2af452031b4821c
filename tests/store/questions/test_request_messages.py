from functools import partial

import pytest
from question_kit import put, question, take
from sqlalchemy import Connection, insert, update

from signoff.contracts.approval import RequestMessage
from signoff.contracts.errors import NotFound
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_messages import RequestMessages, UnansweredMessage, add_message, read_messages
from signoff.store.store import Store
from signoff.store.tables import REQUEST_MESSAGES

ASKED = RequestMessage(number=0, by="approver", text="Why\x00?", revision=1, subject="ana", name="Ana", channel="api")
SAID = RequestMessage(number=0, by="agent", text="It is due.", revision=1)


async def add(store: Store, message: RequestMessage, approval: str = "main.s.t.c1.1") -> int:
    def work(connection: Connection, rows: ApprovalRows | None) -> int:
        return add_message(connection, approval, message)

    return await Questions(store).run_locked(approval, work)


async def test_messages_are_numbered_and_read_in_order(store: Store) -> None:
    assert [await add(store, ASKED), await add(store, SAID)] == [1, 2]
    await add(store, ASKED, "main.s.t.c1.2")
    found = await RequestMessages(store).read("main.s.t.c1.1")
    assert [(each.number, each.by, each.text, each.name) for each in found] == [
        (1, "approver", "Why\x00?", "Ana"), (2, "agent", "It is due.", ""),
    ]  # fmt: skip
    assert all(each.at is not None for each in found)
    assert await store.read(partial(read_messages, approval="main.s.t.c1.1")) == found


@pytest.mark.parametrize("body", ["", "no JSON", "{}", "[" * 10_000, '{"number": 1, "by": "agent", "text": 7}'])
async def test_forged_message_is_reported_as_an_unknown_request(store: Store, body: str) -> None:
    row = {"approval": "main.s.t.c1.1", "number": 1, "author": "agent", "body": body}
    await store.run(lambda connection: connection.execute(insert(REQUEST_MESSAGES), row).close())
    with pytest.raises(NotFound):
        await RequestMessages(store).read("main.s.t.c1.1")


async def test_only_unanswered_questions_of_waiting_requests_are_listed(store: Store) -> None:
    messages = RequestMessages(store)
    names = [f"main.s.t.c1.{number}" for number in range(1, 6)]
    for name in names:
        await put(store, question(name))
        await add(store, ASKED, name)
    await add(store, SAID, names[1])
    assert await take(store, "ana", approval=names[2])
    await Questions(store).end(names[3], 1, "not_asked")
    old = update(REQUEST_MESSAGES).where(REQUEST_MESSAGES.c.approval == names[4])
    await store.run(lambda connection: connection.execute(old.values(written_at=1)))
    assert await messages.list_unanswered(0, 10) == [UnansweredMessage(names[0], 1)]
    assert await messages.list_unanswered(3_600, 10) == []


async def test_latest_revision_is_named_to_the_turn(store: Store) -> None:
    await put(store)
    await add(store, ASKED)
    await put(store, question(digest="e" * 64))
    assert await RequestMessages(store).list_unanswered(0, 10) == [UnansweredMessage("main.s.t.c1.1", 2)]
