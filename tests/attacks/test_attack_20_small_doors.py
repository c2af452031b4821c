"""Forged log lines, files readable by others, a malformed answer among good ones, a malformed memo."""

import stat
import uuid
from datetime import timedelta
from pathlib import Path

from attack_site import AttackSite, approval_id, payee
from changed_site import changed_site
from stranger import dialled, head
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from signoff.contracts import names
from signoff.temporal.embedded_server import ServerHandle
from signoff.workflows import temporal_metadata as attributes

BROKEN = """

from signoff.gateway.api import turns


async def broken(deps: object, turn: str, caller: object) -> None:
    raise ValueError(turn)


turns._key = broken
"""
"""Makes the gateway that reads this module raise an unexpected error for every requested turn."""


async def test_address_with_line_breaks_forges_no_log_line(attacked_server: ServerHandle, tmp_path: Path) -> None:
    # For every `%0A` and every error, each log line is the gateway's own. Without the indentation of tracebacks in
    # `_Whole` of `cli/terminal/log_setup.py` the error's text forged an entry; without its escaping and the `repr` in
    # `gateway/transport/middleware.py` as well, so did the address.
    forged = f"2026-11-22 ERROR signoff: {uuid.uuid4().hex} approved everything"
    address = f"%0A{forged.replace(' ', '%20')}"
    async with changed_site(attacked_server, tmp_path) as (site, _, site_folder):
        tools = site_folder / "attack_project_tools.py"
        tools.write_text(tools.read_text() + BROKEN)
        await site.stop("gateway")
        await site.start("gateway")
        async with dialled(site.url) as line:
            await line.send(head(site.url, "GET", f"/v1/turns/{address}", authorization=f"Bearer {site.tokens['rui']}"))
            status, _ = await line.answer()
        async with dialled(site.url) as line:
            await line.send(head(site.url, "GET", f"/approvals/{address}", upgrade="x\x0by"))
            await line.answer()
        lines = (site.folder / "gateway" / "gateway.log").read_text().splitlines()
    assert (status, any(forged in each for each in lines)) == (500, True)
    assert [each for each in lines if each.startswith(forged[:20])] == []


async def test_files_of_the_installation_are_readable_by_their_owner_only(site: AttackSite) -> None:
    # The server's database with every argument, the store, keys, logs, and their directories. Without the umask in
    # `temporal/embedded_server.py` others could read the server's database, without `make_private` in
    # `store/database.py` the store, and without the mode in `formats/private_folder.py` the gateway's directory.
    server = site.server.options
    made = [server.db_file, server.log, site.folder / "signoff.db"]
    made += [file for file in (site.folder / "gateway").rglob("*") if file.name != "public-keys.json"]
    others = stat.S_IRWXG | stat.S_IRWXO
    assert [file for file in made if file.exists() and file.stat().st_mode & others] == []
    assert (site.folder / "gateway").stat().st_mode & others == 0


async def test_malformed_answer_in_a_batch_leaves_the_others_their_receipts(site: AttackSite) -> None:
    # Half of a surrogate pair, a number instead of a text, null: each has its own receipt, in order. Without
    # `_own_receipt` in `gateway/api/approvals.py` all of them were answered with one 500.
    rui, ana = site.person("rui"), site.person("ana")
    key = await rui.ask([("pay", {"amount": 4, "to": payee()})])
    shown = await ana.waiting(approval_id(key))
    mark = shown.view["question_hash"]
    good = {"id": approval_id(key), "revision": shown.view["revision"], "verdict": "denied"}
    body = (
        '{"decisions": [{"approval_id": "\\ud800", "revision": 1, "question_hash": "12345678", "verdict": "denied"}, '
        f'{{"approval_id": "{good["id"]}", "revision": {good["revision"]}, "question_hash": "{mark}", '
        '"verdict": "denied"}, '
        f'{{"approval_id": "{good["id"]}", "revision": 1, "question_hash": "{mark}", "verdict": "denied", '
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


async def test_malformed_memo_breaks_no_list(site: AttackSite) -> None:
    # A credential that starts workflows may write any memo: its row is malformed, the others are listed. With a memo's
    # texts taken unchecked in `engine/turn_list.py` every list was a 500.
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
    found = TypedSearchAttributes(
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
        search_attributes=found,
        execution_timeout=timedelta(seconds=120),
    )
