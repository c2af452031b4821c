from typing import Any

from agent_framework import BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message
from script import serve


class ScriptedClient(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    def __init__(self, turns: list[list[dict[str, Any]]]) -> None:
        super().__init__()
        self.turns = list(turns)

    async def _inner_get_response(self, *, messages: Any, **kwargs: Any) -> ChatResponse[Any]:
        calls = self.turns.pop(0) if self.turns else []
        made = [Content.from_function_call(each["id"], each["name"], arguments=each["args"]) for each in calls]
        told = [part for each in messages for part in each.contents if part.type == "function_result"]
        text = Content.from_text(" | ".join(str(each.result or each.exception) for each in told))
        return ChatResponse(messages=[Message("assistant", made or [text])])


serve("agent_framework_agent", ScriptedClient)
