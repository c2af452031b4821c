import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gateway_login import words
from gateway_rig import MONEY, GatewayRig, gateway_rig, turn_of
from rota_servers import RotaServer, rota_file
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool, yes

from signoff.channels.outbound.dispatcher import find_asked
from signoff.channels.outbound_http import GuardedHttp, read_networks
from signoff.contracts.person import Person
from signoff.gateway.auth.provider_people import with_provider_people
from signoff.gateway.vendors.on_call import OnCallReader, read_rotas
from signoff.gateway.vendors.on_call_task import OnCallTask
from signoff.keys.secrets import SecretProvider
from signoff.people.on_call import KEPT, RotaReading, Rotas, Shift
from signoff.people.vouched_directory import VouchedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.on_call_sections import OnCallRota
from signoff.store.store import Store
from signoff.testing.vendor_server import serve_vendor

HOUR = timedelta(hours=1)
PEOPLE = [
    Person(id="ana", name="Ana", identities={"email": ("ana@example.com",)}),
    Person(id="bo", name="Bo", identities={"email": ("bo@example.com",)}),
    Person(id="cy", name="Cy", roles=("leads",)),
]


@dataclass
class OnCallRig:
    gateway: GatewayRig
    rotas: RotaServer
    task: OnCallTask
    later: list[timedelta]

    async def on_call(self, *names: str, status: int = 200) -> None:
        now = datetime.now(UTC)
        self.rotas.content = rota_file(*((each, now - HOUR, now + HOUR) for each in names))
        self.rotas.status = status
        await self.task.step()

    async def asked(self, tool: str = "pay") -> str:
        return await self.gateway.asked(tool)

    async def decide(self, approval: str, person: str, **fields: Any) -> dict[str, Any]:
        given = {"verdict": "approved", "revision": 1, **fields}
        answer: dict[str, Any] = (await self.gateway.decide(approval, **given, **{"as": person})).json()
        return answer

    async def listed(self, person: str) -> set[str]:
        answer = await self.gateway.http.get("/v1/approvals", params={"as": person})
        return {card["id"] for card in answer.json()["approvals"]}

    async def asks(self, approval: str) -> list[str]:
        deps = self.task._deps
        return [each.id for each in find_asked(await self.gateway.request(approval), deps.people, deps.clock())]

    async def page(self, approval: str, person: str) -> str:
        answer = await self.gateway.http.get(f"/approvals/{approval}", headers={"cookie": f"signoff_person={person}"})
        return words(answer.text)


def on_call_catalog(ledger: Ledger) -> Catalog:
    several = ApprovalPolicy.model_validate(
        {"approvers": [{"of": "oncall:payments"}, {"of": "role:leads"}], "edit": "propose"}
    )
    tools = [
        pay_tool(ledger, ApprovalPolicy(approvers=("oncall:payments",), allow_remember=True), input_schema=MONEY),
        pay_tool(ledger, several, name="both", input_schema=MONEY),
    ]
    return catalog_of(tools, people=PEOPLE, on_call=[OnCallRota("payments", ical="env:ROTA")])


@pytest.fixture
async def rig(client: Client, store: Store, task_queue: str) -> AsyncIterator[OnCallRig]:
    server, later = RotaServer(), [timedelta()]
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve_vendor(server.app()))
        running = gateway_rig(
            client,
            store,
            task_queue,
            catalog_of_ledger=on_call_catalog,
            clock=lambda: datetime.now(UTC) + later[0],
        )
        gateway = await stack.enter_async_context(running)
        http = await stack.enter_async_context(GuardedHttp(read_networks(["127.0.0.0/8"])))
        reader = OnCallReader(http, SecretProvider(environment={"ROTA": f"{url}/rota.ics"}))
        yield OnCallRig(gateway, server, OnCallTask(with_provider_people(gateway.deps), reader), later)


async def test_person_on_call_is_asked_and_their_approval_runs(rig: OnCallRig) -> None:
    await rig.on_call("ana@example.com")
    approval = await rig.asked()
    assert await rig.asks(approval) == ["ana"]
    assert approval in await rig.listed("ana")
    assert approval not in await rig.listed("bo")
    assert "Approvers: Ana (payments)" in await rig.page(approval, "ana")
    assert (await rig.decide(approval, "bo"))["code"] in ("not_allowed", "unknown")
    assert (await rig.decide(approval, "ana"))["status"] == "accepted"
    await rig.gateway.turns.signoff.result(turn_of(approval))
    assert await rig.gateway.runs(approval) == 1
    (vote,) = (await rig.gateway.request(approval)).votes
    assert vote.decision.on_call == ("oncall:payments",)
    assert rig.gateway.deps.verifier().check_decision(vote.decision)


