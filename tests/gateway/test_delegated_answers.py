import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_login import words
from gateway_rig import http_of, react, rig_catalog
from temporalio.client import Client
from turn_fixtures import Ledger, RunningTurns, running_turns, yes

from signoff.contracts.ids import TurnKey
from signoff.gateway.app import build_app
from signoff.gateway.deps import GatewayDeps
from signoff.people.directory import DevelopmentDirectory
from signoff.people.people_file import FileDirectory
from signoff.settings import Settings
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel

PLAIN = "- {id: ana, name: Ana, roles: [finance]}\n- {id: cy, roles: [finance]}\n- {id: bo, name: Bo}\n"
STANDS_IN = PLAIN.replace("[finance]}", "[finance], delegations: [{to: bo, until: '2100-01-01T00:00Z'}]}", 1)


@dataclass
class DelegationRig:
    turns: RunningTurns
    http: httpx2.AsyncClient
    file: Path
    ledger: Ledger

    def people(self, text: str) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.file)

    async def asked(self, text: str = "both", **fields: Any) -> tuple[TurnKey, str]:
        answer = await self.http.post("/v1/turns", json={"text": text, "actor": "desk", **fields})
        body = answer.json()
        key = TurnKey(body["tenant"], body["session"], body["turn"])
        request = (await self.turns.waiting(key)).calls[0].approval
        assert request is not None
        return key, request.id

    async def decide(self, approval: str, person: str) -> dict[str, Any]:
        answer = await self.http.post(
            f"/v1/approvals/{approval}/decide?as={person}", json={"verdict": "approved", "revision": 1}
        )
        receipt: dict[str, Any] = answer.json()
        return receipt

    async def listed(self, person: str) -> set[str]:
        answer = await self.http.get("/v1/approvals", params={"as": person})
        return {card["id"] for card in answer.json()["approvals"]}


@pytest.fixture
async def rig(client: Client, store: Store, task_queue: str, tmp_path: Path) -> AsyncIterator[DelegationRig]:
    """The directories check the file at each lookup."""
    file, ledger = tmp_path / "people.yaml", Ledger()
    file.write_text(PLAIN)
    catalog = rig_catalog(ledger)

    def people() -> DevelopmentDirectory:
        seconds = itertools.count()
        return DevelopmentDirectory(FileDirectory(file, clock=lambda: float(next(seconds))))

    async with contextlib.AsyncExitStack() as stack:
        running = running_turns(client, store, task_queue, catalog, ScriptedModel(react), people=people())
        worker = await stack.enter_async_context(running)
        deps = GatewayDeps(client=worker.signoff, catalog=catalog, people=people(), store=store, settings=Settings())
        http = await stack.enter_async_context(http_of(build_app(deps)))
        yield DelegationRig(worker, http, file, ledger)


async def test_delegation_written_at_run_time_lets_the_delegate_answer(rig: DelegationRig) -> None:
    key, approval = await rig.asked()
    assert (await rig.decide(approval, "bo"))["code"] == "not_allowed"
    assert approval not in await rig.listed("bo")
    rig.people(STANDS_IN)
    assert approval in await rig.listed("bo")
    page = await rig.http.get(f"/approvals/{approval}", headers={"cookie": "signoff_person=bo"})
    assert "Approve" in page.text
    assert "You answer on behalf of Ana." in page.text
    assert "Approvers: Ana, cy, Bo on behalf of Ana (finance)" in words(page.text)
    first = await rig.decide(approval, "bo")
    assert (first["status"], first["votes"], first["needed"]) == ("counted", 1, 2)
    same_seat = await rig.decide(approval, "ana")
    assert (same_seat["status"], same_seat["code"], same_seat["votes"]) == ("counted", "duplicate", 1)
    assert rig.ledger.rows == []
    counted = words((await rig.http.get(f"/approvals/{approval}", headers={"cookie": "signoff_person=cy"})).text)
    assert "1 of 2 approvals" in counted
    assert "Approved Bo on behalf of Ana" in counted
    assert "Can still answer: cy (finance)" in counted
    assert (await rig.decide(approval, "cy"))["status"] == "accepted"
    await rig.turns.signoff.result(key)
    votes = (await rig.turns.signoff.request(approval)).votes
    assert {(vote.subject, vote.on_behalf) for vote in votes} >= {("bo", "ana"), ("cy", "")}
    assert len(rig.ledger.rows) == 1


async def test_deactivated_person_decides_nothing(rig: DelegationRig) -> None:
    key, approval = await rig.asked()
    rig.people(PLAIN.replace("cy, roles: [finance]", "cy, active: false"))
    receipt = await rig.turns.signoff.decide(yes(key, subject="cy"))
    assert (receipt.status, receipt.code) == ("refused", "not_allowed")
    rig.people("- [not people\n")
    assert (await rig.turns.signoff.decide(yes(key, subject="cy"))).code == "not_allowed"
    assert (await rig.decide(approval, "ana"))["status"] == "counted"


async def test_requester_has_no_delegate_for_their_own_request(rig: DelegationRig) -> None:
    rig.people(STANDS_IN)
    key, approval = await rig.asked(user="ana")
    assert (await rig.decide(approval, "ana"))["code"] == "self_approval"
    assert (await rig.decide(approval, "bo"))["code"] == "not_allowed"
    assert (await rig.turns.signoff.decide(yes(key, subject="bo"))).code == "not_allowed"
