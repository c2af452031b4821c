import re

import httpx2
import pytest
from gateway_login import hidden
from gateway_rig import BASE, GatewayRig
from starlette.requests import Request
from tables import table
from test_pages import opened, send, words

from signoff.approvals.request_state import ENDINGS
from signoff.gateway.languages import language_for
from signoff.languages.catalogue import ENGLISH, language_codes, texts_of


def browser(gateway: GatewayRig) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=gateway.app), base_url=BASE, headers={"sec-fetch-site": "same-origin"}
    )


def asking(accept: str = "", cookie: str = "") -> Request:
    headers = [(b"accept-language", accept.encode())] if accept else []
    headers += [(b"cookie", f"signoff_language={cookie}".encode())] if cookie else []
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers})


@table(
    ("accept", "cookie", "locale", "language"),
    ("", "", "en", "en"),
    ("de-CH,en;q=0.8", "", "", "de"),
    ("de-CH,en;q=0.8", "", "en", "en"),
    ("de-CH,en;q=0.8", "", "en-GB", "en"),
    ("fr", "", "sv", "fr"),
    ("ja, fr;q=0.5, it;q=0.9", "", "", "it"),
    ("fr;q=0, pt", "", "", "pt"),
    ("fr", "", "de-AT", "de"),
    ("fr", "es", "de-AT", "es"),
    ("fr", "en", "de-AT", "en"),
    ("fr", "ja", "de-AT", "de"),
    ("*", "<script>", "xx", "en"),
    (";q=x,,;=;q=nan,de;q=x", "", "", "en"),
    ("x," * 500 + "de", "", "", "en"),
)
def test_language_is_the_chosen_one_then_the_directorys_then_the_browsers(
    accept: str, cookie: str, locale: str, language: str
) -> None:
    assert language_for(asking(accept, cookie), locale) == language


@pytest.mark.parametrize("language", sorted(set(language_codes()) - {ENGLISH}))
async def test_card_is_completely_translated(gateway: GatewayRig, language: str) -> None:
    approval = await gateway.asked("pay")
    texts = texts_of(language)
    english = {
        words.partition("{")[0]
        for key, words in texts_of(ENGLISH).items()
        if len(words.partition("{")[0].split()) > 2 and texts[key] != words
    }
    async with browser(gateway) as page:
        page.headers["accept-language"] = language
        card = await page.get(f"/approvals/{approval}")
        answer = await send(page, approval, hidden(card.text, f"/approvals/{approval}/decide"), verdict="approved")
    for shown in (card.text, answer.text):
        assert f'<html lang="{language}">' in shown
        assert [each for each in english if each in words(shown)] == []
    assert texts["button.approve"] in words(card.text)
    assert texts["ended.approved"].format(who=f"Approver ({texts['receipt.you']})") in words(answer.text)


async def test_language_is_chosen_on_any_page_without_a_script(gateway: GatewayRig) -> None:
    async with browser(gateway) as page:
        first = await page.get("/turns?state=running")
        form = hidden(first.text, "/language")
        assert (form["next"], '<option value="en" lang="en" selected>' in first.text) == ("/turns?state=running", True)
        back = await page.post("/language", data={**form, "language": "it"})
        assert (back.status_code, back.headers["location"]) == (303, "/turns?state=running")
        assert "Conversazioni" in words((await page.get("/turns")).text)


@table("form", {"language": "it", "token": "forged"}, {"language": "xx"}, {"language": "../en"}, {"language": ""})
async def test_forged_language_form_changes_nothing(gateway: GatewayRig, form: dict[str, str]) -> None:
    async with browser(gateway) as page:
        sent = {**hidden((await page.get("/turns")).text, "/language"), **form, "next": "//evil.example"}
        back = await page.post("/language", data=sent)
        assert (back.status_code, back.headers["location"]) == (303, "/")
        assert "signoff_language" not in page.cookies


async def test_error_page_is_translated_around_its_english_message(gateway: GatewayRig) -> None:
    async with browser(gateway) as page:
        page.headers["accept-language"] = "de"
        missing = await page.get("/approvals/default.s.t.c1.1")
        assert texts_of("de")["error.why.404"] in words(missing.text)
        assert re.search(r'<p class="quiet" lang="en">There is no ', missing.text)
        approval = await gateway.asked("pay")
        refused = await send(page, approval, await opened(page, approval), verdict="maybe")
        assert texts_of("de")["note.no_verdict"] in words(refused.text)
        assert hidden(refused.text, "/language")["next"] == "/"


async def test_numbers_and_times_follow_the_language(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(gateway) as page:
        page.headers["accept-language"] = "de"
        assert "420,00 EUR" in words((await page.get(f"/approvals/{approval}")).text)
        page.headers["accept-language"] = "en"
        assert "420.00 EUR" in words((await page.get(f"/approvals/{approval}")).text)


async def test_api_client_gets_the_language_that_it_requests(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    url = f"/v1/approvals/{approval}/withdraw"
    for headers, language in (({"accept-language": "fr"}, "fr"), ({"accept-language": "ja"}, "en"), ({}, "en")):
        answer = await gateway.http.post(url, params={"as": "bo"}, json={}, headers=headers)
        words = texts_of(language)
        found = words["note.refused"].format(why=words["why.withdraw"])
        assert (answer.json()["code"], answer.json()["message"]) == ("not_allowed", found)
    done = await gateway.http.post(url, params={"as": "guest"}, json={}, headers={"accept-language": "it"})
    assert done.json()["message"] == texts_of("it")["receipt.accepted.withdrawn"]


async def test_persons_reason_is_not_translated(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    reason, url = ENDINGS["superseded"], f"/v1/approvals/{approval}/withdraw"
    assert (await gateway.http.post(url, params={"as": "guest"}, json={"reason": reason})).status_code == 200
    async with browser(gateway) as page:
        page.headers["accept-language"] = "de"
        shown = (await page.get(f"/approvals/{approval}")).text
    assert reason in words(shown)
    assert texts_of("de")["ended_as.superseded"] not in words(shown)


async def test_edit_errors_are_translated(gateway: GatewayRig) -> None:
    approval = await gateway.asked("book")
    path = f"/approvals/{approval}/edit"
    async with browser(gateway) as page:
        page.headers["accept-language"] = "de"
        form = hidden((await page.get(path)).text, path)
        wrong = await page.post(path, data={**form, "args/cost": "viel", "step": "review"})
        assert "Muss eine Zahl sein, etwa 380 oder 12.5." in words(wrong.text)
        assert "must be" not in wrong.text


async def test_audit_log_page_is_completely_translated(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    await gateway.decide(approval, verdict="denied", reason="zu teuer", **{"as": "approver"})
    turn = approval.rpartition(".c1")[0]
    async with browser(gateway) as page:
        page.headers["accept-language"] = "de"
        shown = words((await page.get(f"/audit/{turn}")).text)
    assert "braucht Genehmigung (Regel" in shown
    assert "hat geantwortet: Abgelehnt (über" in shown
    assert [each for each in ("needs approval", "answered", "the request for", "asked ") if each in shown] == []
