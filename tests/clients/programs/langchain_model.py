from collections.abc import Iterator
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        answers = [str(each.content) for each in messages if isinstance(each, ToolMessage)]
        _LAST[:] = [" | ".join(answers)]
        return super()._generate(messages, *args, **kwargs)


_LAST: list[str] = [""]


def make_model(turns: list[list[dict[str, Any]]]) -> Model:
    def script() -> Iterator[AIMessage]:
        for turn in turns:
            # LangGraph keeps a message's id in its checkpoints: a resumed run has the same.
            calls = [{key: each[key] for key in ("name", "args", "id")} for each in turn]
            yield AIMessage("", id=turn[0]["message"], tool_calls=[{**each, "type": "tool_call"} for each in calls])
        yield AIMessage(_LAST[0])

    return Model(messages=script())
