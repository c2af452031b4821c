import json
from collections.abc import AsyncIterator
from typing import Any

from script import serve
from strands.models import Model


class ScriptedModel(Model):
    def __init__(self, turns: list[list[dict[str, Any]]]) -> None:
        self.turns = list(turns)

    def update_config(self, **model_config: Any) -> None:
        """Do nothing."""

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        calls = self.turns.pop(0) if self.turns else []
        yield {"messageStart": {"role": "assistant"}}
        for call in calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": call["name"], "toolUseId": call["id"]}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(call["args"])}}}}
            yield {"contentBlockStop": {}}
        if not calls:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": _repeat(messages)}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


def _repeat(messages: Any) -> str:
    results = [part["toolResult"] for each in messages for part in each["content"] if "toolResult" in part]
    return " | ".join(" ".join(part["text"] for part in each["content"]) for each in results)


serve("strands_agent", ScriptedModel)
