"""Three external agents ask at once: a coding agent's hook, an MCP client, and a program over plain HTTP."""

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any, Final

import httpx2
import yaml
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from demo.channels import MAIL, SLACK, Vendors, vendors
from demo.polling import Unexpected, expect, until
from demo.proof import recorded
from demo.scenes import Scene
from demo.stage import Stage
from signoff.contracts.ids import TurnKey, parse_approval_id
from signoff.testing.fake_mail import text_of

AGENT: Final = "coder"
_SCHEMA: Final = {"type": "object", "additionalProperties": False}
_DECLARED: Final[dict[str, Any]] = {
    "actors": {AGENT: {"external": {"acts_for": ["user:clerk"]}, "tools": ["Bash", "refund", "top_up"]}},
    "tools": {
        "Bash": {
            "description": "Run a command in a shell",
            "effect": "Run {command}",
            "input_schema": _SCHEMA | {"properties": {"command": {"type": "string"}}, "required": ["command"]},
            "requires_approval": {"approvers": ["role:finance"]},
        },
        "refund": {
            "description": "Pay money back for an order",
            "effect": "Refund {euro} EUR for {order}",
            "input_schema": _SCHEMA
            | {
                "properties": {"order": {"type": "string"}, "euro": {"type": "number"}},
                "required": ["order", "euro"],
            },
            "requires_approval": {"approvers": ["role:finance"], "edit": "approve"},
        },
    },
}
_COMMAND: Final = "kubectl rollout restart deployment/shop"
_CALL: Final[dict[str, Any]] = {
    "session_id": "s-1",
    "tool_name": "Bash",
    "tool_input": {"command": _COMMAND},
    "tool_use_id": "toolu_01",
    "cwd": "/shop",
}
"""The input of Claude Code's hooks, before and after a call."""
_PAID: Final = "SELECT office, amount FROM top_ups"
_KEY: Final = "refund-A7"
_HOLD_SECONDS: Final = "500"
_FIELD: Final = re.compile(r'<input[^>]* name="([^"]+)" value="([^"]*)"')


