"""Attack 18: a session that was terminated is begun anew by somebody else, who so reads its old turns."""

import uuid

from attack_site import AttackSite, approval_id, payee, until
from impostor import Impostor

from signoff.contracts.ids import SessionKey, TurnKey


async def taken_over(site: AttackSite, impostor: Impostor, to: str) -> TurnKey:
    session = f"s{uuid.uuid4().hex[:12]}"
    response = await site.person("rui").say(session, [("pay", {"amount": 9, "to": to})])
    assert response.status_code in (200, 201, 202), response.text
    key = TurnKey("main", response.json()["session"], response.json()["turn"])
    await site.person("ana").waiting(approval_id(key))
    await impostor.client.get_workflow_handle(SessionKey("main", key.session).workflow_id).terminate()
    for name in (session, key.session):
        await site.person("max").say(name, [])
    return key


async def test_the_turns_of_a_session_stay_their_requesters(site: AttackSite, impostor: Impostor) -> None:
    # Max reads nothing of Rui's turn: not over the API, not on a page, not in the session's own view. With a session
    # whoever's said something in it first, by its bare name (`own_session` giving back every name as it is,
    # `Conversations.of_session` believing the view), Max was answered 200 four times.
    to = payee()
    key = await taken_over(site, impostor, to)
    max_, page = site.person("max").http, (await site.browser("max")).http
    turn, session = ".".join(key), ".".join(key[:2])
    read = [
        await max_.get(f"/v1/turns/{turn}"),
        await max_.get(f"/v1/approvals/{approval_id(key)}"),
        await page.get(f"/turns/{turn}"),
        await page.get(f"/approvals/{approval_id(key)}"),
    ]
    assert [answer.status_code for answer in read] == [404, 404, 404, 404]
    listed = await max_.get(f"/v1/sessions/{session}")
    assert to not in listed.text


async def test_whose_turn_it_was_still_reads_it(site: AttackSite, impostor: Impostor) -> None:
    # Rui still reads it, and Ana still decides it. With a session by its bare name in `own_session`, and its turns read
    # by whose it is alone in `Conversations.turn`, Rui was answered 404.
    to, rui = payee(), site.person("rui")
    key = await taken_over(site, impostor, to)
    assert (await rui.turn(key))["requester"]["user"] == "rui"
    assert (await site.person("ana").approve(approval_id(key)))["status"] == "accepted"

    async def ran() -> bool:
        return site.amounts(to) == [9]

    await until(ran)


async def test_an_ended_sessions_name_goes_back_to_its_own_owner(site: AttackSite, impostor: Impostor) -> None:
    # After the takeover Rui says something in his session by its id, and is heard; by its name it is the same one. With
    # `own_session` giving back every name as it is, Rui was refused as in somebody else's, as the first to speak there
    # owned it.
    key = await taken_over(site, impostor, payee())
    answer = await site.person("rui").say(key.session, [])
    assert answer.status_code in (200, 201, 202), answer.text
    assert answer.json()["session"] == key.session
