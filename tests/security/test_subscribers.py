import asyncio
import base64
import contextlib
import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from app_server import running_app
from documents import PAGES, blocks
from mail_kit import relay
from mail_post import SECRET as MAIL_SECRET
from mail_post import Post
from sqlalchemy import text
from subscriber_worker import BO, SECRET, killable, store_url, subscribed_catalog
from temporalio.client import Client

from signoff.audit.log import AuditLog
from signoff.channels.channel_loader import open_channels
from signoff.channels.envelopes import InboundRequest
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import user_message
from signoff.contracts.names import ENGINE
from signoff.contracts.person import Principal
from signoff.contracts.turn import TurnInput
from signoff.engine.turn_client import TurnClient
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.events.event_sender import send_events
from signoff.gateway.events.event_task import record_progress
from signoff.gateway.vendors.channel_tasks import run_channels
from signoff.keys.secrets import SecretProvider
from signoff.plugins.loader import Plugins
from signoff.settings import Settings
from signoff.store.store import open_store
from signoff.temporal.embedded_server import ServerHandle, free_port

STEPS = (
    "turn.started",
    "tool_call.proposed",
    "approval.requested",
    "approval.decided",
    "tool_call:{tool}",
    "tool_call.executed",
    "turn.ended",
)
pytestmark = pytest.mark.timeout(240)


def write_examples(folder: Path) -> None:
    page = next(each for each in PAGES if each.name == "events.md")
    shown = {block.file: block.text for block in blocks(page)}
    for name in ("webhook.py", "event_log.py"):
        (folder / name).write_text(shown[name], encoding="utf-8")


def steps_of(events: Sequence[dict[str, Any]], tool: str) -> list[str]:
    about = {each["subject"] for each in events if each["data"].get("tool") == tool}
    return [each["type"] for each in events if each["subject"] in about or each["type"].startswith("turn.")]


async def test_subscribers_receive_every_step_of_a_turn_approved_by_email_after_a_kill(
    client: Client, server: ServerHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FINANCE_SECRET", "whsec_" + base64.b64encode(os.urandom(32)).decode())
    monkeypatch.setenv("MAIL_SECRET", MAIL_SECRET)
    webhook: dict[str, Any] = {"__name__": "webhook"}
    exec((tmp_path / "webhook.py").read_text(), webhook)
    queue, port, address = f"subscribers-{uuid.uuid4().hex[:12]}", free_port(), server.options.address
    async with contextlib.AsyncExitStack() as running:
        post = Post(await running.enter_async_context(relay()))
        store = await running.enter_async_context(open_store(store_url(tmp_path)))
        catalog = subscribed_catalog(tmp_path, port, post.options)
        turns = TurnClient(client, task_queue=queue)
        secrets = SecretProvider()
        deps = GatewayDeps(turns, catalog, catalog.people, store, Settings(), secrets=secrets)
        opened, problems = await open_channels(
            catalog.channels.declared.values(),
            store,
            public_url="http://a.example",
            clock=deps.clock,
            secrets=secrets,
            plugins=Plugins(),
        )
        assert not problems
        receiver = await running.enter_async_context(run_channels(deps, opened, catalog.channels.routing))
        assert receiver is not None
        await running.enter_async_context(running_app(webhook["app"], port))
        await running.enter_async_context(record_progress(deps, every=0.2))
        await running.enter_async_context(send_events(deps))
        key = TurnKey("main", "s1", f"t{uuid.uuid4().hex[:12]}")
        begun = TurnInput(
            tenant_id=key.tenant,
            session_id=key.session,
            turn_id=key.turn,
            actor="desk",
            messages=(user_message("go"),),
            principal=Principal(user="guest"),
            engine=ENGINE,
        )
        async with killable(address, tmp_path, queue, port) as worker:
            await turns.start_turn(begun)
            while len(post.cards()) < 2:
                await asyncio.sleep(0.1)
            worker.kill()
            await worker.wait()
        replies = [post.reply(card, BO, "Approve") for card in post.cards()]
        for reply in replies:
            assert isinstance(reply, InboundRequest)
            await receiver.take("mail", reply)
        log = AuditLog(store)
        while [each.kind for each in await log.stream(key.workflow_id)].count("attempt") < len(replies):
            await asyncio.sleep(0.1)
        async with killable(address, tmp_path, queue, port):
            assert (await turns.result(key)).state == "complete"
            kept = tmp_path / "steps.json"
            tries = 0
            # A failed delivery is retried later than those behind it, and each subscription looks in its own time. All
            # is delivered once each has looked at every event and nothing is owed.
            while not _ended(kept, webhook["steps"]) or await _list_owed(tmp_path):
                tries += 1
                assert tries < 900, await _list_owed(tmp_path)
                await asyncio.sleep(0.1)
    # By their numbers: events of the killed worker arrive after later attempts.
    posted, handled = (
        sorted(steps.values(), key=lambda each: int(each["number"]))
        for steps in (webhook["steps"], json.loads(kept.read_text()))
    )
    for events in (posted, handled):
        assert len({each["number"] for each in events}) == len({each["id"] for each in events}) == len(events)
        assert steps_of(events, "pay") == [each.format(tool="pay") for each in STEPS]
        assert SECRET not in json.dumps(events)
    given = [each["data"]["arguments"]["amount"] for each in handled if each["type"].startswith("tool_call:")]
    assert given == [20, 20]
    assert steps_of(handled, "vault") == [each.format(tool="vault") for each in STEPS]
    assert "vault" not in json.dumps(posted)
    assert not any(each["private"] for each in posted)
    # Nothing waits elsewhere, and nothing was given up.
    assert not await _list_owed(tmp_path)
    assert len(set((tmp_path / "ledger").read_text().split())) == 2


def _ended(kept: Path, posted: dict[str, dict[str, Any]]) -> bool:
    handled = kept.read_text() if kept.exists() else ""
    return "turn.ended" in handled and any(each["type"] == "turn.ended" for each in posted.values())


async def _list_owed(folder: Path) -> list[str]:
    owed = text("SELECT subscription, number, state, attempts, code FROM event_deliveries")
    behind = text(
        "SELECT name, subscriptions.number, event_heads.number AS newest"
        " FROM subscriptions JOIN event_heads USING (tenant) WHERE subscriptions.number < event_heads.number"
    )
    async with open_store(store_url(folder)) as store:
        # Read both at one moment: an event seen by one query may not be added for the other.
        rows = await store.run(lambda found: [*found.execute(behind).mappings(), *found.execute(owed).mappings()])
        return [str(dict(each)) for each in rows]


def test_example_subscribers_have_at_most_fifteen_lines(tmp_path: Path) -> None:
    write_examples(tmp_path)
    for name in ("webhook.py", "event_log.py"):
        lines = [each for each in (tmp_path / name).read_text().splitlines() if each.strip()]
        body = [each for each in lines if not each.startswith(("import ", "from ", "#"))]
        assert len(body) <= 15, name
