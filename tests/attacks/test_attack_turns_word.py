"""Whoever stands under a turn's id lets others read it, says that it ran or who approved it, or tells nonsense."""

from typing import Any

import pytest
from attack_site import AttackSite, approval_id, payee
from impostor import Impostor

from signoff.contracts import names
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.ids import TurnKey
from signoff.contracts.turn import CallView, TurnView
from signoff.formats.replace import replace

pytestmark = pytest.mark.timeout(300)


async def waiting_turn(site: AttackSite, impostor: Impostor, to: str) -> tuple[TurnKey, TurnView]:
    """A turn of Rui's that waits for a payment of 9,400 EUR, and its view."""
    key = await site.person("rui").ask([("pay", {"amount": 9_400, "to": to})])
    await site.person("ana").waiting(approval_id(key))
    return key, await impostor.view(key)


def ok(call: str, tool: str, **fields: Any) -> CallOutcome:
    return CallOutcome(call=call, tool=tool, code="ok", gate="execute", value=Content(inline="paid"), **fields)


async def test_a_turn_lets_nobody_read_it_by_its_word(site: AttackSite, impostor: Impostor) -> None:
    # It says that Zoe asked for it: the request, its values and the turn are not there for her all the same. Without
    # `GatewayDeps.asker` she was given all of it.
    to, zoe = payee(), site.person("zoe")
    key, view = await waiting_turn(site, impostor, to)
    lie = replace(view, requester=replace(view.requester, user="zoe"))
    await impostor.take_over(key, **{names.STATE: lie.model_dump(mode="json")})
    request = f"/v1/approvals/{approval_id(key)}"
    answers = [await zoe.http.get(each) for each in (request, f"{request}/values", f"/v1/turns/{'.'.join(key)}")]
    assert [(each.status_code, to in each.text) for each in answers] == [(404, False)] * 3
    assert (await site.person("rui").http.get(request)).status_code == 200


async def test_a_turn_shows_nothing_of_another_turn(site: AttackSite, impostor: Impostor) -> None:
    # Zoe's own turn names Rui's request as its own, then says that it is Rui's turn: she reads nothing of it. Without
    # the comparison of ids in `TurnClient.view` and `proof._request` she read it, with its arguments.
    to, zoe = payee(), site.person("zoe")
    _, theirs = await waiting_turn(site, impostor, to)
    own = await zoe.ask([("pay", {"amount": 1, "to": payee()})])
    await site.person("ana").waiting(approval_id(own))
    mine = await impostor.view(own)
    named = replace(mine, calls=theirs.calls)
    forged = await impostor.take_over(own, **{names.STATE: named.model_dump(mode="json")})
    first = await zoe.http.get(f"/v1/turns/{'.'.join(own)}")
    await forged.forge(**{names.STATE: theirs.model_dump(mode="json")})
    second = await zoe.http.get(f"/v1/turns/{'.'.join(own)}")
    assert [to in each.text for each in (first, second)] == [False, False]
    assert (first.status_code, second.status_code) == (200, 503)


@pytest.mark.parametrize("way", ["a fallback", "another turn", "the result alone", "another tool"])
async def test_a_turn_says_of_nothing_that_it_ran_or_who_approved_it(
    way: str, site: AttackSite, impostor: Impostor
) -> None:
    # A tip has run; the turn says that it was the payment that Ana approved. Each was shown as run, or as approved by
    # Ana, without its line in `proof.py`: the ids of fallbacks, the turn that is looked at, the look at the result's
    # calls, the comparison of tools.
    to, ana = payee(), site.person("ana")
    tipped = await site.person("rui").ask([("tip", {"amount": 1, "to": to})])
    await site.person("rui").result(tipped)
    key, view = await waiting_turn(site, impostor, to) if way == "another turn" else (tipped, None)
    view = view or await impostor.view(key)
    lie = ok("c1.1", "pay", decided_by="ana", edited_by="bo")
    paid = CallView(call="c1.1", tool="pay", state="ok", outcome=lie)
    changes: dict[str, Any] = {"calls": (paid,)}
    if way == "a fallback":
        other = replace(lie, call="c1.2")
        tip = CallView(call="c1.1", tool="tip", state="ok", outcome=ok("c1.1", "tip"), stands_for="c1.2")
        changes = {"calls": (tip, CallView(call="c1.2", tool="pay", state="ok", outcome=other))}
    elif way == "another turn":
        changes |= {"session": tipped.session, "turn": tipped.turn}
    elif way == "the result alone":
        assert view.result is not None
        changes = {"calls": (), "result": replace(view.result, calls=(lie,))}
    forged = replace(view, **changes).model_dump(mode="json")
    await (impostor.take_over if way == "another turn" else impostor.stand)(key, **{names.STATE: forged})
    answer = await site.person("adm").http.get(f"/v1/turns/{'.'.join(key)}")
    body = answer.json() if answer.status_code == 200 else {"calls": []}
    outcomes = [each["outcome"] for each in body["calls"] if each["tool"] == "pay"]
    outcomes += [each for each in (body.get("result") or {"calls": []})["calls"] if each["tool"] == "pay"]
    assert [each["code"] for each in outcomes if each["code"] == "ok"] == []
    assert [each for each in outcomes if each["decided_by"] or each["edited_by"]] == []
    assert ana.name == "ana"


@pytest.mark.parametrize("nonsense", [None, {"x": 1}, "hello", {"calls": [{"call": "c1.1"}]}])
async def test_a_card_is_drawn_whatever_its_turn_says(nonsense: Any, site: AttackSite, impostor: Impostor) -> None:
    # The turn answers queries with nonsense: its card is shown from the store, and can be denied. Without the last
    # clause of `RunClient.query` the page was an error.
    to, bo = payee(), await site.browser("bo")
    key, _ = await waiting_turn(site, impostor, to)
    await impostor.take_over(key, **{names.STATE: nonsense})
    shown, fields = await bo.open(approval_id(key))
    assert (shown.status, to in shown.words) == (200, True)
    await bo.send(approval_id(key), fields, "denied")
    assert (await site.person("ana").see(approval_id(key))).view["state"] == "denied"


async def test_without_a_worker_strangers_are_told_nothing(site: AttackSite, impostor: Impostor) -> None:
    # While no worker runs, what waits is answered to Zoe like what is not there, whatever she tries. Without
    # `Conversations._reads_turn` she was told 503 for what was there and 404 for what was not.
    zoe = site.person("zoe")
    key, _ = await waiting_turn(site, impostor, payee())
    response = await site.person("rui").say("accounts", [("pay", {"amount": 5, "to": payee()})])
    session = response.json()["session"]
    ghost = TurnKey(key.tenant, key.session, "ghost")
    async with site.without("worker"):
        for there, not_there in ((".".join(key), ".".join(ghost)),):
            for end in ("", "/events", "/transcript"):
                answers = [await zoe.http.get(f"/v1/turns/{each}{end}") for each in (there, not_there)]
                assert len({each.status_code for each in answers}) == 1, [each.text for each in answers]
            stopped = [await zoe.http.post(f"/v1/turns/{each}/cancel", json={}) for each in (there, not_there)]
            assert {each.status_code for each in stopped} == {404}, [each.text for each in stopped]
        found = [await zoe.http.get(f"/v1/sessions/{each}") for each in (session, f"{session[:-1]}0")]
        assert len({each.status_code for each in found}) == 1, [each.text for each in found]
