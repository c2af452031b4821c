import asyncio

import pytest
from gateway_login import browser, locked_rig, sign_in, token_of, words
from gateway_rig import GatewayRig
from sqlalchemy import text

from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.testing.builders import a_person

PEOPLE = (
    a_person("ana"),
    Person(id="olga", name="Olga", roles=("auditor",)),
    Person(id="zoe", tenant="acme", roles=("auditor",)),
)


async def denied(rig: GatewayRig, reason: str) -> tuple[str, str]:
    approval = await rig.asked("pay")
    await rig.decide(approval, verdict="denied", reason=reason, **{"as": "approver"})
    turn = approval.rpartition(".c1")[0]
    await rig.turns.signoff.result(TurnKey(*turn.split(".")))
    return turn, approval


async def test_audit_page_of_a_turn_shows_every_entry_escaped(rig: GatewayRig) -> None:
    turn, approval = await denied(rig, "<b>too</b> expensive")
    async with browser(rig) as page:
        for path in (f"/turns/{turn}", f"/approvals/{approval}"):
            assert f'href="/audit/{turn}"' in (await page.get(path)).text, path
        shown = (await page.get(f"/audit/{turn}")).text
    page_text = words(shown)
    assert "Verified: no entry is changed, missing or out of place." in page_text
    assert "Approver (approver)" in page_text
    assert "&lt;b&gt;too&lt;/b&gt; expensive" in shown
    assert "<b>too" not in shown
    assert shown.count('<li class="" id="r') >= 4
    assert f'href="/turns/{turn}"' in shown


async def test_session_page_links_the_audit_log_of_each_turn(rig: GatewayRig) -> None:
    body = (await rig.http.post("/v1/sessions/timeline/messages", json={"text": "hello", "actor": "desk"})).json()
    async with browser(rig) as page:
        async with asyncio.timeout(60):
            while "/audit/" not in (shown := (await page.get("/sessions/main.timeline")).text):
                await asyncio.sleep(0.1)
    assert f'href="/audit/main.timeline.{body["turn"]}"' in shown


@pytest.mark.usefixtures("nothing_waits")
async def test_acts_outside_turns_have_their_own_page(rig: GatewayRig) -> None:
    await rig.http.post("/v1/freezes?as=approver", json={"reason": "drill"})
    await rig.http.request("DELETE", "/v1/freezes/main?as=approver", json={})
    async with browser(rig) as page:
        assert 'href="/audit/admin%2Fmain"' in (await page.get("/freeze")).text
        page_text = words((await page.get("/audit/admin%2Fmain")).text)
        missing = await page.get("/audit/main.nothing.nothing")
    assert "Events in main outside turns" in page_text
    assert "drill" in page_text
    assert (missing.status_code, "Nothing is recorded of" in words(missing.text)) == (404, True)


async def test_page_of_acts_outside_turns_exists_before_the_first_act(rig: GatewayRig) -> None:
    async with browser(rig) as page:
        await page.get("/freeze")
        empty = await page.get("/audit/admin%2Fmain")
    assert (empty.status_code, "No entries yet" in words(empty.text)) == (200, True)


async def test_changed_audit_entry_is_marked_on_the_page(rig: GatewayRig) -> None:
    turn, _ = await denied(rig, "no")
    change = text("UPDATE audit_records SET subject = 'mallory', at = 'long ago' WHERE stream = :stream AND seq = 2")
    stream = f"turn/{turn.replace('.', '/')}"
    await rig.deps.store.run(lambda connection: connection.execute(change, {"stream": stream}))
    async with browser(rig) as page:
        shown = (await page.get(f"/audit/{turn}")).text
    assert "Verification failed: " in words(shown)
    assert '<li class="broken" id="r2">' in shown
    assert shown.count('class="broken"') == 1
    assert "no time · mallory" in words(shown)


async def test_only_auditors_of_the_tenant_see_the_audit_log_and_its_links(rig: GatewayRig) -> None:
    turn, approval = await denied(rig, "no")
    locked = locked_rig(rig, people=PEOPLE)
    found = {}
    for person, tenant in (("ana", "main"), ("olga", "main"), ("zoe", "acme")):
        async with browser(locked) as page:
            await sign_in(page, await token_of(locked, person, "read", "decide", tenant=tenant))
            answer = await page.get(f"/audit/{turn}")
            card = await page.get(f"/approvals/{approval}")
            found[person] = (answer.status_code, f"/audit/{turn}" in card.text)
    assert found == {"ana": (403, False), "olga": (200, True), "zoe": (404, False)}


@pytest.mark.row("F19")
async def test_traced_call_shows_the_tool_of_its_name_in_the_conversation(rig: GatewayRig) -> None:
    traced, plain = [(await rig.asked("pay", **more)).rpartition(".c1")[0] for more in ({"trace": True}, {})]
    locked = locked_rig(rig, people=PEOPLE)
    async with browser(rig) as page:
        assert "tool `pay`: pay (" in words((await page.get(f"/turns/{traced}")).text)
        assert "tool `pay`: pay (" not in words((await page.get(f"/turns/{plain}")).text)
    found = {}
    for person in ("ana", "olga"):
        async with browser(locked) as page:
            await sign_in(page, await token_of(locked, person, "read", "decide"))
            answer = await page.get(f"/turns/{traced}")
            found[person] = (answer.status_code, "tool `pay`: pay (" in words(answer.text))
    assert found == {"ana": (200, False), "olga": (200, True)}
