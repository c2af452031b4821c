"""Makes the ids of calls unique in the messages for a provider: providers refuse two calls with one id."""

import hashlib
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart


def make_unique(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return the messages with another id for each call whose id came before, and for its result.

    The results of an answer's calls follow it in the order of its calls. Ids that are unique stay as they are.
    """
    used: set[str] = set()
    waiting: dict[str, deque[str]] = defaultdict(deque)

    def name_call(given: str) -> str:
        chosen, number = given, 1
        while chosen in used:
            number += 1
            # Nine letters and digits suit every provider: Mistral takes no other length.
            chosen = hashlib.sha256(f"{given}:{number}".encode()).hexdigest()[:9]
        used.add(chosen)
        waiting[given].append(chosen)
        return chosen

    def name_result(given: str) -> str:
        return waiting[given].popleft() if waiting[given] else given

    made: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            waiting.clear()
            calls = [
                replace(part, tool_call_id=name_call(part.tool_call_id)) if isinstance(part, ToolCallPart) else part
                for part in message.parts
            ]
            made.append(replace(message, parts=calls))
        else:
            results = [
                replace(part, tool_call_id=name_result(part.tool_call_id)) if isinstance(part, ToolReturnPart) else part
                for part in message.parts
            ]
            made.append(replace(message, parts=results))
    return made
