import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from activity_kit import about, asked, worker_deps
from gateway_login import as_person, browser, hidden, words
from gateway_rig import MONEY, SIGNER, GatewayRig, gateway_rig, turn_of
from some import some
from tables import table
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.activities.run_rules import approval_of
from signoff.approvals.quorum import progress
from signoff.contracts.person import Delegation, Person
from signoff.decisions.assignment_taker import assignment_problem
from signoff.formats.replace import replace
from signoff.people.authority import check_authority
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.store.questions.questions import Questions, end_question
from signoff.store.store import Store
from signoff.testing.builders import a_decision, a_person, a_request

PEOPLE = (
    Person(id="guest", name="Guest", roles=("approvers",)),
    a_person("ana", name="Ana"),
    a_person("rui", name="Rui"),
    a_person("bo", name="Bo"),
    Person(id="cy", name="Cy"),
)
_BOTH = ApprovalPolicy(quorum=2)


def catalog(ledger: Ledger) -> Catalog:
    money: dict[str, Any] = {"input_schema": MONEY, "effect": "Pay {amount} {currency} to {to}", "title": "Pay"}
    tools = [
        pay_tool(ledger, **money),
        pay_tool(ledger, _BOTH, name="both", **money),
        pay_tool(ledger, ApprovalPolicy(edit="approve"), name="easy", answer_schema={"type": "string"}, **money),
    ]
    return catalog_of(tools, actors=[Actor(name="desk", model="scripted", description="Pays.")], people=PEOPLE)


