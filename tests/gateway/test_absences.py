from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
from gateway_login import as_person, browser, hidden, words
from gateway_rig import SIGNER, GatewayRig
from sqlalchemy import update

from signoff.contracts.person import Absence
from signoff.formats.replace import replace
from signoff.gateway.absence_service import list_absences
from signoff.people.absences import is_signed
from signoff.store.questions.absences import Absences
from signoff.store.tables import ABSENCES


def soon(**span: float) -> str:
    return (datetime.now(UTC) + timedelta(**span)).isoformat()


async def said(rig: GatewayRig, person: str, **body: Any) -> httpx2.Response:
    return await rig.http.post("/v1/absences", params={"as": person}, json=body)


async def test_absence_is_stored_signed_and_recorded_until_the_return(gateway: GatewayRig) -> None:
    first = await said(gateway, "ana", until=soon(hours=2))
    assert first.status_code == 200, first.text
    second = await said(gateway, "ana", until=soon(hours=3), tools=["pay"], to="bo")
    absence = Absence.model_validate(second.json())
    assert (absence.person, absence.tools, absence.to) == ("ana", ("pay",), "bo")
    assert is_signed(absence, SIGNER.verifier())
    assert not is_signed(replace(absence, person="bo"), SIGNER.verifier())
    listed = (await gateway.http.get("/v1/absences")).json()["absences"]
    assert [each["until"] for each in listed] == [second.json()["until"]]
    back = [await gateway.http.request("DELETE", "/v1/absences", params={"as": "ana"}, json={}) for _ in range(2)]
    assert (back[0].json(), back[1].status_code) == ({"absences": []}, 404)
    acts = [
        (each.subject, each.facts["act"]) for each in await gateway.acts() if each.facts.get("act") in ("away", "back")
    ]
    assert acts == [("ana", "away"), ("ana", "away"), ("ana", "back")]


async def test_impossible_absences_are_refused(gateway: GatewayRig) -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"until": soon(hours=-1)}, "a time after `since`"),
        ({"until": soon(days=400)}, "within 366 days"),
        ({"since": soon(hours=3), "until": soon(hours=2)}, "a time after `since`"),
        ({"until": "2099-01-01T00:00:00"}, "its zone"),
        ({"until": soon(hours=1), "tools": ["nothing"]}, "there is no tool"),
        ({"until": soon(hours=1), "to": "ana"}, "not another active person"),
        ({"until": soon(hours=1), "to": "gone"}, "not another active person"),
    )
    for body, sentence in cases:
        answer = await said(gateway, "ana", **body)
        assert (answer.status_code, answer.json()["code"]) == (422, "malformed"), answer.text
        assert sentence in answer.json()["message"]
    assert [each for each in await Absences(gateway.deps.store).list_of("main") if each.person == "ana"] == []


async def test_forged_absence_does_not_count(gateway: GatewayRig) -> None:
    await said(gateway, "ana", until=soon(hours=2))
    (absence,) = await list_absences(gateway.deps, "main")
    forged = replace(absence, until=absence.until + timedelta(days=1)).model_dump_json()
    await gateway.deps.store.run(lambda connection: connection.execute(update(ABSENCES).values(body=forged)).close())
    assert await list_absences(gateway.deps, "main") == ()


async def test_page_takes_an_absence_without_scripts_and_the_card_shows_it(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    until = f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%dT%H:%M}"
    async with browser(gateway) as page:
        await as_person(page, "ana")
        form = hidden((await page.get("/away")).text, "/away")
        bad = await page.post("/away", data={**form, "until": ""})
        assert (bad.status_code, "Nothing was saved" in words(bad.text)) == (422, True)
        assert (await page.post("/away", data={**form, "token": "x", "until": until})).status_code == 403
        done = await page.post("/away", data={**form, "until": until, "to": "approver"}, follow_redirects=True)
        assert (done.status_code, "I am back" in words(done.text)) == (200, True)
        await as_person(page, "approver")
        card = words((await page.get(f"/approvals/{approval}")).text)
        assert "Ana is away until" in card
        assert "Ask Approver instead." in card
        await as_person(page, "ana")
        form = hidden((await page.get("/away")).text, "/away")
        back = await page.post("/away", data={**form, "back": "yes"}, follow_redirects=True)
        assert "Save" in words(back.text)
    assert await list_absences(gateway.deps, "main") == ()
