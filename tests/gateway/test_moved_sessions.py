import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from activity_kit import environment, pinned, worker_deps
from gateway_login import bearer, browser, locked_rig, sign_in, token_of
from gateway_rig import SIGNER, GatewayRig, fresh, gateway_rig
from tables import table
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.activities.results.step_mover import StepMover
from signoff.contracts import names
from signoff.contracts.call import CallContext, Place
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.person import Person
from signoff.contracts.session_messages import TurnReport
from signoff.formats.replace import replace
from signoff.keys.signature_form import principal_as_asked
from signoff.people.directory import FixedDirectory
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.catalog import Catalog
from signoff.store.content_store import seal_place
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

PEOPLE = (Person(id="guest", name="Guest", may_set=("route",)), Person(id="ana", roles=("approvers",)))
STEPS = (
    Step(name="ask", collect={"city": {"type": "string"}}),
    Step(name="buy", requires=("city",), tools=("book",), mode="only"),
)


def trips(ledger: Ledger) -> Catalog:
    actor = Actor(
        name="desk", model="scripted", routes=(Route(name="trip", mode="only", tools=("refund",), steps=STEPS),)
    )
    return catalog_of(
        [pay_tool(ledger, False, name="book"), pay_tool(ledger, name="refund")],
        actors=[actor],
        default_approvers=["role:approvers"],
    )


def react(request: CompletionRequest) -> Completion:
    settled = results(request)
    if settled:
        return respond(" ".join(f"{part.tool}: {part.code}" for part in settled))
    word = last_user_text(request)
    if word == "hello":
        return respond("hello")
    return calls((word, {"city": "Porto"} if word == "collect" else {"amount": 20}))


class Talker:
    def __init__(self, rig: GatewayRig, headers: dict[str, str]) -> None:
        self._rig, self._headers, self._session = rig, headers, fresh()

    async def say(self, text: str, **fields: Any) -> TurnKey:
        body = {"text": text, "actor": "desk", **fields}
        answer = await self.post(body)
        assert answer.status_code == 201, answer.text
        return TurnKey(answer.json()["tenant"], answer.json()["session"], answer.json()["turn"])

    async def post(self, body: dict[str, Any]) -> Any:
        return await self._rig.http.post(f"/v1/sessions/{self._session}/messages", json=body, headers=self._headers)

    async def session(self) -> Any:
        return await self.view(f"/v1/sessions/{self._session}")

    async def view(self, path: str) -> Any:
        return (await self._rig.http.get(path, headers=self._headers)).json()

    async def ended(self, text: str, **fields: Any) -> Any:
        key = await self.say(text, **fields)
        while True:
            view = await self.view(f"/v1/turns/{'.'.join(key)}")
            if view.get("result"):
                return view
            await asyncio.sleep(0.05)


@asynccontextmanager
async def talker(client: Client, store: Store, task_queue: str) -> AsyncIterator[tuple[Talker, GatewayRig]]:
    worker: dict[str, Any] = {"profile": "production", "people": FixedDirectory(PEOPLE)}
    async with gateway_rig(
        client, store, task_queue, catalog_of_ledger=trips, model=ScriptedModel(react), **worker
    ) as found:
        rig = locked_rig(found, people=PEOPLE)
        yield Talker(rig, bearer(await token_of(rig, "guest"))), rig


def codes(view: Any) -> list[str]:
    return [call["outcome"]["code"] for call in view["calls"]]


async def test_signed_session_moves_to_the_next_step(client: Client, store: Store, task_queue: str) -> None:
    async with talker(client, store, task_queue) as (guest, _):
        first = await guest.ended("book", route="trip")
        collected = await guest.ended("collect")
        booked = await guest.ended("book")
        session = await guest.session()
    assert [codes(first), codes(collected), codes(booked)] == [["not_available"], ["ok"], ["ok"]]
    assert [(each["route"], each["step"]) for each in (first, collected, booked, session)] == [
        ("trip", "ask"),
        ("trip", "buy"),
        ("trip", "buy"),
        ("trip", "buy"),
    ]
    assert "seal" not in {*first, *session}


async def test_pages_show_the_place_of_the_conversation(client: Client, store: Store, task_queue: str) -> None:
    async with talker(client, store, task_queue) as (guest, rig):
        await guest.ended("collect", route="trip")
        moved = await guest.ended("hello")
        secret = await token_of(rig, "guest")
        session = f"{moved['tenant']}.{moved['session']}"
        async with browser(rig) as page:
            await sign_in(page, secret)
            for path in (f"/turns/{session}.{moved['turn']}", f"/sessions/{session}"):
                assert "at trip/buy" in (await page.get(path)).text


async def test_person_may_not_name_a_step_without_permission(client: Client, store: Store, task_queue: str) -> None:
    async with talker(client, store, task_queue) as (guest, _):
        await guest.ended("collect", route="trip")
        answer = await guest.post({"text": "book", "actor": "desk", "route": "trip", "step": "ask"})
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")


async def test_forged_report_of_a_place_permits_no_call(client: Client, store: Store, task_queue: str) -> None:
    # A holder of a Temporal credential reports, in the turn's name, that the conversation is at the step `buy`.
    async with talker(client, store, task_queue) as (guest, rig):
        waiting = await guest.say("refund", route="trip")
        await rig.turns.waiting(waiting)
        forged = Place(actor="desk", route="trip", step="buy", seal="f" * 32)
        report = TurnReport(turn=waiting.turn, state="complete", place=forged)
        session = rig.turns.client.get_workflow_handle(SessionKey(waiting.tenant, waiting.session).workflow_id)
        # A report moves the session only from the place of the turn's start.
        await session.signal(names.TURN_ENDED, report.model_dump(mode="json"))
        view = await guest.ended("book")
        shown = await guest.session()
        assert [shown[name] for name in ("route", "step")] == ["", ""]
        assert codes(view) != ["ok"]
        assert rig.ledger.rows == []
        assert (view["route"], view["step"]) == ("", "")


def signed(**fields: Any) -> CallContext:
    """`fields` come from an attacker."""
    ctx = pinned(route="trip")
    ctx = replace(ctx, user=principal_as_asked(ctx, nonce="n", at=datetime.now(UTC)))
    return replace(ctx, user=SIGNER.sign_principal(ctx), **fields)


DATA = {"data": {"city": "Porto"}}


def mover(store: Store) -> StepMover:
    catalog = trips(Ledger())
    deps = worker_deps(store, *catalog.tools(), actors=catalog.actors.values(), profile="production")
    return StepMover(dataclasses.replace(deps, verifier=SIGNER.verifier()))


@table(
    ("fields", "step"),
    ({"extra": DATA}, "buy"),
    ({}, "ask"),
    ({"step": "ask", "extra": DATA}, None),
    ({"step": "ask", "seal": "f" * 32, "extra": DATA}, None),
    ({"actor": "other", "extra": DATA}, None),
    ({"tenant": "other", "extra": DATA}, None),
)
async def test_session_leaves_only_a_proved_place(store: Store, fields: dict[str, Any], step: str | None) -> None:
    found = await environment().run(mover(store).advance, signed(**fields), 2)
    assert (found and found.step) == step


@pytest.mark.parametrize("session", ["s", "another"])
async def test_seal_of_another_session_proves_nothing(store: Store, session: str) -> None:
    ask = Place(actor="desk", route="trip", step="ask")
    place = await seal_place(store, SessionKey("main", session), ask)
    ctx = signed(step="ask", seal=place.seal, extra=DATA)
    found = await environment().run(mover(store).advance, ctx, 2)
    assert (found is not None) is (session == "s")
