import asyncio
import contextlib
import json
import re
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from gateway_rig import PEOPLE, GatewayRig
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from turn_fixtures import Ledger, catalog_of

from signoff.plugins.mcp.protocol_server import TASKS
from signoff.registry.actor import Actor, ExternalAgent
from signoff.registry.catalog import Catalog
from signoff.registry.tool import Tool

PACKAGES: Final = Path(__file__).parent / "mcp_packages"
_SUITE: Final = "node_modules/@modelcontextprotocol/conformance"
_SCENARIO: Final = re.compile(r"^server-|-\d{4}-\d\d-\d\dT.*$")
WITHDRAWN: Final = ("Compute lifecycle-cancel", "Compute rt-cancel")
"""Calls that the suite withdraws while it continues."""
_NOTHING: Final[dict[str, Any]] = {"type": "object", "properties": {}}
_SCHEMA_2020: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def conformance_catalog(ledger: Ledger) -> Catalog:
    def fail(args: dict[str, Any], context: Any) -> Any:
        raise ValueError("This tool intentionally returns an error for testing")

    def greet(args: dict[str, Any], context: Any) -> str:
        return f"Hello, {args.get('name')}!"

    def tool(name: str, answer: Any, schema: dict[str, Any] = _NOTHING, **fields: Any) -> Tool:
        given: dict[str, Any] = {
            "name": name,
            "description": name,
            "input_schema": schema,
            "scope": "generalist",
            "handler": ledger.handler(name, answer),
        }
        return Tool(**given | fields)

    named = {"type": "object", "properties": {"name": {"type": "string"}}}
    region = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    label = {"type": "object", "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}}}
    tools = [
        tool("test_simple_text", "This is a simple text response for testing."),
        tool("test_error_handling", fail),
        tool("json_schema_2020_12_tool", "ok", _SCHEMA_2020),
        tool("greet", greet, named),
        tool("in_region", "ok", region),
        tool("slow_compute", "computed", label, requires_approval=True, effect="Compute {label}"),
        tool("failing_job", fail, requires_approval=True, effect="Fail"),
    ]
    coder = Actor(name="coder", model="", external=ExternalAgent(acts_for=("user:guest",)))
    return catalog_of(tools, actors=[coder], people=PEOPLE)


class TaskRequests:
    """Counts proposals of tasks: a call approved before its proposal is no task."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.begun = self.ended = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/mcp"):
            await self._app(scope, receive, send)
            return
        message = await receive()
        is_counted = TASKS.encode() in message.get("body", b"") and b'"tools/call"' in message["body"]
        given = [message]
        self.begun += is_counted

        async def receiving() -> Message:
            return given.pop() if given else await receive()

        try:
            await self._app(scope, receiving, send)
        finally:
            self.ended += is_counted


@contextlib.asynccontextmanager
async def approvals(rig: GatewayRig, requests: TaskRequests) -> AsyncIterator[None]:
    async def approve() -> None:
        while True:
            ended = requests.ended
            found = (await rig.http.get("/v1/approvals?as=approver&limit=100")).json()["approvals"]
            for each in found if ended == requests.begun else []:
                if each["effect"] not in WITHDRAWN:
                    await rig.decide(each["id"], verdict="approved", **{"as": "approver"})
            await asyncio.sleep(0.1)

    people = asyncio.create_task(approve())
    try:
        yield
    finally:
        people.cancel()
        await asyncio.wait([people])


async def failed_checks(url: str, folder: Path, allowed: tuple[str, ...], *options: str) -> set[str]:
    """Return the failed checks, as `scenario: check`. The suite gives up on a request after seconds, which no option
    changes: `node20.mjs` makes it wait for minutes.
    """
    words = ("node", "--import", "./node20.mjs", f"{_SUITE}/dist/index.js", "server", "--url", url)
    given = ("--timeout", "600000", "--output-dir", str(folder), *options)
    process = await asyncio.create_subprocess_exec(*words, *given, cwd=PACKAGES, stdout=PIPE, stderr=STDOUT)
    printed, _ = await process.communicate()
    failed = _read_reports(folder)
    assert failed is not None, printed.decode()
    return {each for each in failed if not each.startswith(allowed)}


def _read_reports(folder: Path) -> list[str] | None:
    reports = list(folder.rglob("checks.json"))
    found = [
        f"{_SCENARIO.sub('', path.parent.name)}: {check['id']}"
        for path in reports
        for check in json.loads(path.read_text(encoding="utf-8"))
        if check["status"] == "FAILURE"
    ]
    return found if reports else None
