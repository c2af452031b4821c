import json
from datetime import timedelta
from typing import Any

import pytest
from gateway_login import as_person, browser, hidden, locked_rig, sign_in, token_of, words
from gateway_rig import GatewayRig, turn_of
from httpx2 import Response
from passkey_device import PRESENT, PasskeyDevice
from tables import table

from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.contracts.errors import Refused
from signoff.gateway.approvals.approval_links import LINK_KEY, ApprovalLink, make_link
from signoff.gateway.auth.passkey_registration import PasskeyRegistration
from signoff.keys.passkeys import presence_problem, relying_party
from signoff.store.questions.passkeys import Passkeys, use_nonce
from signoff.testing.builders import a_person

TYPED = "420"


def device_of(rig: GatewayRig, **fields: Any) -> PasskeyDevice:
    party = relying_party(rig.deps.settings.public_url)
    return PasskeyDevice(**{"rp_id": party.id, "origin": party.origin} | fields)


async def register(
    rig: GatewayRig, device: PasskeyDevice, by: PasskeyDevice | None = None, person: str = "approver"
) -> None:
    who = rig.deps.people.find(person, "main")
    assert who is not None
    registration = PasskeyRegistration(rig.deps)
    begun = await registration.begin(who)
    earlier = None
    if by is not None:
        assert begun.earlier is not None
        earlier = by.answer(begun.earlier["challenge"], begun.nonce)
    await registration.finish(who, begun.nonce, device.create(begun.create["challenge"]), earlier)


async def draft(rig: GatewayRig, approval: str, **fields: Any) -> dict[str, Any]:
    request = await rig.request(approval)
    return {
        "verdict": "approved",
        "revision": request.revision,
        "question_hash": request.question_hash,
        "confirm": TYPED,
        **fields,
    }


async def confirmed(rig: GatewayRig, approval: str, device: PasskeyDevice, **fields: Any) -> dict[str, Any]:
    sent = await draft(rig, approval, **fields)
    answer = await rig.http.post(f"/v1/approvals/{approval}/passkey", json=sent)
    assert answer.status_code == 200, answer.text
    options = answer.json()
    assertion = device.answer(options["public_key"]["challenge"], options["nonce"])
    return sent | {"passkey": assertion.model_dump()}


@pytest.fixture
async def device(rig: GatewayRig) -> PasskeyDevice:
    """A passkey of `approver`."""
    made = device_of(rig)
    await register(rig, made)
    return made


async def test_decision_with_a_passkey_counts_and_runs(rig: GatewayRig, device: PasskeyDevice) -> None:
    approval = await rig.asked("guarded")
    sent = await confirmed(rig, approval, device)
    receipt = (await rig.decide(approval, **sent)).json()
    assert (receipt["status"], receipt["state"]) == ("accepted", "approved"), receipt
    await rig.turns.signoff.result(turn_of(approval))
    assert await rig.runs(approval) == 1
    decision = (await rig.request(approval)).votes[0].decision
    assert decision.assurance == "present"
    assert decision.presence is not None
    assert decision.presence.assertion.model_dump() == sent["passkey"]
    assert rig.deps.verifier().check_decision(decision)


async def test_repeated_delivery_of_a_proved_decision_is_a_duplicate(rig: GatewayRig, device: PasskeyDevice) -> None:
    approval = await rig.asked("guarded")
    sent = await confirmed(rig, approval, device, delivery_id="once")
    receipts = [(await rig.decide(approval, **sent)).json() for _ in range(2)]
    assert [each.get("code", "") for each in receipts] == ["", "duplicate"]
    assert len((await rig.request(approval)).votes) == 1


@table("verdict", "approved", "denied")
async def test_decision_without_a_passkey_is_refused_and_recorded(rig: GatewayRig, verdict: str) -> None:
    approval = await rig.asked("guarded")
    receipt = (await rig.decide(approval, **await draft(rig, approval, verdict=verdict))).json()
    assert (receipt["code"], receipt["why"]) == ("assurance", "passkey")
    assert "decide it in the inbox" in receipt["message"]
    assert ("assurance", "passkey") in await attempts(rig, approval)
    assert (await rig.request(approval)).state == "pending"


@table(
    ("fields", "why"),
    ({"verdict": "denied"}, "confirmed another decision"),
    ({"edited_args": {"amount": 421, "currency": "EUR", "to": "Ana"}, "confirm": "421"}, "confirmed another decision"),
)
async def test_passkey_for_another_decision_is_refused_and_recorded(
    rig: GatewayRig, device: PasskeyDevice, fields: dict[str, Any], why: str
) -> None:
    approval = await rig.asked("guarded")
    sent = await confirmed(rig, approval, device)
    receipt = (await rig.decide(approval, **(sent | fields))).json()
    assert (receipt["code"], receipt["why"]) == ("assurance", "passkey_misfit")
    assert why in receipt["message"]
    assert ("assurance", "passkey_misfit") in await attempts(rig, approval)


