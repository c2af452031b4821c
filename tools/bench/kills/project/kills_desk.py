"""Tools that write each effect to a journal, and the script that calls them."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.registry.tool_context import ToolContext
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

EFFECTS = Path(__file__).parents[1] / "effects.jsonl"


async def pay(ctx: ToolContext, call: str, amount: int, before: float, after: float) -> str:
    """Pay somebody.

    Args:
        call: The name of the call.
        amount: How much, in EUR.
        before: Seconds of work before the payment.
        after: Seconds of work after it.
    """
    await asyncio.sleep(before)
    _write_effect({"call": call, "tool": "pay", "args": {"call": call, "amount": amount}})
    await asyncio.sleep(after)
    return f"paid {amount}"


async def transfer(ctx: ToolContext, call: str, amount: int, before: float, after: float) -> str:
    """Move money; two people approve it.

    Args:
        call: The name of the call.
        amount: How much, in EUR.
        before: Seconds of work before the transfer.
        after: Seconds of work after it.
    """
    await asyncio.sleep(before)
    _write_effect({"call": call, "tool": "transfer", "args": {"call": call, "amount": amount}})
    await asyncio.sleep(after)
    return f"moved {amount}"


def _write_effect(effect: dict[str, Any]) -> None:
    # One write: a killed worker leaves a whole line or none.
    line = json.dumps({"kind": "effect", "at": time.time(), **effect}) + "\n"
    file = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def react(request: CompletionRequest) -> Completion:
    if results(request):
        return respond("done")
    wanted = json.loads(last_user_text(request))
    return calls((wanted["tool"], wanted["args"]))


model = ScriptedModel(react)
