import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from gateway_login import browser, locked_rig, sign_in, token_of, words
from gateway_rig import BASE, PEOPLE, GatewayRig, gateway_rig
from tables import table
from temporalio.client import Client
from test_edit_page import as_person, confirmed, edited
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.store.store import Store
from signoff.testing.builders import a_person

RUI = a_person("rui", name="Rui", locale="pt-PT")
LOCALES = (("ana", "de"), ("rui", "pt"))
ARGS = {"amount": 420, "currency": "EUR", "to": "Ana"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": ["number", "null"]},
        "currency": {"type": "string"},
        "to": {"type": "string", "maxLength": 5},
        "memo": {"type": "string"},
    },
    "required": ["amount", "to"],
    "additionalProperties": False,
}
DENIED = {
    "de": "die Änderung wurde abgewiesen: `deny_if` ergibt true: der Aufruf wird abgelehnt",
    "pt": "a alteração foi rejeitada: `deny_if` dá true: a chamada é recusada",
}
MISFITS = {
    "de": "`amount` muss vom Typ number oder null sein; `mem` ist kein Argument (meinten Sie `memo`?)",
    "pt": "`amount` deve ser do tipo number ou null; `mem` não é um argumento (queria dizer `memo`?)",
}
TOO_LONG = {"de": "darf höchstens 5 Zeichen haben", "pt": "deve ter no máximo 5 caracteres"}


def desk(ledger: Ledger) -> Catalog:
    policy = ApprovalPolicy(edit="approve", deny_if="args.amount > 1000.0")
    actors = [Actor(name="desk", model="scripted", description="Pays.")]
    return catalog_of([pay_tool(ledger, policy, input_schema=SCHEMA)], actors=actors, people=(*PEOPLE, RUI))


@pytest.fixture
async def rig(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    async with gateway_rig(client, store, f"refused-{uuid.uuid4().hex[:12]}", catalog_of_ledger=desk) as found:
        yield found


def own_browser(rig: GatewayRig) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=rig.app), base_url=BASE, headers={"sec-fetch-site": "same-origin"}
    )


@table(("person", "language"), *LOCALES)
async def test_refused_edit_is_shown_in_the_approvers_language(rig: GatewayRig, person: str, language: str) -> None:
    approval = await rig.asked("pay")
    async with own_browser(rig) as page:
        await as_person(page, person)
        long = words((await edited(page, approval, to="nobody known")).text)
        review = await edited(page, approval, amount="2000")
        denied = words((await confirmed(page, approval, review)).text)
        record = words((await page.get(f"/audit/{approval.rpartition('.c1')[0]}")).text)
    shown = (await rig.http.get(f"/v1/approvals/{approval}")).json()
    sent = {"verdict": "approved", "revision": 1, "question_hash": shown["question_hash"]}
    path, asking = f"/v1/approvals/{approval}", {"accept-language": language}
    answers = [
        await rig.http.post(f"{path}/decide", params={"as": person}, headers=asking, json={**sent, "edited_args": args})
        for args in ({**ARGS, "amount": 2_000}, {**ARGS, "amount": "x", "mem": 1})
    ]
    preview = await rig.http.post(f"{path}/preview", headers=asking, json={"set": {"to": "nobody known"}})
    assert TOO_LONG[language][1:] in long
    assert f"{DENIED[language]}." in denied
    assert f"): {DENIED[language].replace('`', '')} " in record
    assert [(each.status_code, each.json()["code"]) for each in answers] == [(403, "not_allowed"), (422, "malformed")]
    assert answers[0].json()["message"] == DENIED[language]
    assert answers[1].json()["message"].endswith(f": {MISFITS[language]}")
    assert (preview.status_code, preview.json()["message"]) == (422, f"`to` {TOO_LONG[language]}")


async def test_client_without_a_language_gets_english(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    shown = (await rig.http.get(f"/v1/approvals/{approval}")).json()
    sent = {"verdict": "approved", "revision": 1, "question_hash": shown["question_hash"]}
    answer = await rig.decide(approval, **sent, edited_args={**ARGS, "mem": 1}, **{"as": "approver"})
    misfit = "`mem` is not an argument (did you mean `memo`?)"
    assert answer.json()["message"] == f"the change was rejected: the arguments of `pay` are not valid: {misfit}"


async def test_audit_log_refusal_is_in_the_readers_language(rig: GatewayRig) -> None:
    locked = locked_rig(rig)
    async with locked.http, browser(locked) as page:
        page.cookies.clear()
        secret = await token_of(locked, "ana")
        await sign_in(page, secret)
        refused = await page.get("/audit/main.any.any")
        answer = await locked.http.get(
            "/v1/audit/main.any.any", headers={"authorization": f"Bearer {secret}", "accept-language": "de"}
        )
    assert (refused.status_code, answer.status_code) == (403, 403)
    assert "Das Prüfprotokoll braucht die Rolle auditor oder admin" in words(refused.text)
    assert "the audit log needs" not in refused.text
    assert answer.json()["message"] == "das Prüfprotokoll braucht die Rolle `auditor` oder `admin`"


async def test_reason_of_an_error_page_ends_with_one_period(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    async with own_browser(rig) as page:
        await as_person(page, "bo")
        page.cookies.set("signoff_language", "de")
        refused = await page.get(f"/approvals/{approval}/edit")
    assert refused.status_code == 409
    assert "Sie können dies nicht bearbeiten: Sie können nicht darüber entscheiden. Zurück" in words(refused.text)
    assert 'lang="en">Sie' not in refused.text
