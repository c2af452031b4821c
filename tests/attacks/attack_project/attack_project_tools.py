"""The model proposes the calls listed in the message."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.tool_context import ToolContext
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

FOLDER = "ATTACK_FOLDER"
HAUL_SECONDS = 120.0
OBJECTION = "no refunds to this address at present"


def _folder() -> Path:
    return Path(os.environ[FOLDER])


def _ran(tool: str, **args: Any) -> str:
    with (_folder() / "ledger").open("a") as ledger:
        ledger.write(json.dumps({"tool": tool, **args}) + "\n")
    return f"{tool} ran"


async def pay(amount: int, to: str) -> str:
    """Pay a payee."""
    return _ran("pay", amount=amount, to=to)


async def wire(amount: int, to: str) -> str:
    """Pay a payee; two people have to agree."""
    return _ran("wire", amount=amount, to=to)


async def settle(amount: int, to: str) -> str:
    """Pay a payee; finance and legal have to agree."""
    return _ran("settle", amount=amount, to=to)


async def gift(amount: int, to: str) -> str:
    """Pay a payee; an answer may be remembered."""
    return _ran("gift", amount=amount, to=to)


async def hurry(amount: int, to: str) -> str:
    """Pay a payee within seconds of the approval."""
    return _ran("hurry", amount=amount, to=to)


async def brief(amount: int, to: str) -> str:
    """Pay a payee if approvers answer within seconds."""
    return _ran("brief", amount=amount, to=to)


async def refund(amount: int, to: str) -> str:
    """Pay a payee back."""
    return _ran("refund", amount=amount, to=to)


async def petty(amount: int, to: str) -> str:
    """Pay a payee from the till; an answer need not be signed."""
    return _ran("petty", amount=amount, to=to)


async def mailed(amount: int, to: str) -> str:
    """Pay a payee; two people have to agree, by an emailed link if they like."""
    return _ran("mailed", amount=amount, to=to)


async def certify(amount: int, to: str, ctx: ToolContext) -> str:
    """Pay a payee and record the approvers and their reason; a dry run pays nothing."""
    if getattr(ctx, "dry_run", False):
        return "would have paid"
    return _ran("certify", amount=amount, to=to, decided_by=ctx.decided_by, why=ctx.approval_reason)


async def tip(amount: int, to: str) -> str:
    """Pay a payee a little, without approval."""
    return _ran("tip", amount=amount, to=to)


async def may_refund(args: dict[str, Any], context: HookContext) -> Permission:
    """Object while the file `no-<to>` exists."""
    if (_folder() / f"no-{args['to']}").exists():
        return Permission.deny(OBJECTION, can_override=True)
    return Permission.allow()


async def order(items: list[dict[str, Any]], to: str) -> str:
    """Order things."""
    return _ran("order", items=len(items), to=to)


async def batch(items: list[int], memo: str, to: str) -> str:
    """Order many things; an answer may be remembered."""
    return _ran("batch", items=len(items), to=to)


async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing at {place}"


async def climb(amount: int, to: str) -> str:
    """Pay a payee; an answer may be remembered, and the office is asked after a second without an answer."""
    return _ran("climb", amount=amount, to=to)


async def stamp(amount: int, to: str) -> str:
    """Stamp letters, which the office decides."""
    return _ran("stamp", amount=amount, to=to)


def _haul(amount: int, to: str) -> str:
    (_folder() / f"begun-{to}").touch()
    ends = time.monotonic() + HAUL_SECONDS
    while not (_folder() / f"go-{to}").exists() and time.monotonic() < ends:
        time.sleep(0.1)
    return _ran("haul", amount=amount, to=to)


async def haul(amount: int, to: str) -> str:
    """Haul in a thread, as with a blocking library: the work does not end with its caller.

    It creates the file `begun-<to>` first, and finishes once the file `go-<to>` exists.
    """
    return await asyncio.to_thread(_haul, amount, to)


def react(request: CompletionRequest) -> Completion:
    """Propose the next round of the message's list, then return the codes of the last round."""
    try:
        rounds = json.loads(last_user_text(request))
    except ValueError:
        return respond("Tell me in JSON.", "clarifying")
    roles = [message.role for message in request.messages]
    latest = roles[::-1].index("user") if "user" in roles else len(roles)
    done = roles[len(roles) - latest :].count("assistant")
    if done < len(rounds):
        return calls(*((name, args) for name, args in rounds[done]), text="As I was told.")
    return respond(", ".join(part.code for part in results(request)) or "nothing to do")


model = ScriptedModel(react)
