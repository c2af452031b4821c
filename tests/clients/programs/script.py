"""The program reads one case per line, plays it and prints the result."""

import asyncio
import contextlib
import importlib
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentapprovalprotocol import AsyncClient, AsyncGate

from signoff_client import Call, Gate


class NamedGate(Gate):
    name = "refund"
    keys = ""
    """The file with the key of each proposed call."""

    def call(self, tool: str, args: Any, **fields: Any) -> Call:
        with Path(self.keys).open("a") as keys:
            print(json.dumps([fields["key"], args]), file=keys)
        return super().call(self.name, args, **fields)


def serve(example: str, make_model: Callable[[list[list[dict[str, Any]]]], Any]) -> None:
    answers = sys.stdout
    # A framework's own output is no answer.
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            case = json.loads(line)
            print(json.dumps(asyncio.run(_play(example, make_model, case))), file=answers, flush=True)


async def _play(example: str, make_model: Callable[[list[list[dict[str, Any]]]], Any], case: dict[str, Any]) -> Any:
    ran: list[list[Any]] = []

    def refund(order: str, euro: float) -> str:
        """Pays money back for an order."""
        ran.append([order, euro])
        if order == "closed":
            raise ValueError("the bank is closed")
        return f"refunded {euro:.0f} EUR for {order}"

    module, gate = _gated(example, case)
    module.refund = refund
    try:
        takes = "conversation" in inspect.signature(module.run).parameters
        more = (case["conversation"],) if takes else ()
        text = await module.run(make_model(case["turns"]), gate, "refund it", *more)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    return {"text": str(text), "ran": ran}


def _gated(example: str, case: dict[str, Any]) -> tuple[Any, Any]:
    if case["shim"] is None:
        gate = NamedGate(case["url"], case["token"], patience=0.0, wait=case["wait"])
        gate.name, gate.keys = case["tool"], case["keys"]
        return importlib.import_module(f"external_agents.{example}"), gate
    client = AsyncClient(f"{case['url']}/aap/coder", case["token"], retry_budget=case["shim"])
    return importlib.import_module(f"aap_shims.{example}"), AsyncGate(client)
