import uuid
from typing import Any

from attack_site import AttackSite, approval_id, payee, until
from impostor import Impostor

from signoff.contracts import names
from signoff.contracts.ids import TurnKey

GHOST = TurnKey("main", "ghost-1", "ghost-1")
GARBAGE: tuple[Any, ...] = ("garbage", None, {"x": 1}, ["a"], 7, {"calls": [{"call": "c1.1"}]})


async def summary(site: AttackSite, person: str, key: TurnKey) -> list[tuple[int, str]]:
    http, turn, session = site.person(person).http, ".".join(key), ".".join(key[:2])
    answers = [
        await http.get(f"/v1/turns/{turn}"),
        await http.get(f"/v1/turns/{turn}/events"),
        await http.get(f"/v1/turns/{turn}/transcript"),
        await http.get(f"/v1/turns/{turn}/calls/c1.1/rest"),
        await http.get(f"/v1/approvals/{approval_id(key)}"),
        await http.get(f"/v1/sessions/{session}"),
        await http.post(f"/v1/turns/{turn}/cancel", json={}),
        await http.post(f"/v1/sessions/{session}/results", json={"turn": key.turn, "text": "x"}),
    ]
    return [(each.status_code, each.text.replace(key.session, "X").replace(key.turn, "X")) for each in answers]


async def test_strangers_learn_nothing_while_no_worker_runs(site: AttackSite) -> None:
    # Waiting turns, ended turns and session turns look like missing ones. Before the fix a stranger got 503 for
    # existing and 404 for missing ones.
    rui, ana = site.person("rui"), site.person("ana")
    waits = await rui.ask([("pay", {"amount": 5, "to": payee()})])
    response = (await rui.say(f"s{uuid.uuid4().hex[:10]}", [("pay", {"amount": 7, "to": payee()})])).json()
    spoken = TurnKey("main", response["session"], response["turn"])
    over = await rui.ask([("look", {"place": "x"})])
    await rui.result(over)
    for key in (waits, spoken):
        await ana.waiting(approval_id(key))
    async with site.without("worker"):
        nothing = await summary(site, "zoe", GHOST)
        assert {status for status, _ in nothing} == {404}
        for key in (waits, spoken, over):
            assert await summary(site, "zoe", key) == nothing
        for person, status in (("rui", 503), ("ana", 503), ("adm", 503), ("zoe", 404)):
            assert (await site.person(person).http.get(f"/v1/turns/{'.'.join(waits)}")).status_code == status


async def test_card_stays_usable_when_its_turn_answers_nonsense(site: AttackSite, impostor: Impostor) -> None:
    # The turn answers every query with nonsense: card, list and batch are still drawn, and Ana can deny. Before the
    # fix the card's page was a 500, and so was a batch that contained it.
    to, rui, ana = payee(), site.person("rui"), site.person("ana")
    good = approval_id(await rui.ask([("pay", {"amount": 5, "to": payee()})]))
    key = await rui.ask([("pay", {"amount": 1, "to": to})])
    bad = approval_id(key)
    for each in (good, bad):
        await ana.waiting(each)
    view = (await impostor.view(key)).model_dump(mode="json")
    forged = await impostor.take_over(key, **{names.STATE: "garbage"})
    page = await site.browser("ana")
    odd = {**view, "calls": [{**view["calls"][0], "call": "../x", "stands_for": "y", "outcome": None}]}
    for answer in (*GARBAGE, {**view, "calls": [{"call": "c1.1"}]}, odd):
        await forged.forge(**{names.STATE: answer})
        shown, _ = await page.open(bad)
        assert (shown.status, to in shown.words) == (200, True), answer
        assert (await page.http.get("/batch", params={"pick": [good, bad]})).status_code == 200, answer
        api = await rui.http.get(f"/v1/turns/{'.'.join(key)}")
        assert api.status_code == (200 if answer is odd else 503), answer
    _, form = await page.open(bad)
    assert (await page.send(bad, form, "denied")).status_code == 303

    async def denied() -> bool:
        return (await ana.see(bad)).view["state"] == "denied"

    await until(denied)
