import shutil
from pathlib import Path

import pytest
from attack_site import approval_id, payee, until
from changed_site import changed_site
from temporalio.api.enums.v1 import EventType

from signoff.temporal.embedded_server import ServerHandle

pytestmark = pytest.mark.timeout(300)


async def test_turn_waits_for_its_own_store(attacked_server: ServerHandle, tmp_path: Path) -> None:
    # A tip ran and a payment waits. The store's files are removed and the worker starts over a new one: it logs that
    # and leaves the turn alone, even when signaled. With its own store back the payment is approved and made. Without
    # the store's id under the signature the new worker continued without any ticket of the earlier calls.
    to = payee()
    async with changed_site(attacked_server, tmp_path) as (site, _, _):
        rui = site.person("rui")
        key = await rui.ask([("tip", {"amount": 2, "to": to})], [("pay", {"amount": 8, "to": to})])
        await site.person("ana").waiting(approval_id(key, "c2.1"))
        await site.stop("worker")
        await site.stop("gateway")
        away = tmp_path / "away"
        away.mkdir()
        for each in site.folder.glob("signoff.db*"):
            shutil.move(each, away / each.name)
        handle = site.client.get_workflow_handle(key.workflow_id)

        async def tasks_completed() -> int:
            events = [event.event_type async for event in handle.fetch_history_events()]
            return events.count(EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)

        before = await tasks_completed()
        await site.start("worker")
        await handle.signal("approval_response", {"approval_id": approval_id(key, "c2.1"), "verdict": "denied"})

        async def is_logged() -> bool:
            return any("is left alone until its own store is back" in log.read_text() for log in logs())

        def logs() -> list[Path]:
            return list(site.folder.glob("worker-*.out"))

        async def went_on() -> bool:
            # Count the tasks instead of searching the history after the signal: the server holds a signal back while a
            # workflow task is open.
            return await tasks_completed() > before

        async def seen() -> bool:
            return await is_logged() or await went_on()

        await until(seen)
        assert (await is_logged(), await went_on(), site.amounts(to)) == (True, False, [2])
        await site.stop("worker")
        for each in site.folder.glob("signoff.db*"):
            each.unlink()
        for each in away.iterdir():
            shutil.move(each, site.folder / each.name)
        await site.start("worker")
        await site.start("gateway")
        assert (await site.person("ana").approve(approval_id(key, "c2.1")))["status"] in ("accepted", "pending")
        assert [call["code"] for call in (await rui.result(key))["calls"]] == ["ok", "ok"]
        assert site.amounts(to) == [2, 8]
