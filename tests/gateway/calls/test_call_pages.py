import re
from dataclasses import replace

from call_rig import CallRig, approval_of
from gateway_login import browser, words

from signoff.gateway.app import build_app


async def test_page_shows_that_the_agent_runs_its_call(agent: CallRig) -> None:
    call = (await agent.propose(euro=200)).json()["id"]
    async with browser(agent.rig) as page:

        async def shown(of: str) -> str:
            return words((await page.get(f"/turns/{of}")).text)

        assert "Run by coder itself" not in await shown(call)
        await agent.decide(call)
        await agent.show(call, wait=20)
        assert "Approved by Approver, may run Run by coder itself, outside Signoff." in await shown(call)
        await agent.use(call)
        assert "Approved by Approver, released to the agent, no report yet Run by coder itself" in await shown(call)
        await agent.report(call)
        assert "Run by coder itself, outside Signoff." in await shown(call)
        own = (await agent.propose(tool="pay", args={"amount": 20})).json()["id"]
        assert "Run by coder itself" not in await shown(own)
        undeclared = {"agent": "roamer", "tool": "Shell", "args": {"command": "ls"}}
        asked = (await agent.propose(**undeclared)).json()["id"]
        await agent.decide(asked)
        await agent.show(asked, wait=20, agent="roamer")
        assert "Run by roamer itself" in await shown(asked)
        record = words((await page.get(f"/audit/{call}")).text)
    assert "coder" in record


async def test_proposal_is_shown_as_the_agents_and_not_as_a_persons_message(agent: CallRig) -> None:
    call = (await agent.propose(euro=200, says="charged twice")).json()["id"]
    async with browser(agent.rig) as page:
        shown = (await page.get(f"/turns/{call}")).text
    talk = words(shown)
    assert "<h1>coder: refund</h1>" in shown
    assert "coder charged twice" in talk
    assert "Guest coder: refund" not in talk


async def test_message_form_offers_no_external_agent(agent: CallRig) -> None:
    async with browser(agent.rig) as page:
        form = (await page.get("/new")).text
    actors = form[form.index('name="actor"') : form.index('name="user"')]
    assert re.findall(r'<option value="(\w+)"', actors) == ["desk"]


async def test_pages_without_an_actor_for_messages_link_to_no_form(agent: CallRig) -> None:
    call = (await agent.propose(euro=200)).json()["id"]
    catalog = agent.rig.deps.catalog
    actors = {name: each for name, each in catalog.actors.items() if each.external is not None}
    deps = replace(agent.rig.deps, catalog=replace(catalog, actors=actors))
    alone = replace(agent.rig, app=build_app(deps), deps=deps)
    async with browser(alone) as page:
        talk = await page.get(f"/turns/{call}")
        form = words((await page.get("/new")).text)
    assert (talk.status_code, "/new" in talk.text) == (200, False)
    assert "No agent here takes messages." in form


async def test_lookalike_letters_are_marked_in_lists_and_conversations_as_on_the_card(agent: CallRig) -> None:
    forged = {"order": "\u0430na@bank.example", "euro": 200}
    call = (await agent.propose(args=forged)).json()["id"]
    marked = "Refund 200 EUR for \u0430⟦U+0430⟧na@bank.example"
    async with browser(agent.rig) as page:
        for path in ("/", f"/turns/{call}", f"/approvals/{approval_of(call)}"):
            shown = words((await page.get(path)).text)
            assert (marked in shown, "for \u0430na" in shown) == (True, False), path
    listed = (await agent.http.get("/v1/approvals")).json()
    assert marked in {each["effect"] for each in listed["approvals"]}