@pytest.fixture
async def rig(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    async with gateway_rig(client, store, f"assign-{uuid.uuid4().hex[:12]}", catalog_of_ledger=catalog) as found:
        yield found


async def handed_on(rig: GatewayRig, approval: str, by: str, to: str) -> dict[str, Any]:
    return await assigned(rig, approval, "reassign", by, to)


async def added(rig: GatewayRig, approval: str, by: str, to: str) -> dict[str, Any]:
    return await assigned(rig, approval, "add-approver", by, to)


async def assigned(rig: GatewayRig, approval: str, route: str, by: str, to: str) -> dict[str, Any]:
    answer = await rig.http.post(f"/v1/approvals/{approval}/{route}", params={"as": by}, json={"to": to})
    receipt: dict[str, Any] = answer.json()
    return receipt


async def approved(rig: GatewayRig, approval: str, by: str) -> dict[str, Any]:
    receipt: dict[str, Any] = (await rig.decide(approval, verdict="approved", **{"as": by})).json()
    return receipt


async def codes(rig: GatewayRig, approval: str) -> list[str]:
    result = await asyncio.wait_for(rig.turns.signoff.result(turn_of(approval)), 60)
    return [call.code for call in result.calls]


async def test_hand_on_moves_the_decision_to_the_other_approver(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    receipt = await handed_on(rig, approval, "ana", "rui")
    assert (receipt["status"], receipt["verdict"], receipt["state"]) == ("accepted", "handed_on", "pending")
    late = await approved(rig, approval, "ana")
    assert (late["status"], late["code"], late["why"]) == ("refused", "not_allowed", "handed_on")
    assert (await approved(rig, approval, "rui"))["status"] == "accepted"
    assert await codes(rig, approval) == ["ok"]
    row, answer = some(await Questions(rig.deps.store).read(approval)).answers
    assert (row.vote.verdict, row.void, row.vote.decision.to, row.vote.decision.to_name) == (
        "handed_on", True, "rui", "Rui",
    )  # fmt: skip
    assert SIGNER.verifier().check_decision(row.vote.decision)
    assert len(answer.vote.decision.assigned) == 64
    attempts = [each for each in await rig.records(approval) if each.kind == "attempt"]
    facts = [(each.subject, *(each.facts.get(name) for name in ("verdict", "to", "status"))) for each in attempts]
    assert facts == [
        ("ana", "handed_on", "rui", "accepted"),
        ("ana", "approved", None, "refused"),
        ("rui", "approved", None, "accepted"),
    ]


async def test_impossible_assignments_are_refused_in_words_and_recorded(rig: GatewayRig) -> None:
    approval = await rig.asked("both")
    assert (await approved(rig, approval, "bo"))["status"] == "counted"
    cases = (
        ("ana", "ana", "to_self", "another person than yourself"),
        ("ana", "guest", "to_asker", "requested or edited it"),
        ("ana", "bo", "to_done", "already answered"),
        ("ana", "cy", "to_stranger", "may not decide this request"),
        ("ana", "nobody", "to_stranger", "may not decide this request"),
        ("cy", "rui", "", "You may not decide this"),
        ("bo", "rui", "answered", "cannot be handed on"),
    )
    for by, to, why, sentence in cases:
        receipt = await handed_on(rig, approval, by, to)
        assert (receipt["status"], receipt["code"], receipt.get("why", "")) == ("refused", "not_allowed", why), (by, to)
        assert sentence in receipt["message"]
    for to, why in (("ana", "to_self"), ("guest", "to_asker"), ("bo", "to_done"), ("cy", "to_stranger")):
        assert (await added(rig, approval, "ana", to)).get("why") == why
    attempts = [each for each in await rig.records(approval) if each.facts.get("status") == "refused"]
    assert len(attempts) == len(cases) + 4
    assert (await rig.request(approval)).assignments == ()
    assert (await handed_on(rig, "main.a.b.c1.1", "ana", "rui"))["code"] == "unknown"


async def test_request_is_handed_on_by_one_hop_alone(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    assert (await handed_on(rig, approval, "ana", "rui"))["status"] == "accepted"
    assert (await handed_on(rig, approval, "rui", "bo"))["why"] == "further"
    assert (await handed_on(rig, approval, "bo", "ana"))["why"] == "to_done"
    assert (await handed_on(rig, approval, "ana", "bo"))["why"] == "handed_on"
    assert (await added(rig, approval, "ana", "bo"))["why"] == "handed_on"
    assert (await approved(rig, approval, "rui"))["status"] == "accepted"
    ended = await handed_on(rig, approval, "bo", "rui")
    assert (ended["status"], ended["code"]) == ("refused", "already_decided")


async def test_one_of_two_racing_hand_ons_counts(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    both = await asyncio.gather(handed_on(rig, approval, "ana", "rui"), handed_on(rig, approval, "ana", "bo"))
    assert sorted(each["status"] for each in both) == ["accepted", "refused"]
    assert [each["why"] for each in both if each["status"] == "refused"] == ["handed_on"]
    assert len((await rig.request(approval)).assignments) == 1


async def test_repeated_hand_on_counts_once(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    url, body = f"/v1/approvals/{approval}/reassign?as=ana", {"to": "rui", "delivery_id": "one"}
    first, second = [(await rig.http.post(url, json=body)).json() for _ in range(2)]
    assert (first["status"], first["code"], second["status"], second["code"]) == (
        "accepted", "", "accepted", "duplicate",
    )  # fmt: skip
    assert len((await rig.request(approval)).assignments) == 1


async def test_added_approver_must_approve_besides_the_others(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    receipt = await added(rig, approval, "ana", "rui")
    assert (receipt["status"], receipt["votes"], receipt["needed"]) == ("accepted", 0, 2)
    assert receipt["open"] == [{"of": ["user:rui"], "quorum": 1}]
    assert (await added(rig, approval, "bo", "rui"))["why"] == "to_done"
    assert (await handed_on(rig, approval, "rui", "bo"))["why"] == "further"
    assert (await approved(rig, approval, "ana"))["status"] == "counted"
    third = await approved(rig, approval, "bo")
    assert (third["status"], third["votes"], third["needed"]) == ("counted", 1, 2)
    assert await rig.runs(approval) == 0
    assert (await approved(rig, approval, "rui"))["status"] == "accepted"
    assert await codes(rig, approval) == ["ok"]
    assert await rig.runs(approval) == 1


async def test_hidden_addition_lets_no_approval_count_at_the_run(rig: GatewayRig) -> None:
    approval = await rig.asked("both")
    await added(rig, approval, "ana", "rui")
    await approved(rig, approval, "ana")
    await approved(rig, approval, "bo")
    rows = some(await Questions(rig.deps.store).read(approval))
    assert some(approval_of(1, rows)).problem == ""
    hidden_one = dataclasses.replace(rows, answers=rows.answers[1:], _made={})
    assert hidden_one.request(hidden_one.latest).state == "approved"
    assert "missing in the store" in some(approval_of(1, hidden_one)).problem


async def test_added_approver_is_required_in_later_revisions(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    await added(rig, approval, "ana", "rui")
    await handed_on(rig, approval, "bo", "ana")
    rows = some(await Questions(rig.deps.store).read(approval))
    later = dataclasses.replace(rows, questions=(*rows.questions, replace(rows.latest, revision=2)), _made={})
    request = later.request(later.latest)
    assert [each.verdict for each in request.assignments] == ["added"]
    assert progress(request).needed == 2


async def test_page_hands_on_without_scripts_and_shows_it(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    path = f"/approvals/{approval}/assign"
    async with browser(rig) as page:
        await as_person(page, "ana")
        shown = (await page.get(f"/approvals/{approval}")).text
        form = shown[shown.index(f'action="{path}"') :].partition("</form>")[0]
        assert [name for name in ("ana", "rui", "bo", "guest", "cy") if f'value="{name}"' in form] == ["rui", "bo"]
        nobody = await page.post(path, data={**hidden(shown, path), "verdict": "handed_on", "to": ""})
        assert (nobody.status_code, "choose a person" in words(nobody.text)) == (422, True)
        done = await sent(page, path, shown, verdict="handed_on", to="rui")
        assert "You handed this request on" in words(done.text)
        assert "Ana handed it on to Rui." in words(done.text)
        assert path not in done.text
        stale = await page.post(path, data={**hidden(shown, path), "token": "x", "verdict": "added", "to": "bo"})
        assert stale.status_code == 403
        await as_person(page, "rui")
        card = (await page.get(f"/approvals/{approval}")).text
        assert "Ana handed it on to Rui." in words(card)
        assert 'value="approved"' in card


async def test_page_adds_an_approver(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    path = f"/approvals/{approval}/assign"
    async with browser(rig) as page:
        await as_person(page, "ana")
        done = await sent(page, path, (await page.get(f"/approvals/{approval}")).text, verdict="added", to="rui")
        assert "Ana added Rui, whose approval is required too." in words(done.text)
        assert "0 of 2 approvals" in words(done.text)


async def edited_before(rig: GatewayRig, editor: str) -> str:
    store, edited = rig.deps.store, {"amount": 7, "to": "Ana"}
    [tool] = rig.deps.catalog.tools_named("easy")
    deps = worker_deps(store, tool)
    first = await asked(deps, tool)
    edit = about(first, subject=editor, edited_args=edited, delivery_id="edit")
    second = await asked(deps, tool, edited, edit=edit)
    await store.run(lambda connection: end_question(connection, second.id, second.revision, "lapsed"))
    return (await asked(deps, tool, edited)).id


async def test_earlier_editor_is_neither_assigned_nor_offered_an_answer(rig: GatewayRig) -> None:
    approval = await edited_before(rig, "rui")
    answers = f"/approvals/{approval}/answer"
    assert (await rig.request(approval)).revision == 3
    async with browser(rig) as page:
        await as_person(page, "ana")
        shown = (await page.get(f"/approvals/{approval}")).text
        form = shown[shown.index(f'action="/approvals/{approval}/assign"') :].partition("</form>")[0]
        assert [name for name in ("rui", "bo") if f'value="{name}"' in form] == ["bo"]
        assert answers in shown
        await as_person(page, "rui")
        shown = (await page.get(f"/approvals/{approval}")).text
        assert ('value="approved"' in shown, answers in shown) == (True, False)
    assert (await handed_on(rig, approval, "ana", "rui")).get("why") == "to_asker"
    assert (await added(rig, approval, "ana", "rui")).get("why") == "to_asker"


async def sent(page: httpx2.AsyncClient, path: str, shown: str, **fields: str) -> httpx2.Response:
    answer = await page.post(path, data={**hidden(shown, path), **fields}, follow_redirects=True)
    assert answer.status_code == 200, answer.text
    return answer


_TWICE = FixedDirectory((*PEOPLE, Person(id="rui2", person_id="rui", roles=("approvers",))))
_DEPUTY = FixedDirectory(
    (
        replace(PEOPLE[1], delegations=(Delegation(to="cy", until=datetime(2100, 1, 1, tzinfo=UTC)),)),
        *(each for each in PEOPLE if each.id != "ana"),
    )
)


@table(
    ("by", "to", "people", "fields", "why"),
    ("ana", "rui", _TWICE, {}, ""),
    ("ana", "rui", _TWICE, {"proposers": ("rui2",)}, "to_asker"),
    ("ana", "rui", _TWICE, {"editors": ("rui",)}, "to_asker"),
    ("ana", "rui2", _TWICE, {"allow_self": True, "proposers": ("rui",)}, "to_asker"),
    ("rui2", "rui", _TWICE, {}, "to_self"),
    ("ana", "rui", _TWICE, {"quorum": 2}, ""),
    ("ana", "rui", _TWICE, {"quorum": 3}, "too_few"),
    ("cy", "rui", _DEPUTY, {}, "further"),
    ("rui", "cy", _DEPUTY, {}, "to_stranger"),
)
def test_assignment_needs_another_eligible_person(
    by: str, to: str, people: FixedDirectory, fields: dict[str, Any], why: str
) -> None:
    editors = fields.get("editors", ())
    terms = {name: each for name, each in fields.items() if name != "editors"}
    request = a_request(approvers=("role:approvers",), min_assurance="channel", **terms)
    decision = a_decision(request, verdict="handed_on", subject=by, to=to, assurance="session")
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    author = check_authority(request, decision, moment, people, unsigned=False, development=True)
    assert author.allowed
    assert assignment_problem(request, (), decision, author, people, moment, editors) == why