async def test_passkey_confirms_edited_arguments(rig: GatewayRig, device: PasskeyDevice) -> None:
    approval = await rig.asked("guarded")
    edited = {"amount": 421, "currency": "EUR", "to": "Ana"}
    sent = await confirmed(rig, approval, device, edited_args=edited, confirm="421")
    receipt = (await rig.decide(approval, **sent)).json()
    assert receipt["status"] in ("pending", "accepted"), receipt
    await rig.turns.signoff.result(turn_of(approval))
    assert rig.ledger.rows[-1][1]["amount"] == 421


async def test_passkey_of_another_request_is_refused(rig: GatewayRig, device: PasskeyDevice) -> None:
    first, second = await rig.asked("guarded"), await rig.asked("guarded")
    sent = await confirmed(rig, first, device)
    stolen = await draft(rig, second) | {"passkey": sent["passkey"]}
    assert (await rig.decide(second, **stolen)).json()["why"] == "passkey_misfit"


async def test_passkey_of_another_person_is_refused(rig: GatewayRig, device: PasskeyDevice) -> None:
    approval = await rig.asked("guarded")
    sent = await confirmed(rig, approval, device)
    receipt = (await rig.decide(approval, **sent, **{"as": "ana"})).json()
    assert receipt["why"] == "passkey_misfit"
    assert "none of this person" in receipt["message"]


@table(("field", "value"), ("origin", "https://evil.example"), ("rp_id", "evil.example"), ("flags", PRESENT))
async def test_passkey_used_elsewhere_or_without_verification_is_refused(
    rig: GatewayRig, device: PasskeyDevice, field: str, value: Any
) -> None:
    approval = await rig.asked("guarded")
    before = getattr(device, field)
    setattr(device, field, value)
    sent = await confirmed(rig, approval, device)
    setattr(device, field, before)
    assert (await rig.decide(approval, **sent)).json()["why"] == "passkey_misfit"


async def test_used_challenge_is_refused(rig: GatewayRig, device: PasskeyDevice) -> None:
    approval = await rig.asked("guarded")
    sent = await confirmed(rig, approval, device)
    nonce = sent["passkey"]["nonce"]
    assert await rig.deps.store.run(lambda connection: use_nonce(connection, nonce, "main", "approver"))
    receipt = (await rig.decide(approval, **sent)).json()
    assert (receipt["code"], receipt["why"]) == ("assurance", "passkey_used")
    assert ("assurance", "passkey_used") in await attempts(rig, approval)


async def test_copied_passkey_is_refused_and_the_operator_warned(
    rig: GatewayRig, device: PasskeyDevice, caplog: pytest.LogCaptureFixture
) -> None:
    approval = await rig.asked("guarded")
    device.count -= 1
    receipt = (await rig.decide(approval, **await confirmed(rig, approval, device))).json()
    assert (receipt["code"], receipt["why"]) == ("assurance", "passkey_cloned")
    assert "a copy of a passkey of 'approver' may be in use" in caplog.text
    assert ("assurance", "passkey_cloned") in await attempts(rig, approval)
    assert (await rig.request(approval)).state == "pending"


async def test_passkey_without_a_counter_may_decide_again(rig: GatewayRig) -> None:
    device = device_of(rig, counts=False)
    await register(rig, device)
    for _ in range(2):
        approval = await rig.asked("guarded")
        assert (await rig.decide(approval, **await confirmed(rig, approval, device))).json()["status"] == "accepted"


async def test_challenge_needs_a_registered_passkey(rig: GatewayRig) -> None:
    approval = await rig.asked("guarded")
    answer = await rig.http.post(f"/v1/approvals/{approval}/passkey", json=await draft(rig, approval))
    assert answer.status_code == 403
    assert "register one" in answer.json()["message"]


async def test_further_passkey_needs_an_earlier_one(rig: GatewayRig, device: PasskeyDevice) -> None:
    further = device_of(rig)
    with pytest.raises(Refused, match="needs one of your earlier ones"):
        await register(rig, further)
    with pytest.raises(Refused, match="none of yours"):
        await register(rig, further, by=device_of(rig))
    await register(rig, further, by=device)
    assert len(await Passkeys(rig.deps.store).list_of("main", "approver")) == 2
    acts = [(each.kind, facts_of(each)["act"]) for each in await rig.acts()]
    assert acts.count(("admin", "passkey added")) == 2
    assert acts.count(("attempt", "passkey refused")) == 2


async def test_registration_is_used_once(rig: GatewayRig) -> None:
    who = a_person("approver")
    registration = PasskeyRegistration(rig.deps)
    begun = await registration.begin(who)
    created = device_of(rig).create(begun.create["challenge"])
    await registration.finish(who, begun.nonce, created, None)
    with pytest.raises(Refused, match="used before"):
        await registration.finish(who, begun.nonce, created, None)