@dataclass
class Agents:
    """The people's channels, and the three agents once they have started."""

    vendors: Vendors
    token: str = ""
    hook: Process | None = None
    mcp: "asyncio.Task[CallToolResult] | None" = None
    caller: Process | None = None
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def play(self, stage: Stage) -> AsyncIterator[Scene]:
        """Play every scene in order."""
        try:
            yield await self.ask_at_once(stage)
            yield await self.killed(stage)
            yield await self.approved_by_mail(stage)
            yield await self.denied_in_slack(stage)
            yield await self.edited_in_the_inbox(stage)
            yield await self.found_again(stage)
            yield await self.in_the_record(stage)
        finally:
            await self._stop()

    async def ask_at_once(self, stage: Stage) -> Scene:
        """A hook that holds its coding agent, an MCP client and a program: each waits for approval."""
        made = await stage.command("token", "create", AGENT, "--scope", "call", "--app", str(stage.manifest))
        self.token = made["token"]
        self.hook = await self._start_hook(stage, "PreToolUse", "--hold", _HOLD_SECONDS)
        self.mcp = asyncio.create_task(self._call_tool(stage, "top_up", {"office": "Lisbon", "amount": 80}))
        self.caller = await self._start_caller(stage)
        found = await until("three questions", lambda: self._questions(stage), lambda each: len(each) == 3)
        self.asked = found
        expect("what is asked", sorted(("Bash", "refund", "top_up")), sorted(found))
        return Scene(
            "a coding agent's hook, an MCP client and a program over HTTP ask at once: Ana has three cards, each in"
            " Slack, by email, on WhatsApp and in her inbox",
            self._key("Bash"),
        )

    async def killed(self, stage: Stage) -> Scene:
        """SIGKILL to the program while its call waits; the question stays."""
        assert self.caller is not None
        self.caller.send_signal(signal.SIGKILL)
        expect("how the killed program ended", -signal.SIGKILL, await self.caller.wait())
        expect("questions that wait", 3, len(await self._questions(stage)))
        return Scene("SIGKILL to the program: its question waits on", self._key("refund"))

    async def approved_by_mail(self, stage: Stage) -> Scene:
        """The hook lets its coding agent continue. The card names the party that runs the call."""
        assert self.hook is not None

        async def cards() -> list[Any]:
            return [each for each in self.vendors.mail.mails(MAIL) if _COMMAND in text_of(each)]

        mail = (await until("a message about the command", cards, bool))[0]
        expect("the runner that the message names", True, "itself, outside Signoff" in text_of(mail))
        await self.vendors.mail.reply(mail, MAIL, "Approve")
        said, complaint = await self.hook.communicate()
        expect("how the hook ended", (0, ""), (self.hook.returncode, complaint.decode()))
        answer = json.loads(said)["hookSpecificOutput"]
        expect("what the hook answers", "allow", answer["permissionDecision"])
        after = await self._start_hook(stage, "PostToolUse", tool_response={"stdout": "restarted", "stderr": ""})
        _, complaint = await after.communicate()
        expect("how the hook after the command ended", (0, ""), (after.returncode, complaint.decode()))
        words = "Ana answers the mail with “Approve”: the hook allows the command, and reports its outcome"
        return Scene(words, self._key("Bash"))

    async def denied_in_slack(self, stage: Stage) -> Scene:
        """The MCP client reads the reason, and nothing is paid."""
        assert self.mcp is not None

        async def cards() -> list[Any]:
            return [each for each in self.vendors.slack.cards() if each.to == SLACK and "Lisbon" in each.text]

        card = (await until("a card in Slack about petty cash", cards, bool))[0]
        pressed = self.vendors.slack.press(card, SLACK, "denied", "Lisbon had its own yesterday")
        answer = await stage.http.post("/channels/slack", content=pressed.body, headers=dict(pressed.headers))
        expect("the click", 200, answer.status_code)
        result = await self.mcp
        words = " ".join(each.text for each in result.content if isinstance(each, TextContent))
        expect("whether the client reads an error", (True, True), (result.is_error, "Lisbon had its own" in words))
        expect("payments", [], stage.rows(_PAID))
        return Scene("Ana denies in Slack: the MCP client reads why, nothing is paid", self._key("top_up"))

    async def edited_in_the_inbox(self, stage: Stage) -> Scene:
        """200 becomes 120 while the requesting program is dead."""
        page = f"/approvals/{self.asked['refund']['id']}/edit"
        # Use separate cookies: this is Ana's browser, not an agent's.
        who = {"signoff_person": "ana"}
        async with httpx2.AsyncClient(
            base_url=stage.http.base_url, cookies=who, timeout=30, trust_env=False
        ) as browser:
            written = _fields((await browser.get(page)).text)
            [euro] = [name for name, value in written.items() if value == "200"]
            reviewed = await browser.post(page, data=written | {euro: "120", "step": "review"})
            expect("what the review says", True, "Refund 120 EUR for A7" in reviewed.text)
            answer = await browser.post(page, data=_fields(reviewed.text) | {"step": "approve"})
        expect("the answer to the approval", 303, answer.status_code)
        words = "Ana lowers the refund from 200 to 120 EUR in her inbox; the program that asked is dead"
        return Scene(words, self._key("refund"))

    async def found_again(self, stage: Stage) -> Scene:
        """The restarted program gets the approved call by its key, once."""
        first, second = [await self._end(await self._start_caller(stage)) for _ in range(2)]
        expect("the refund", ["ended", "refunded 120 EUR for A7"], first[1:])
        expect("the refund, asked for again", first, second)
        words = "started again with its key, it refunds 120 EUR once: a third start gets the outcome"
        return Scene(words, self._key("refund"))

    async def in_the_record(self, stage: Stage) -> Scene:
        """The approver and the channel of each decision."""
        keys = [self._key(tool) for tool in ("Bash", "top_up", "refund")]
        found = await recorded(stage, *keys)
        # The gateway records attempts; a turn only reports its end.
        attempts = [[each for each in found.of(key, "attempt") if each[0]][-1] for key in keys]
        by = [(who, facts["verdict"], facts["channel"]) for who, facts in attempts]
        doors = [("ana", "approved", "email"), ("ana", "denied", "slack"), ("ana", "approved", "inbox")]
        expect("each decision with its approver and channel", doors, by)
        outcomes = [[facts["code"] for _, facts in found.of(key, "outcome")] for key in keys]
        expect("what became of each", [["ok"], [], ["ok"]], outcomes)
        return Scene(f"each by Ana, by mail, Slack and inbox; {found.words}", self._key("refund"))

    def _key(self, tool: str) -> TurnKey:
        found = parse_approval_id(self.asked[tool]["id"])
        if found is None:
            raise Unexpected(f"the request of `{tool}`: its id names no turn")
        return found.turn

    async def _questions(self, stage: Stage) -> dict[str, dict[str, Any]]:
        reply = await stage.http.get("/v1/approvals", params={"as": "ana"})
        return {each["tool"]: each for each in reply.raise_for_status().json()["approvals"]}

    async def _call_tool(self, stage: Stage, tool: str, args: dict[str, Any]) -> CallToolResult:
        headers = {"authorization": f"Bearer {self.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=120, trust_env=False) as http:
            transport = streamable_http_client(f"{stage.http.base_url}/mcp/{AGENT}", http_client=http)
            async with Client(transport) as client:
                return await client.call_tool(tool, args)

    async def _start_hook(self, stage: Stage, event: str, *options: str, **more: Any) -> Process:
        started = await self._start(stage, "signoff.cli.main", "hook", "claude-code", *options)
        assert started.stdin is not None
        started.stdin.write(json.dumps(_CALL | more | {"hook_event_name": event}).encode())
        started.stdin.close()
        return started

    async def _start_caller(self, stage: Stage) -> Process:
        return await self._start(stage, "demo.caller", _KEY, "A7", "200")

    async def _start(self, stage: Stage, module: str, *arguments: str) -> Process:
        env = {**stage.env, "SIGNOFF_PUBLIC_URL": str(stage.http.base_url), "SIGNOFF_TOKEN": self.token}
        env["PYTHONPATH"] = str(Path(__file__).parents[1])
        command = (sys.executable, "-m", module, *arguments)
        return await asyncio.create_subprocess_exec(*command, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE)

    async def _end(self, process: Process) -> list[str]:
        said, complaint = await process.communicate()
        if process.returncode:
            raise Unexpected(f"the program over HTTP failed: {complaint.decode().strip()[-500:]}")
        return said.decode().strip("\n").split("\t")

    async def _stop(self) -> None:
        for process in (self.hook, self.caller):
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()
        if self.mcp is not None:
            self.mcp.cancel()
            await asyncio.gather(self.mcp, return_exceptions=True)


def _fields(page: str) -> dict[str, str]:
    """Return the fields of a page's form with their values."""
    at = page.index('name="question_hash"')
    form = page[page.rindex("<form", 0, at) : page.index("</form>", at)]
    return {name: unescape(value) for name, value in _FIELD.findall(form)}


@asynccontextmanager
async def agents(example: Path, folder: Path) -> AsyncIterator[Agents]:
    """Yield the people's channels, and a copy of the example in `folder` with an external agent and its tools."""
    async with AsyncExitStack() as stack:
        found = await stack.enter_async_context(vendors(example, folder))
        declared = yaml.safe_load(found.manifest.read_text(encoding="utf-8"))
        declared["actors"] |= _DECLARED["actors"]
        for name, tool in _DECLARED["tools"].items():
            declared["tools"][name] = tool | {"scope": "generalist", "runs": "external"}
        found.manifest.write_text(yaml.safe_dump(declared, sort_keys=False), encoding="utf-8")
        yield Agents(found)
