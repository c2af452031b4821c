"""Attacks 20 to 25: forged lines of the log, files that others may read, a broken answer among good ones, a bad memo.

Each was seen to succeed before the mend, and fails without it: no umask in `embedded.py`, no receipt of its own in
`gateway/approvals_api.py`, memos read as they are in `listing.py`. No path of this installation leads to an unexpected
error, so that forged lines are seen to fail in tests/gateway/test_failing.py and tests/cli/test_cli_output.py; keys
that look like others, in tests/approvals/test_arguments.py; links long over, in tests/gateway/test_links.py.
"""

import stat
import uuid
from datetime import timedelta

from attack_site import AttackSite, approval_id, payee
from stranger import dialled, head
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from signoff.contracts import names
from signoff.workflows import shown as attributes


async def test_an_address_forges_no_line_of_the_log(site: AttackSite) -> None:
    """Whatever `%0A` it holds, and whatever a request breaks: each line is the gateway's own."""
    log = site.folder / "gateway" / "gateway.log"
    before = len(log.read_text().splitlines())
    forged = f"2026-11-22 ERROR signoff: {uuid.uuid4().hex} approved everything"
    async with dialled(site.url) as line:
        path = f"/v1/turns/%0A{forged.replace(' ', '%20')}"
        await line.send(head(site.url, "GET", path, authorization=f"Bearer {site.tokens['rui']}"))
        await line.answer()
    async with dialled(site.url) as line:
        await line.send(head(site.url, "GET", f"/approvals/%0A{forged.replace(' ', '%20')}", upgrade="x\x0by"))
        await line.answer()
    assert not any(each.startswith(forged[:20]) for each in log.read_text().splitlines()[before:])


async def test_what_the_installation_makes_is_its_owners_alone(site: AttackSite) -> None:
    """The server's database with every argument, the store, keys, logs, and the folders around them."""
    server = site.server.options
    made = [server.db_file, server.log, site.folder / "signoff.db"]
    made += [file for file in (site.folder / "gateway").rglob("*") if file.name != "public-keys.json"]
    others = stat.S_IRWXG | stat.S_IRWXO
    assert [file for file in made if file.exists() and file.stat().st_mode & others] == []
    assert (site.folder / "gateway").stat().st_mode & others == 0


async def test_one_broken_answer_keeps_no_receipt_from_the_others(site: AttackSite) -> None:
    """Half of a surrogate pair, a number where a text belongs, nothing: each has its own receipt, in their order."""
    rui, ana = site.person("rui"), site.person("ana")
    key = await rui.ask([("pay", {"amount": 4, "to": payee()})])
    shown = await ana.waiting(approval_id(key))
    mark = shown.view["question_hash"]
    good = {"id": approval_id(key), "revision": shown.view["revision"], "verdict": "denied"}
    body = (
        '{"decisions": [{"id": "\\ud800", "revision": 1, "question_hash": "12345678", "verdict": "denied"}, '
        f'{{"id": "{good["id"]}", "revision": {good["revision"]}, "question_hash": "{mark}", "verdict": "denied"}}, '
        f'{{"id": "{good["id"]}", "revision": 1, "question_hash": "{mark}", "verdict": "denied", '
        '"reason": "\\udfff"}, '
        "7, null]}"
    )
    headers = {"content-type": "application/json"}
    answer = await ana.http.post("/v1/approvals/decide", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    receipts = answer.json()["receipts"]
    assert [each["status"] for each in receipts][1] == "accepted"
    assert len(receipts) == 5
    assert all(receipts[each]["status"] in ("refused", "pending") for each in (0, 2, 3, 4))


async def test_a_memo_that_is_none_breaks_nobodys_list(site: AttackSite) -> None:
    """Whoever may start workflows writes what they like into it: their row is bad, the others are there."""
    rui = site.person("rui")
    key = await rui.ask([("pay", {"amount": 5, "to": payee()})])
    await rui.waiting(approval_id(key))
    for memo in (
        {names.MEMO_TITLE: ["x"]},
        {names.MEMO_TITLE: 7, names.MEMO_REQUESTER: {"a": 1}},
        {"signoff_cards": {"a": "b"}},
    ):
        await _start_strange(site.client, memo)
    for person in ("rui", "ana", "adm"):
        for path in ("/v1/turns", "/v1/approvals"):
            answer = await site.person(person).http.get(path)
            assert answer.status_code == 200, (person, path, answer.text)
    listed = (await rui.http.get("/v1/turns?limit=200")).json()["turns"]
    assert key.turn in {row["turn"] for row in listed}


async def _start_strange(client: Client, memo: dict[str, object]) -> None:
    told = TypedSearchAttributes(
        [
            SearchAttributePair(attributes.TENANT, "main"),
            SearchAttributePair(attributes.STATE, "suspended"),
            SearchAttributePair(attributes.ACTOR, "clerk"),
        ]
    )
    await client.start_workflow(
        names.ACTOR_TURN,
        id=f"turn/main/strange/{uuid.uuid4().hex}",
        task_queue="nobody-works-here",
        memo=memo,
        search_attributes=told,
        execution_timeout=timedelta(seconds=120),
    )