async def test_page_offers_the_passkey_and_its_registration(rig: GatewayRig) -> None:
    approval = await rig.asked("guarded")
    async with browser(rig) as page:
        page.base_url = "http://localhost:8300"
        await as_person(page, "approver")
        card = (await page.get(f"/approvals/{approval}")).text
        assert "Your passkey confirms your answer." in words(card)
        form = hidden(card, f"/approvals/{approval}/decide")
        refused = await page.post(f"/approvals/{approval}/decide", data={**form, "verdict": "approved", "typed": TYPED})
        assert refused.status_code == 403
        assert "it needs your passkey" in words(refused.text)
        assert hidden((await page.get("/passkeys")).text, "/passkeys")["nonce"] == ""


async def test_link_decides_nothing_and_names_the_inbox(rig: GatewayRig) -> None:
    approval = await rig.asked("guarded")
    expires = rig.deps.clock() + timedelta(hours=1)
    link = ApprovalLink(approval=approval, revision=1, person="approver", expires=expires)
    address = f"/link/{make_link(await rig.deps.store.secret_key(LINK_KEY), link)}"
    async with browser(rig) as page:
        shown = (await page.get(address)).text
    assert "Your passkey must confirm this decision. Sign in to the inbox" in words(shown)
    assert 'id="decide"' not in shown


async def assigned(rig: GatewayRig, approval: str, device: PasskeyDevice | None, to: str, confirmed: str) -> Response:
    address = f"/approvals/{approval}"
    async with browser(rig) as page:
        page.base_url = "http://localhost:8300"
        await as_person(page, "approver")
        form = {**hidden((await page.get(address)).text, f"{address}/assign"), "verdict": "handed_on"}
        if device is not None:
            options = (await page.post(f"{address}/passkey", data={**form, "to": confirmed})).json()
            proof = device.answer(options["public_key"]["challenge"], options["nonce"])
            form["passkey"] = proof.model_dump_json()
        return await page.post(f"{address}/assign", data={**form, "to": to})


async def test_hand_on_confirmed_by_a_passkey_counts(rig: GatewayRig, device: PasskeyDevice) -> None:
    approval = await rig.asked("guarded")
    assert (await assigned(rig, approval, device, "ana", "ana")).status_code == 303
    [vote] = (await rig.request(approval)).assignments
    assert (vote.decision.to, vote.decision.assurance) == ("ana", "present")
    assert presence_problem(vote.decision, rig.deps.verifier()) == ""
    assert (await rig.decide(approval, **await draft(rig, approval))).json()["code"] == "not_allowed"


@pytest.mark.parametrize(("proved", "confirmed"), [(False, "ana"), (True, "guest")], ids=["none", "another person"])
async def test_hand_on_without_its_own_passkey_is_refused(
    rig: GatewayRig, device: PasskeyDevice, proved: bool, confirmed: str
) -> None:
    approval = await rig.asked("guarded")
    answer = await assigned(rig, approval, device if proved else None, "ana", confirmed)
    assert answer.status_code == 403, words(answer.text)
    assert (await rig.request(approval)).assignments == ()
    assert await attempts(rig, approval) == [("assurance", "passkey_misfit" if proved else "passkey")]


async def test_challenge_of_an_outdated_hand_on_is_refused(rig: GatewayRig, device: PasskeyDevice) -> None:
    approval = await rig.asked("guarded")
    address = f"/approvals/{approval}"
    async with browser(rig) as page:
        page.base_url = "http://localhost:8300"
        await as_person(page, "approver")
        form = {**hidden((await page.get(address)).text, f"{address}/assign"), "verdict": "handed_on", "to": "ana"}
        for broken in ({"token": "x"}, {"verdict": "approved"}, {"to": ""}):
            assert (await page.post(f"{address}/passkey", data=form | broken)).status_code == 403
        answer = await page.post(f"{address}/assign", data=form | {"passkey": '{"nonce": 1}'})
        assert (answer.status_code, "no assertion of a passkey" in words(answer.text)) == (422, True)
        answer = await page.post(f"{address}/assign", data=form | {"passkey": "{"})
        assert answer.status_code == 422
    assert (await rig.request(approval)).assignments == ()


async def test_token_registers_no_passkey_in_production(rig: GatewayRig) -> None:
    locked = locked_rig(rig, public_url="http://localhost:8300")
    async with browser(locked) as page:
        page.base_url = "http://localhost:8300"
        await sign_in(page, await token_of(locked, "approver"))
        shown = await page.get("/passkeys")
        assert "A token is not enough." in words(shown.text)
        own = hidden(shown.text, "/logout")
        assert (await page.post("/passkeys/begin", data=own)).status_code == 403
        assert (await page.post("/passkeys", data=own)).status_code == 403


async def attempts(rig: GatewayRig, approval: str) -> list[tuple[str, str]]:
    records = await AuditLog(rig.deps.store).stream(turn_of(approval).workflow_id)
    found = [facts_of(each) for each in records if each.kind == "attempt"]
    return [(each.get("receipt", ""), each.get("why", "")) for each in found]


def facts_of(record: Record) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(record.data)
    return facts
