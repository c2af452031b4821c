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


async def test_turns_of_a_taken_over_session_stay_with_their_requester(site: AttackSite, impostor: Impostor) -> None:
    # Max reads nothing of Rui's turn over the API, on a page, or in the session's view. With sessions owned by their
    # first speaker under the bare name (`own_session` returning every name unchanged, `Conversations.of_session`
    # believing the view), Max got 200 four times.
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


async def test_requester_still_reads_a_turn_of_a_taken_over_session(site: AttackSite, impostor: Impostor) -> None:
    # Rui still reads it, and Ana still decides it. With the bare session name in `own_session`, and turns readable
    # only by the session's owner in `Conversations.turn`, Rui got 404.
    to, rui = payee(), site.person("rui")
    key = await taken_over(site, impostor, to)
    assert (await rui.turn(key))["requester"]["user"] == "rui"
    assert (await site.person("ana").approve(approval_id(key)))["status"] == "accepted"

    async def ran() -> bool:
        return site.amounts(to) == [9]

    await until(ran)


async def test_name_of_an_ended_session_stays_with_its_owner(site: AttackSite, impostor: Impostor) -> None:
    # After the takeover Rui writes to his session by its id, which is the same as by its name. With `own_session`
    # returning every name unchanged, Rui was refused as in another's session, owned by its first speaker.
    key = await taken_over(site, impostor, payee())
    answer = await site.person("rui").say(key.session, [])
    assert answer.status_code in (200, 201, 202), answer.text
    assert answer.json()["session"] == key.session
