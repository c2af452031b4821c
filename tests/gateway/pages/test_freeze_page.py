import re

import pytest
from gateway_login import browser, hidden, locked_rig, sign_in, token_of, words
from gateway_rig import GatewayRig

from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.person import Person
from signoff.store.freezes import Freezes
from signoff.testing.builders import a_person

pytestmark = pytest.mark.usefixtures("nothing_waits")

PEOPLE = (
    Person(id="olga", name="Olga", roles=("admin",)),
    a_person("ana", name="Ana"),
    Person(id="zoe", name="Zoe", tenant="acme", roles=("admin",)),
)


async def test_freeze_and_unfreeze_by_form(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    async with browser(rig) as page:
        form = hidden((await page.get("/freeze")).text, "/freeze")
        frozen = await page.post("/freeze", data={**form, "reason": " a stolen laptop ", "sure": "yes"})
        assert (frozen.status_code, "Frozen. Withdrawn requests: " in words(frozen.text)) == (200, True)
        assert (await rig.turns.signoff.request(approval)).state == "cancelled"
        for path in ("/", "/turns", "/tools", "/sessions", "/freeze"):
            shown = words((await page.get(path)).text)
            assert "Frozen by Approver: no calls start in main" in shown, path
            assert re.search(r"Since \d\d:\d\d UTC ?\. Reason: a stolen laptop", shown), path
        again = await page.post("/freeze", data=hidden((await page.get("/freeze")).text, "/freeze"))
        assert (again.status_code, "Withdrawn requests: 0." in words(again.text)) == (200, True)
        form = hidden((await page.get("/freeze")).text, "/unfreeze")
        unfrozen = await page.post("/unfreeze", data=form)
        assert (unfrozen.status_code, unfrozen.headers["location"]) == (303, "/freeze?unfrozen=1")
        shown = words((await page.get("/freeze?unfrozen=1")).text)
        assert ("Unfrozen." in shown, "Frozen by" in shown) == (True, False)
        assert (await page.post("/unfreeze", data=form)).status_code == 303
    acts = [
        (record.subject, record.facts["act"], record.facts.get("reason"), record.facts["channel"])
        for record in await rig.acts()
    ]
    assert acts == [("approver", "freeze", "a stolen laptop", "inbox"), ("approver", "unfreeze", None, "inbox")]


@pytest.mark.parametrize(
    ("fields", "status", "expected"),
    [
        ({"reason": "drill"}, 422, "tick the box"),
        ({"reason": " ", "sure": "yes"}, 422, "write a reason"),
        ({"reason": "x" * (REASON_CHARS + 1), "sure": "yes"}, 422, "write a reason"),
        ({"reason": "drill", "sure": "yes", "token": "0" * 64}, 403, "out of date"),
    ],
)
async def test_freeze_form_needs_token_reason_and_confirmation(
    rig: GatewayRig, fields: dict[str, str], status: int, expected: str
) -> None:
    async with browser(rig) as page:
        form = hidden((await page.get("/freeze")).text, "/freeze")
        shown = await page.post("/freeze", data={**form, **fields})
    assert (shown.status_code, expected in words(shown.text)) == (status, True), shown.text
    assert fields["reason"].strip() in shown.text
    assert await Freezes(rig.deps.store).read("main") is None


async def test_only_an_operator_sees_and_uses_the_freeze_page(rig: GatewayRig) -> None:
    locked = locked_rig(rig, people=PEOPLE)
    async with browser(locked) as olga, browser(locked) as ana, browser(locked) as zoe:
        for page, person, tenant in ((olga, "olga", "main"), (ana, "ana", "main"), (zoe, "zoe", "acme")):
            await sign_in(page, await token_of(locked, person, tenant=tenant))
        mine, other = (await olga.get("/")).text, (await ana.get("/")).text
        assert ('href="/freeze"' in mine, 'href="/freeze"' in other) == (True, False)
        form = hidden((await olga.get("/freeze")).text, "/freeze")
        assert "Only people with the role admin" in words((await ana.get("/freeze")).text)
        stolen = await ana.post("/freeze", data={**form, "reason": "drill", "sure": "yes"})
        assert stolen.status_code == 403
        assert await Freezes(rig.deps.store).read("main") is None
        frozen = await olga.post("/freeze", data={**form, "reason": "drill", "sure": "yes"})
        assert frozen.status_code == 200
        assert "Frozen by Olga" in words((await ana.get("/")).text)
        assert "Frozen" not in words((await zoe.get("/")).text)
        assert (await ana.post("/unfreeze", data=hidden(frozen.text, "/unfreeze"))).status_code == 403
        assert (await Freezes(rig.deps.store).read("main")) is not None
        assert (await olga.post("/unfreeze", data=hidden(frozen.text, "/unfreeze"))).status_code == 303


async def test_open_freeze_page_is_refused_after_the_role_is_removed(rig: GatewayRig) -> None:
    locked = locked_rig(rig, people=[Person(id="olga", roles=("admin",))])
    secret = await token_of(locked, "olga")
    async with browser(locked) as page:
        await sign_in(page, secret)
        form = hidden((await page.get("/freeze")).text, "/freeze")
        cookies = dict(page.cookies)
    later = locked_rig(rig, people=[Person(id="olga")])
    async with browser(later) as page:
        page.cookies.update(cookies)
        shown = await page.post("/freeze", data={**form, "reason": "drill", "sure": "yes"})
    assert (shown.status_code, "this needs the role `admin`" in words(shown.text)) == (403, True)
    assert await Freezes(rig.deps.store).read("main") is None
