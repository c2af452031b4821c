"""Attack 10: somebody of the tenant whom a request does not concern learns that it is there, of whom, and why."""

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
        """An answer without these names: what is left must not tell which of them were real."""
        for name in (self.key.turn, self.key.session, show_code(self.code), self.code):
            text = text.replace(name, "X")
        return text


async def probed(page: httpx2.AsyncClient, probe: Probe, names: Names) -> tuple[int, str]:
    """What a stranger is answered: the status and everything said."""
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
    """A request in a session of Rui's that waits, or that Ana denied with a reason while the turn goes on."""
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
async def test_what_is_there_looks_like_what_is_not(name: str, decided: bool, site: AttackSite) -> None:
    # A stranger who knows a request's id or code, its turn or its session, is answered as for one that never was. Seen
    # to fail for all that decides, withdraws or goes by code, while only what reads asked who may read, and for all
    # that reads without `may_read` in `Conversations` and `reads_record`.
    real = await a_request(site, decided=decided)
    made_up = Names(TurnKey("main", str(uuid.uuid4()), str(uuid.uuid4())), "Z9Z9Z9")
    zoe = site.person("zoe").http if PROBES[name][1].startswith("/v1/") else (await site.browser("zoe")).http
    answers = [await probed(zoe, PROBES[name], names) for names in (real, made_up)]
    assert answers[0] == answers[1]
    assert (REASON in answers[0][1], "Ana" in answers[0][1], '"ana"' in answers[0][1]) == (False, False, False)


async def test_a_loser_of_a_race_learns_who_was_first(site: AttackSite) -> None:
    # Whoever may read a request gets its names and reasons. With `decide` answering whoever is refused as `unknown` Bo
    # learned neither.
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
async def test_who_is_a_person_is_not_told(
    method: str, path: str, body: dict[str, Any] | None, site: AttackSite
) -> None:
    # To act as somebody else is refused alike, whether there is such a person or not. Seen to fail while a list could
    # be asked for as anybody.
    zoe, answers = site.person("zoe").http, []
    for person in ("ana", NOBODY):
        sent = None if body is None else {**body, "user": person}
        answer = await zoe.request(method, path.format(person=person), json=sent)
        answers.append((answer.status_code, answer.text.replace(person, "X")))
    assert answers[0] == answers[1]
    assert answers[0][0] >= 400


async def test_a_grant_of_others_looks_like_none(site: AttackSite) -> None:
    # A stranger who takes back a grant whose id they know is answered as for one that never was. Seen to be refused by
    # name while whoever knew the id was told of its rights.
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


async def test_tries_of_strangers_lock_nobody_out(site: AttackSite) -> None:
    # However often a stranger tries a code, whoever may decide the request still can by it. With 30 tries of a code by
    # everybody together, counted in `Conversations.approval_id`, Ana was answered 404.
    real, zoe, ana = await a_request(site, decided=False), site.person("zoe").http, site.person("ana")
    code = show_code(real.code)
    statuses = {(await zoe.get(f"/v1/approvals/{code}")).status_code for _ in range(60)}
    assert statuses <= {404, 429}
    shown = await ana.see(code)
    assert shown.status == 200
    assert receipt(await ana.decide(shown, "denied"))["status"] == "accepted"
