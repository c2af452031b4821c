"""What the programs of all frameworks share: they read a case a line, play it, and answer with what came of it."""

import asyncio
import contextlib
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

from signoff_client import Call, Gate


class NamedGate(Gate):
    """Asks about every tool under one name."""

    name = "refund"

    def call(self, tool: str, *args: Any, **fields: Any) -> Call:
        """The call, of the tool of that name."""
        return super().call(self.name, *args, **fields)


def serve(example: str, make_model: Callable[[list[list[dict[str, Any]]]], Any]) -> None:
    """Plays cases with the example's agent and a model that makes these calls, one list of calls a turn."""
    module: Any = importlib.import_module(f"external_agents.{example}")
    answers = sys.stdout
    # Whatever a framework prints is no answer.
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            case = json.loads(line)
            print(json.dumps(asyncio.run(_play(module, make_model, case))), file=answers, flush=True)


async def _play(module: Any, make_model: Callable[[list[list[dict[str, Any]]]], Any], case: dict[str, Any]) -> Any:
    ran: list[list[Any]] = []

    def refund(order: str, euro: float) -> str:
        """Pays money back for an order."""
        ran.append([order, euro])
        if order == "closed":
            raise ValueError("the bank is closed")
        return f"refunded {euro:.0f} EUR for {order}"

    module.refund = refund
    gate = NamedGate(case["url"], case["token"], patience=0.0, wait=case["wait"])
    gate.name = case["tool"]
    try:
        text = await module.run(make_model(case["turns"]), gate, "refund it")
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    return {"text": str(text), "ran": ran}
