import os
import shutil
import sqlite3
import uuid
from pathlib import Path

import pytest
from attack_site import AttackSite, approval_id, payee, until
from changed_site import changed_site
from impostor import Impostor

from signoff.contracts import names
from signoff.contracts.ids import TurnKey
from signoff.temporal.embedded_server import ServerHandle

pytestmark = pytest.mark.timeout(300)


async def codes(site: AttackSite, key: TurnKey) -> list[str]:
    return [call["code"] for call in (await site.person("rui").result(key))["calls"]]


async def approved_if_asked(site: AttackSite, key: TurnKey, call: str = "c1.1") -> None:
    ana, rui = site.person("ana"), site.person("rui")

    async def over() -> bool:
        shown = await ana.see(approval_id(key, call))
        if shown.view.get("state") == "pending":
            await ana.decide(shown)
        answer = await rui.http.get(f"/v1/turns/{'.'.join(key)}")
        calls = answer.json().get("calls", []) if answer.status_code == 200 else []
        return any(each["call"] == call and each["outcome"] is not None for each in calls)

    await until(over)


async def test_repeated_turn_after_retention_pays_once_per_reported_run(site: AttackSite, impostor: Impostor) -> None:
    # A turn is approved, paid and deleted by Temporal. Repeated under the same id it is another turn: every reported
    # run was paid. Without the nonce in `call_digest` the second turn got the first one's result: two runs were
    # reported, and one was paid.
    to, rui = payee(), site.person("rui")
    args, name = {"amount": 9, "to": to}, uuid.uuid4().hex[:12]
    key = await rui.ask([("pay", args)], session=name, turn=name)
    await approved_if_asked(site, key)
    results = await codes(site, key)
    await impostor.forget(key)

    async def gone() -> bool:
        return (await rui.http.get(f"/v1/turns/{'.'.join(key)}")).status_code == 404

    await until(gone)
    again = await rui.http.post(
        "/v1/turns",
        json={"text": f'[[["pay", {{"amount": 9, "to": "{to}"}}]]]', "actor": "clerk", "session": name, "turn": name},
    )
    if again.status_code == 201:
        await approved_if_asked(site, key)
        results += await codes(site, key)
    assert results.count("ok") == len(site.amounts(to))


async def test_reset_under_a_changed_definition_pays_once(attacked_server: ServerHandle, tmp_path: Path) -> None:
    # Paid, then the tool gets one more argument and the turn is reset to its start: paid once. Without the check of
    # other actions of the call in `Store.claim` 9 EUR was paid twice.
    to = payee()
    async with changed_site(attacked_server, tmp_path) as (site, impostor, site_folder):
        key = await site.person("rui").ask([("pay", {"amount": 9, "to": to})], [("pay", {"amount": 1, "to": to})])
        await approved_if_asked(site, key)
        await site.person("ana").waiting(approval_id(key, "c2.1"))
        tools = site_folder / "attack_project_tools.py"
        taken = "async def pay(amount: int, to: str"
        tools.write_text(tools.read_text().replace(taken, f"{taken}, urgent: bool = False"))
        for process in ("gateway", "worker"):
            await site.stop(process)
            await site.start(process)
        await impostor.reset(key, to_start=True)
        await approved_if_asked(site, key)
        assert site.amounts(to) == [9]


async def test_restored_store_pays_once(attacked_server: ServerHandle, tmp_path: Path) -> None:
    # Paid, then the store is restored to its state before the answer: the copied answer pays nothing again. With the
    # permit's signed decisions counted in `approval_of` 9 EUR was paid twice.
    to = payee()
    args = {"amount": 9, "to": to}
    async with changed_site(attacked_server, tmp_path) as (site, impostor, _):
        rui, ana = site.person("rui"), site.person("ana")
        key = await rui.ask([("pay", args)])
        shown = await ana.waiting(approval_id(key))
        ctx, store = await impostor.ctx(key), site.folder / "signoff.db"
        kept = tmp_path / "backup.db"
        with sqlite3.connect(store) as live, sqlite3.connect(kept) as copy:
            live.backup(copy)
        await ana.decide(shown)
        assert await codes(site, key) == ["ok"]
        given = await impostor.decisions(key)
        for process in ("gateway", "worker"):
            await site.stop(process)
        for each in site.folder.glob("signoff.db*"):
            os.remove(each)
        shutil.copy(kept, store)
        for process in ("worker", "gateway"):
            await site.start(process)
        forged = await impostor.take_over(key, **{names.STATE: None})
        claim = impostor.claim(ctx, impostor.digest(ctx, "pay", args), given)
        await forged.run("pay", args, claim)
        assert site.amounts(to) == [9]
