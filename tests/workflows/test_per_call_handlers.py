from typing import Any

import pytest
from turn_fixtures import TurnRig

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.person import Principal
from signoff.registry.hooks import Handler
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.testing.scripted_model import ScriptedModel, calls, respond, results
from signoff.tools import per_call

SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "Search query"}},
    "required": ["query"],
}


@pytest.mark.row("F16")
async def test_handler_factory_builds_a_handler_for_each_user(turn_rig: TurnRig) -> None:
    # `createScopedTools(userContext)`: `user_search` searches the requester's data. A factory that fails or returns no
    # handler fails only its call. The factory receives the tenant and the user.
    made: list[str] = []

    def create_scoped_tools(context: ToolContext) -> Handler:
        user = context.user_id
        made.append(user)
        if user == "cid":
            raise LookupError("no data of this user")

        async def user_search(args: dict[str, Any], _: ToolContext) -> str:
            return f'Found 1 results for "{args["query"]}" of {user} at {context.tenant_id}'

        return "no handler" if user == "dan" else user_search  # type: ignore[return-value]

    tool = Tool(
        name="user_search",
        description="Search within user's personal data",
        input_schema=SCHEMA,
        handler=per_call(create_scoped_tools),
        scope="generalist",
        read_only=True,
    )

    def react(request: CompletionRequest) -> Completion:
        return respond("done") if results(request) else calls(("user_search", {"query": "tea"}))

    async with turn_rig.running([tool], ScriptedModel(react)) as turns:
        keys = [await turns.start(principal=Principal(user=user)) for user in ("ana", "ben", "ana", "cid", "dan")]
        found = [(await turns.signoff.result(key)).calls[0] for key in keys]
        await turns.replays(keys[0])
    assert [each.code for each in found] == ["ok", "ok", "ok", "execution_failed", "execution_failed"]
    texts = [str(each.value.inline) for each in found]
    assert texts[:3] == [f'Found 1 results for "tea" of {user} at main' for user in ("ana", "ben", "ana")]
    assert "no data of this user" in texts[3]
    assert "the `per_call` result for this call is no function" in texts[4]
    assert sorted(made) == ["ana", "ana", "ben", "cid", "dan"]
