import uuid
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from attack_site import AttackSite, approval_id, payee, receipt, words

from signoff.contracts.ids import TurnKey, show_code

REASON = "the board has said so"
NOBODY = "nobody-at-all"

Probe = tuple[str, str, dict[str, Any] | None]
PROBES: dict[str, Probe] = {
    "read": ("GET", "/v1/approvals/{approval}", None),
    "read by code": ("GET", "/v1/approvals/{code}", None),
    "approve": ("POST", "/v1/approvals/{approval}/decide", {"verdict": "approved", "revision": 1}),
    "approve by code": ("POST", "/v1/approvals/{code}/decide", {"verdict": "approved", "revision": 1}),
    "edit": ("POST", "/v1/approvals/{approval}/decide", {"verdict": "approved", "edited_args": {"amount": 1}}),
    "approve among others": ("POST", "/v1/approvals/decide", {"approval_id": "{approval}"}),
    "approve by code among others": ("POST", "/v1/approvals/decide", {"approval_id": "{code}"}),
    "withdraw": ("POST", "/v1/approvals/{approval}/withdraw", {}),
    "withdraw by code": ("POST", "/v1/approvals/{code}/withdraw", {}),
    "hand on": ("POST", "/v1/approvals/{approval}/reassign", {"to": "rui", "revision": 1}),
    "add an approver by code": ("POST", "/v1/approvals/{code}/add-approver", {"to": "rui", "revision": 1}),
    "turn": ("GET", "/v1/turns/{turn}", None),
    "events": ("GET", "/v1/turns/{turn}/events", None),
    "stop": ("POST", "/v1/turns/{turn}/cancel", {}),
    "record": ("GET", "/v1/audit/{turn}", None),
    "session": ("GET", "/v1/sessions/{session}", None),
    "page": ("GET", "/approvals/{approval}", None),
    "page by code": ("GET", "/approvals/{code}", None),
    "edit page": ("GET", "/approvals/{approval}/edit", None),
    "turn page": ("GET", "/turns/{turn}", None),
    "record page": ("GET", "/audit/{turn}", None),
}


@dataclass(frozen=True)
class Names:
    key: TurnKey
    code: str

    def fill(self, text: str) -> str:
        turn = ".".join(self.key)
        return text.format(
            approval=approval_id(self.key), code=show_code(self.code), turn=turn, session=".".join(self.key[:2])
        )

    def blank(self, text: str) -> str:
        """The rest must not reveal which names exist."""
        for name in (self.key.turn, self.key.session, show_code(self.code), self.code):
            text = text.replace(name, "X")
        return text


async def probed(page: httpx2.AsyncClient, probe: Probe, names: Names) -> tuple[int, str]:
    method, path, body = probe
    if body is not None and "approval_id" in body:
        item = {
            "approval_id": names.fill(body["approval_id"]),
            "revision": 1,
            "question_hash": "0" * 64,
            "verdict": "approved",
        }
        body = {"decisions": [item]}
    answer = await page.request(method, names.fill(path), json=body)
    return answer.status_code, names.blank(words(answer.text))


async def a_request(site: AttackSite, *, decided: bool) -> Names:
    to, ana, name = payee(), site.person("ana"), f"s{uuid.uuid4().hex[:12]}"
    response = await site.person("rui").say(
        name, [("pay", {"amount": 9, "to": to})], [("pay", {"amount": 1, "to": to})]
    )
    key = TurnKey("main", response.json()["session"], response.json()["turn"])
    shown = await ana.waiting(approval_id(key))
    if decided:
        assert receipt(await ana.decide(shown, "denied", reason=REASON))["status"] == "accepted"
        await ana.waiting(approval_id(key, "c2.1"))
    return Names(key, shown.view["code"])


@pytest.mark.parametrize("decided", [False, True], ids=["waiting", "decided"])
@pytest.mark.parametrize("name", PROBES)
async def test_existing_and_missing_requests_look_alike_to_strangers(
    name: str, decided: bool, site: AttackSite
) -> None:
    # A stranger who knows a request's id or code, its turn or its session, gets the same answer as for a missing one.
    # This failed for all endpoints that decide, withdraw or use a code while only reading checked the right to read,
    # and for all reading ones without `may_read` in `Conversations` and `reads_record`.
    real = await a_request(site, decided=decided)
    made_up = Names(TurnKey("main", str(uuid.uuid4()), str(uuid.uuid4())), "Z9Z9Z9")
    zoe = site.person("zoe").http if PROBES[name][1].startswith("/v1/") else (await site.browser("zoe")).http
    answers = [await probed(zoe, PROBES[name], names) for names in (real, made_up)]
    assert answers[0] == answers[1]
    assert (REASON in answers[0][1], "Ana" in answers[0][1], '"ana"' in answers[0][1]) == (False, False, False)


async def test_loser_of_a_race_reads_the_first_decision(site: AttackSite) -> None:
    # A reader of a request sees its names and reasons. With `decide` answering every refusal as `unknown` Bo learned
    # neither.
    real = await a_request(site, decided=True)
    bo = site.person("bo")
    shown = await bo.see(approval_id(real.key))
    late = receipt(await bo.decide(shown))
    assert (late["code"], late["decided_by"], late["reason"]) == ("already_decided", "ana", REASON)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("GET", "/v1/approvals?as={person}", None, id="list as"),
        pytest.param("POST", "/v1/turns", {"text": "[]", "actor": "clerk", "user": "{person}"}, id="ask as"),
    ],
)
async def test_existing_and_unknown_people_are_refused_alike(
    method: str, path: str, body: dict[str, Any] | None, site: AttackSite
) -> None:
    # Acting as another person is refused alike for existing and unknown people. This failed while lists could be
    # requested as any person.
    zoe, answers = site.person("zoe").http, []
    for person in ("ana", NOBODY):
        sent = None if body is None else {**body, "user": person}
        answer = await zoe.request(method, path.format(person=person), json=sent)
        answers.append((answer.status_code, answer.text.replace(person, "X")))
    assert answers[0] == answers[1]
    assert answers[0][0] >= 400


async def test_grant_of_others_looks_like_a_missing_one(site: AttackSite) -> None:
    # A stranger who revokes a grant by its id gets the same answer as for a missing one. Before the fix the refusal
    # revealed that the grant exists.
    to, rui, zoe = payee(), site.person("rui"), site.person("zoe").http
    key = await rui.ask([("gift", {"amount": 5, "to": to})])
    await site.person("ana").approve(approval_id(key), remember={"scope": "session", "uses": 2})
    await rui.result(key)
    listed = (await site.person("adm").http.get("/v1/grants")).json()["grants"]
    real = next(grant["id"] for grant in listed if grant["approval_id"] == approval_id(key))
    answers = []
    for name in (real, uuid.uuid4().hex):
        answer = await zoe.delete(f"/v1/grants/{name}", headers={"content-type": "application/json"})
        answers.append((answer.status_code, answer.text.replace(name, "X")))
    assert answers[0] == answers[1]


async def test_strangers_tries_of_a_code_lock_out_no_approver(site: AttackSite) -> None:
    # However often a stranger tries a code, an approver can still use it. With 30 tries of a code for all people
    # together, counted in `Conversations.approval_id`, Ana got 404.
    real, zoe, ana = await a_request(site, decided=False), site.person("zoe").http, site.person("ana")
    code = show_code(real.code)
    statuses = {(await zoe.get(f"/v1/approvals/{code}")).status_code for _ in range(60)}
    assert statuses <= {404, 429}
    shown = await ana.see(code)
    assert shown.status == 200
    assert receipt(await ana.decide(shown, "denied"))["status"] == "accepted"