async def test_rota_that_changes_after_the_card_changes_who_may_answer(rig: OnCallRig) -> None:
    await rig.on_call("ana@example.com")
    approval = await rig.asked()
    await rig.on_call("Bo")
    assert (await rig.decide(approval, "ana"))["status"] == "refused"
    assert approval not in await rig.listed("ana")
    assert await rig.asks(approval) == ["bo"]
    assert (await rig.decide(approval, "bo"))["status"] == "accepted"
    # The worker reads no rota: the approval counts after the end of its author's shift.
    await rig.on_call("ana@example.com")
    await rig.gateway.turns.signoff.result(turn_of(approval))
    assert await rig.gateway.runs(approval) == 1


async def test_person_on_call_counts_in_a_group(rig: OnCallRig) -> None:
    await rig.on_call("ana@example.com")
    approval = await rig.asked("both")
    first = await rig.decide(approval, "ana")
    assert (first["status"], first["votes"], first["needed"]) == ("counted", 1, 2)
    await rig.on_call("bo@example.com")
    assert (await rig.decide(approval, "cy"))["status"] == "accepted"
    await rig.gateway.turns.signoff.result(turn_of(approval))
    assert await rig.gateway.runs(approval) == 1


async def test_unreadable_and_empty_rotas_let_no_person_decide(
    rig: OnCallRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "signoff.gateway.vendors.on_call_task")
    approval = await rig.asked()
    assert await rig.asks(approval) == []
    assert (await rig.decide(approval, "ana"))["status"] == "refused"
    await rig.on_call("ana@example.com")
    await rig.on_call(status=503)
    # The last good reading counts for some minutes.
    assert await rig.asks(approval) == ["ana"]
    rig.later[0] = KEPT
    assert await rig.asks(approval) == []
    assert (await rig.decide(approval, "ana"))["status"] == "refused"
    await rig.on_call()
    assert await rig.asks(approval) == []
    await rig.on_call("cy")
    assert await rig.asks(approval) == ["cy"]
    assert [each for each in caplog.messages if "rota" in each] == [
        "rota `payments`: it cannot be read: its server answers 503",
        "rota `payments`: no person is on call now",
        "rota `payments` names a person on call again",
    ]


async def test_page_says_that_no_person_is_on_call(rig: OnCallRig) -> None:
    await rig.on_call("ana@example.com")
    approval = await rig.asked("both")
    await rig.on_call()
    assert "Approvers: no person on call (payments); Cy (leads)" in await rig.page(approval, "cy")


async def test_slow_rota_delays_no_other(rig: OnCallRig) -> None:
    @dataclass
    class Reader(OnCallReader):
        async def read(self, rota: OnCallRota, now: datetime) -> RotaReading:
            if rota.name == "slow":
                await asked.wait()
                return RotaReading(problem="late" if kept.is_known("fast", now) else "not kept")
            asked.set()
            rig.later[0] = KEPT / 2
            return RotaReading((Shift("bo", now, now + HOUR),))

    asked, kept, begun = asyncio.Event(), Rotas(), datetime.now(UTC)
    reader = Reader(rig.task._reader.http, SecretProvider())
    found = await read_rotas([OnCallRota("slow"), OnCallRota("fast")], reader, kept, lambda: begun + rig.later[0])
    assert [reading.problem for _, reading in found] == ["late", ""]
    # The reading counts from its beginning.
    assert kept.names("fast", begun + KEPT - timedelta(microseconds=1)) == {"bo"}
    assert not kept.is_known("fast", begun + KEPT)


async def test_rota_of_people_known_by_sign_in_alone_is_a_problem(
    rig: OnCallRig, caplog: pytest.LogCaptureFixture
) -> None:
    people = rig.task._deps.people
    stranger = Person(id="eve", name="Eve", identities={"oidc": ("https://idp.example#eve",)})
    rig.task._deps = dataclasses.replace(rig.task._deps, people=VouchedDirectory(people, [stranger]))
    await rig.on_call("Eve")
    assert "rota `payments`: it names no active person now" in caplog.messages


async def test_person_on_call_may_not_have_their_answer_remembered(rig: OnCallRig) -> None:
    await rig.on_call("ana@example.com")
    approval = await rig.asked()
    answer = await rig.decide(approval, "ana", remember={"scope": "session"})
    assert (answer["status"], answer["code"]) == ("refused", "not_allowed")
    assert "you may decide this call alone" in answer["message"]
    assert (await rig.decide(approval, "ana"))["status"] == "accepted"


async def test_raw_answer_proves_no_shift(rig: OnCallRig) -> None:
    await rig.on_call("ana@example.com")
    approval = await rig.asked()
    claimed = yes(turn_of(approval), subject="ana", on_call=("oncall:payments",))
    receipt = await rig.gateway.turns.signoff.decide(claimed)
    assert (receipt.status, receipt.code) == ("refused", "not_allowed")
