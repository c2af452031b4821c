import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gateway_rig import PEOPLE, GatewayRig, gateway_rig, turn_of
from some import some
from sqlalchemy import Connection, update
from tables import table
from temporalio.client import Client

from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.formats.replace import replace
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.store.questions.approval_rows import read_rows
from signoff.store.request_reader import LoadedRequest, ProvedQuestion, RequestReader
from signoff.store.store import open_store
from signoff.store.tables import QUESTIONS, millis_from_time

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("first", ["approved", "denied"])
async def test_changed_verdict_with_the_same_key_counts(gateway: GatewayRig, first: str) -> None:
    """Without `_with_own_delivery` the denial counted as a duplicate, and the approval stayed."""
    approval = await gateway.asked("both")
    other = "denied" if first == "approved" else "approved"
    key = {"Idempotency-Key": "one-page"}

    async def decide(verdict: str) -> Any:
        url = f"/v1/approvals/{approval}/decide?as=ana"
        return (await gateway.http.post(url, json={"verdict": verdict}, headers=key)).json()

    assert (await decide(first))["status"] in ("counted", "accepted")
    repeated = await decide(first)
    assert repeated["code"] == "duplicate"
    await decide(other)
    assert (await gateway.request(approval)).state == "denied"


@pytest.fixture
async def slow_gateway(client: Client, tmp_path: Path, task_queue: str) -> AsyncIterator[GatewayRig]:
    def slow() -> datetime:
        return datetime.now(UTC) - 2 * HOUR

    async with (
        open_store(f"sqlite:///{tmp_path}/signoff.db") as store,
        gateway_rig(client, store, task_queue, clock=slow) as rig,
    ):
        yield rig


async def ask_earlier(rig: GatewayRig, text: str, earlier: timedelta) -> str:
    """The turn does not know the earlier time."""
    approval = await rig.asked(text)

    def move(connection: Connection) -> None:
        rows = read_rows(connection, approval)
        assert rows is not None
        asked = rows.latest
        assert asked.opened_at is not None
        assert asked.judged_at is not None
        moved = {"opened_at": asked.opened_at - earlier, "judged_at": asked.judged_at - earlier}
        body = replace(asked, **moved).model_dump_json(exclude={"ended_at", "ended_as"})
        where = update(QUESTIONS).where(QUESTIONS.c.approval == approval)
        connection.execute(where.values(body=body, opened_at=millis_from_time(moved["opened_at"])))

    await rig.deps.store.run(move)
    return approval


async def test_late_answer_is_refused_by_a_gateway_whose_clock_is_behind(slow_gateway: GatewayRig) -> None:
    approval = await ask_earlier(slow_gateway, "pay", 25 * HOUR)
    receipt = (await slow_gateway.decide(approval, verdict="approved", revision=1)).json()
    assert (receipt["status"], receipt["code"]) == ("refused", "expired")
    assert (await slow_gateway.request(approval)).state == "timed_out"


async def test_timely_answer_counts_despite_a_long_queue(slow_gateway: GatewayRig) -> None:
    approval = await ask_earlier(slow_gateway, "pay", 25 * HOUR)
    request = await slow_gateway.request(approval)
    draft = DecisionDraft(approval_id=approval, verdict="approved", revision=1, question_hash=request.question_hash)
    arrived = datetime.now(UTC) - 2 * HOUR
    receipt = await DecisionService(slow_gateway.deps).decide(
        draft, DecisionAuthor(PEOPLE[2], "slack", "session", arrived)
    )
    assert receipt.status == "accepted"
    assert [each.code for each in (await slow_gateway.turns.signoff.result(turn_of(approval))).calls] == ["ok"]


class Counting(RequestReader):
    drawn = 0

    async def draw(self, found: ProvedQuestion) -> LoadedRequest:
        self.drawn += 1
        return await super().draw(found)


@table(
    ("person", "change", "status", "drawn"),
    ("guest", {"verdict": "approved"}, "refused", 0),
    ("ana", {"verdict": "approved", "question_hash": "0" * 64}, "refused", 0),
    ("ana", {"verdict": "denied"}, "accepted", 0),
    ("ana", {"verdict": "approved"}, "counted", 1),
)
async def test_card_is_drawn_only_for_an_answer_that_needs_its_values(
    gateway: GatewayRig, person: str, change: dict[str, Any], status: str, drawn: int
) -> None:
    approval = await gateway.asked("both")
    deps = dataclasses.replace(gateway.deps)
    reader = Counting(deps.store, deps.verifier, development=True)
    vars(deps)["requests"] = reader
    shown = (await reader.find(approval)).request.question_hash
    draft = DecisionDraft.model_validate({"approval_id": approval, "revision": 1, "question_hash": shown} | change)
    author = DecisionAuthor(some(deps.people.find(person, "main")), "inbox", "session")
    receipt = await DecisionService(deps).decide(draft, author)
    assert (receipt.status, reader.drawn) == (status, drawn)
