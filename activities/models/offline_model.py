"""The model `offline`, for first trials without a key: it reads each message as one command line."""

import json
from collections.abc import Sequence
from typing import Any, Final

from signoff.activities.models.command_line import Command, NoCommand, read_command, usage
from signoff.contracts.activity_messages import ModelTool
from signoff.contracts.completion import Completion, CompletionRequest, ProposedCall
from signoff.contracts.content import text_of
from signoff.contracts.message import Message, ResultPart, TextPart
from signoff.contracts.names import RESPOND

_USAGES_SHOWN: Final = 20


class OfflineModel:
    """Calls the tool that a message names, and answers with the results of calls."""

    async def complete(self, request: CompletionRequest) -> Completion:
        tools = commands(request.tools)
        words: list[str] = []
        calls: list[ProposedCall] = []
        for part in (part for message in _newest(request.messages) for part in message.parts):
            if isinstance(part, ResultPart):
                words.append(_tell(part))
            elif isinstance(part, TextPart):
                command = read_command(text_of(part.text), tools)
                if isinstance(command, Command):
                    calls.append(ProposedCall(command.tool, command.args, provider_call=f"offline{len(calls)}"))
                else:
                    words.append(_explain(command, tools))
        return Completion(text="\n\n".join(words), calls=tuple(calls))


def commands(tools: Sequence[ModelTool]) -> tuple[ModelTool, ...]:
    return tuple(tool for tool in tools if tool.name != RESPOND)


def _newest(messages: Sequence[Message]) -> Sequence[Message]:
    answers = [index for index, message in enumerate(messages) if message.role == "assistant"]
    return messages[answers[-1] + 1 :] if answers else messages


def _explain(line: NoCommand, tools: Sequence[ModelTool]) -> str:
    shown = (line.tool,) if line.tool else tools[:_USAGES_SHOWN]
    left = 0 if line.tool else len(tools) - len(shown)
    more = [f"and {left} more"] if left > 0 else []
    head = f"No call: {line.why}. The model `offline` takes one command a message"
    return "\n".join([f"{head}:" if shown else f"{head}, and this actor has no tools.", *map(usage, shown), *more])


def _tell(part: ResultPart) -> str:
    value = part.value.inline
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if part.code == "ok":
        return "\n\n".join(filter(None, (part.note, text))) or f"`{part.tool}` ran, and returned nothing."
    if part.code == "denied" and isinstance(value, dict):
        return f"`{part.tool}` was denied{_denier(value)}: {value.get('reason', '')}"
    if part.code == "answered" and isinstance(value, dict):
        return f"{part.note} {json.dumps(value.get('answer'), ensure_ascii=False)}"
    return f"`{part.tool}` gave no result ({part.code}): {' '.join(filter(None, (part.note, text)))}"


def _denier(denied: dict[str, Any]) -> str:
    person = denied.get("decided_by") if denied.get("source") == "human" else ""
    return f" by {person}" if person else ""
