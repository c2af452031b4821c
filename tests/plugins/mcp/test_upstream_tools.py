import asyncio
import uuid
from pathlib import Path

import pytest
from call_rig import call_catalog
from gateway_rig import PEOPLE, turn_of
from mcp_rig import ERAS, mcp_rig, text_of_result
from mcp_upstream import Upstream
from mcp_upstream_kit import by_http, imported_tool
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of

from signoff.audit.log import AuditLog
from signoff.registry.catalog import Catalog
from signoff.store.store import Store

NOTE = "mcp__up__note"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.row("C18")
async def test_imported_tool_is_approved_and_run_by_signoff(
    client: Client, store: Store, tmp_path: Path, era: str
) -> None:
    """The agent's token reaches no upstream server."""
    upstream = Upstream(tmp_path)
    async with by_http(upstream) as server:

        def catalog(ledger: Ledger) -> Catalog:
            tools = [imported_tool(server, requires_approval=True, effect="Note {text}")]
            actors = [call_catalog(ledger).actors["coder"]]
            return catalog_of(tools, actors=actors, people=PEOPLE, mcp_servers=[server])

        async with (
            mcp_rig(client, store, f"upstream-{uuid.uuid4().hex[:12]}", catalog) as rig,
            rig.client(era) as agent,
        ):
            assert [each.name for each in (await agent.list_tools()).tools] == [NOTE]
            held = asyncio.create_task(agent.call_tool(NOTE, {"text": "a7"}))
            approval = await rig.asked("Note a7")
            assert upstream.calls == []
            await rig.decide(approval)
            result = await held
            assert (result.is_error, text_of_result(result)) == (False, "done: a7")
            held = asyncio.create_task(agent.call_tool(NOTE, {"text": "b8"}))
            await rig.decide(await rig.asked("Note b8"), "denied")
            assert (await held).is_error
            assert [each[:2] for each in upstream.calls] == [["note", {"text": "a7"}]]
        records = await AuditLog(store).stream(turn_of(approval).workflow_id)
    assert [each.kind for each in records] == [
        "turn", "proposal", "request", "attempt", "ending", "execution", "outcome"
    ]  # fmt: skip
    assert [each.subject for each in records if each.kind == "attempt"] == ["approver"]
    assert records[-1].facts["code"] == "ok"
