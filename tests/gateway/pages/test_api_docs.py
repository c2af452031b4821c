import re

from gateway_login import browser, locked_rig, sign_in, token_of, words
from gateway_rig import GatewayRig

from signoff.gateway.pages.api_docs import FieldRow, operations


async def test_docs_page_shows_every_operation(gateway: GatewayRig) -> None:
    async with browser(gateway) as page:
        answer = await page.get("/docs")
    assert answer.status_code == 200
    shown = words(answer.text)
    described = gateway.app.openapi()
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in shown
    assert "question_hash body" in shown
    assert "Needs a token with the scope decide" in shown
    assert "409 Receipt Already decided" in shown
    sources = re.findall(r'(?:src|href)="([^"]*)"', answer.text)
    assert all(each.startswith(("/", "#")) for each in sources)
    assert "<script>" not in answer.text


async def test_docs_page_needs_a_sign_in(gateway: GatewayRig) -> None:
    locked = locked_rig(gateway)
    async with browser(locked) as page:
        assert (await page.get("/docs")).headers["location"] == "/login?next=%2Fdocs"
        await sign_in(page, await token_of(locked, "ana"))
        assert "POST /v1/turns" in words((await page.get("/docs")).text)


def test_body_fields_are_found_through_references(gateway: GatewayRig) -> None:
    found = {(each.method, each.path): each for _, each in operations(gateway.app.openapi())}
    assert [field.name for field in found["POST", "/v1/approvals/{approval}/withdraw"].fields if field.where == "body"]
    decide = found["POST", "/v1/approvals/{approval}/decide"]
    verdict = next(field for field in decide.fields if field.name == "verdict")
    text = "For an unknown outcome: it did not happen and may run, give up, or it happened."
    assert verdict == FieldRow("verdict", "approved | denied | answered | happened", "body", True, text)
    assert (found["GET", "/healthz"].scope, decide.scope) == ("", "decide")
