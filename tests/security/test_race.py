import asyncio
import contextlib
import dataclasses
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import PEOPLE, SIGNER, GatewayRig, gateway_rig, turn_of
from temporalio.client import Client
from temporalio.service import RPCError
from turn_fixtures import yes

from signoff.audit.checkpoints import Checkpoints
from signoff.audit.log import AuditLog
from signoff.audit.verifier import verify
from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision, Verdict
from signoff.contracts.ids import TurnKey
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.audit_writer import AttemptRecords
from signoff.people.directory import FixedDirectory
from signoff.store.store import open_store
from signoff.testing.builders import a_person

CROWD = tuple(a_person(f"p{number}", name=f"P{number}") for number in range(50))
EVERYBODY = (*PEOPLE, *CROWD)


@pytest.fixture
async def rig(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayRig]:
    folder = tmp_path_factory.mktemp("race")
    people, queue = FixedDirectory(EVERYBODY), f"race-{uuid.uuid4().hex[:12]}"
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        gateway_rig(client, store, queue, profile="production", people=people) as found,
    ):
        yield locked_rig(found, people=EVERYBODY)


class Race:
    def __init__(self, rig: GatewayRig, request: ApprovalRequest, tokens: dict[str, str]) -> None:
        self._rig = rig
        self._request = request
        self._tokens = tokens
        self.late: set[str] = set()
        """People who had to ask again."""
        key = turn_of(request.id)
        self.turn = key
        self._handle = rig.turns.client.get_workflow_handle(key.workflow_id)

    async def run(self, number: int) -> tuple[str, Receipt]:
        door = (self.by_client, self.by_http, self.by_signal)[number % 3]
        receipt = await door(f"p{number}", "denied" if number % 9 == 0 else "approved")
        unnamed = receipt.code == "already_decided" and not receipt.decided_by
        if receipt.status == "pending" or receipt.code == "unavailable" or unnamed:
            # The reply of a busy machine: ask again.
            self.late.add(f"p{number}")
            receipt = await self.asked_later()
        return door.__name__, receipt

    async def by_client(self, person: str, verdict: Verdict) -> Receipt:
        found = self._rig.deps.people.find(person, "main")
        assert found is not None
        other = dataclasses.replace(self._rig.deps, attempts=AttemptRecords())
        shown = self._request.question_hash
        body = {"approval_id": self._request.id, "verdict": verdict, "revision": 1, "question_hash": shown}
        return await DecisionService(other).decide(
            DecisionDraft.model_validate(body), DecisionAuthor(found, "inbox", "session")
        )

    async def by_http(self, person: str, verdict: str) -> Receipt:
        url, headers = f"/v1/approvals/{self._request.id}/decide", bearer(self._tokens[person])
        answer = await self._rig.http.post(
            url, json={"verdict": verdict, "question_hash": self._request.question_hash}, headers=headers
        )
        receipt = Receipt.model_validate(answer.json())
        assert (answer.status_code < 300) == (receipt.status != "refused"), answer.text
        return receipt

    async def by_signal(self, person: str, verdict: str) -> Receipt:
        """A raw Signal bypasses the gateway and wins nothing. Return the receipt that the turn then has."""
        with contextlib.suppress(RPCError):
            body = self._signed(person, verdict).model_dump(mode="json", exclude_none=True)
            await self._handle.signal(names.APPROVAL_RESPONSE, body)
        return await self.asked_later()

    async def asked_later(self) -> Receipt:
        await self._rig.turns.signoff.result(self.turn)
        while True:
            # A busy machine may not answer fifty queries in time; a repeated query returns the same.
            with contextlib.suppress(RPCError):
                receipt: Receipt = await self._handle.query(names.RECEIPT, self._request.id, result_type=Receipt)
                return receipt

    def _signed(self, person: str, verdict: Any) -> Decision:
        received = {"received_at": datetime.now(UTC), "question_hash": self._request.question_hash}
        return SIGNER.sign_decision(yes(self.turn, subject=person, verdict=verdict, **received))


async def begun(rig: GatewayRig) -> Race:
    headers = bearer(await token_of(rig, "guest"))
    answer = await rig.http.post("/v1/turns", json={"text": "pay", "actor": "desk"}, headers=headers)
    started = answer.json()
    view = await rig.turns.waiting(TurnKey(started["tenant"], started["session"], started["turn"]))
    tokens = {f"p{number}": await token_of(rig, f"p{number}") for number in range(1, 50, 3)}
    request = view.calls[0].approval
    assert request is not None
    return Race(rig, request, tokens)


@pytest.mark.row("E58")
async def test_race_of_fifty_over_every_path_has_one_winner_named_in_every_receipt(rig: GatewayRig) -> None:
    race = await begun(rig)
    answers = await asyncio.gather(*(race.run(number) for number in range(50)))
    result = await rig.turns.signoff.result(race.turn)
    records = await AuditLog(rig.deps.store).stream(race.turn.workflow_id)
    (ending,) = [record for record in records if record.kind == "ending"]
    # Only the turn reports its end.
    winner = ending.facts["claimed_subject"]
    assert winner in {person.id for person in CROWD}
    assert Counter(receipt.decided_by for _, receipt in answers) == {winner: 50}

    # One was first, and not by a raw Signal; a winner who had to ask again has the receipt of all the others.
    assert int(winner.removeprefix("p")) % 3 != 2
    asked = winner in race.late
    assert Counter(receipt.status for _, receipt in answers) == (
        {"refused": 50} if asked else {"accepted": 1, "refused": 49}
    )
    assert {receipt.code for _, receipt in answers if receipt.status == "refused"} == {"already_decided"}
    assert {door for door, _ in answers} == {"by_client", "by_http", "by_signal"}

    approved = ending.facts["state"] == "approved"
    assert [outcome.code for outcome in result.calls] == ["ok" if approved else "denied"]
    assert len(rig.ledger.rows) == approved
    attempts = Counter(record.facts["status"] for record in records if record.kind == "attempt")
    assert attempts["accepted"] == 1
    points = Checkpoints(rig.deps.store)
    report = await verify(
        AuditLog(rig.deps.store).records(), points.all(), SIGNER.verifier(), heads=await points.heads()
    )
    assert report.finding is None
    await rig.turns.replays(race.turn)
