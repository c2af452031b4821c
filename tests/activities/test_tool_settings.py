from dataclasses import replace
from typing import Any

import pytest
from activity_kit import free, run, summary, task_for, worker_deps
from turn_fixtures import Ledger

from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store

SCHEMA = {"type": "object", "properties": {"region": {"type": "string"}, "zones": {"type": "array"}}}


@pytest.mark.row("E07")
async def test_handler_reads_the_settings_of_its_tool_read_only(store: Store) -> None:
    seen: list[Any] = []

    async def handler(args: dict[str, Any], context: ToolContext) -> str:
        seen.append(context.settings)
        with pytest.raises(TypeError):
            context.settings["region"] = "us"  # type: ignore[index]
        with pytest.raises(TypeError):
            context.settings["zones"].append("b")
        return "done"

    given: dict[str, Any] = {"region": "eu", "zones": ["a"]}
    tool = free(Ledger(), handler=handler, settings_schema=SCHEMA, settings=given)
    given["zones"].append("later")
    assert summary(await run(worker_deps(store, tool), tool, task_for(tool))) == ("ok", "done")
    assert seen == [{"region": "eu", "zones": ["a"]}]


def test_other_settings_change_the_definition_and_no_settings_do_not() -> None:
    plain = free(Ledger())
    tool = replace(plain, settings_schema=SCHEMA, settings={"region": "eu"})
    assert tool.definition != replace(tool, settings={"region": "us"}).definition
    assert replace(plain, settings_schema=SCHEMA).definition == plain.definition
