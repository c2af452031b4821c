"""Lists tools to one external agent that speaks MCP, and calls them: each request is held while people are asked."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from starlette.requests import Request

from signoff.calls import SETTLED, AgentCalls, CallBody, CallHandle, CallTimes, ToolListing
from signoff.contracts.errors import BadRequest, NotFound, ServerUnavailable
from signoff.contracts.ids import show_code
from signoff.contracts.responses import CallAnswer
from signoff.formats.object_schema import as_object
from signoff.plugins.mcp.held_requests import HeldRequests, RequestName
from signoff.plugins.mcp.sealed_values import SEAL, ClientSession, RequestBinding
from signoff.plugins.mcp.url_elicitation import DecisionPage

SCOPE: Final = "signoff.mcp"
"""Where in a request's scope its `ToolCalls` are kept."""
HOLD_SECONDS: Final = 50.0
"""How long a request is held while people are asked: clients give up after a minute."""
LONG_HOLD_SECONDS: Final = 3_600.0
"""The same of a request whose client is told now and then that it is still under way."""
PROGRESS_SECONDS: Final = 15.0
"""How often it is told that."""
STATE_LIFETIME: Final = timedelta(hours=1)
"""For how long the state of a request is good between two rounds."""
AWAY_SECONDS: Final = 600.0
"""How long people are asked about a call whose request was broken off, unless another one waits for it again."""

Progress = Callable[[CallAnswer], Awaitable[None]]
"""Tells a client how its call stands."""


@dataclass(frozen=True)
class ToolCalls:
    """The calls of one agent's request, with the agent, its person and the HTTP request.

    Methods raise `SignoffError` for what is refused or away.
    """

    calls: AgentCalls
    public_url: str
    request: Request
    held: HeldRequests
    agent: str
    user: str | None
    session: ClientSession

    def tools(self, *, takes_choices: bool = False) -> list[dict[str, Any]]:
        """Returns the tools that the agent may see, for the person in whose name it asks; see `list_tools`."""
        return list_tools(self.calls.tools(agent=self.agent, user=self.user), takes_choices=takes_choices)

    def require_tool(self, name: str) -> None:
        """Raises `NotFound` for a tool that is not in the list."""
        if all(each["name"] != name for each in self.tools()):
            raise NotFound(f"Unknown tool: {name[:64]}")

    async def propose(self, name: str, args: dict[str, Any], key: str | None, *, attended: bool) -> CallHandle:
        """Proposes a call, or joins it, and returns how it stands at once.

        One that is `attended` runs only while a request of its agent waits for it.
        """
        body = CallBody(tool=name, args=args, agent=self.agent, user=self.user)
        call = await self.calls.propose(body, key=key, joins=True, attended=attended)
        return call if call.is_new else await self._attend(call)

    async def join(self, name: str) -> CallHandle:
        """Returns a call as it stands, which is not withdrawn any more if its request was broken off before."""
        return await self._attend(await self.load(name))

    async def load(self, name: str) -> CallHandle:
        """Returns a call of this agent as it stands."""
        return await self.calls.wait(await self.calls.load(name, self.agent), 0)

    async def withdraw(self, name: str) -> None:
        """Withdraws a call of this agent; one whose work has begun goes on."""
        call = await self.load(name)
        with contextlib.suppress(BadRequest):
            await self.calls.withdraw(call)

    async def times(self, call: CallHandle) -> CallTimes:
        """Returns when a call began and changed."""
        return await self.calls.times(call)

    async def decision_page(self, call: CallHandle) -> DecisionPage | None:
        """Returns the page on which the person in whose name a call is asked for may decide; None where others may."""
        asked = await self.calls.question(call)
        if asked is None or asked.request.state != "pending":
            return None
        if not self.calls.may_decide(asked, agent=self.agent, user=self.user):
            return None
        words = f"{call.answer.tool} waits for your approval, {show_code(asked.request.code)}."
        return DecisionPage(f"{self.public_url}/approvals/{asked.request.id}", words)

    async def seal_state(self, tool: str, args: dict[str, Any], call: CallHandle, rounds: int) -> str:
        """Returns the sealed state of a request after a round, for its next one."""
        sealer, until = await self.calls.sealer(SEAL), self.calls.now() + STATE_LIFETIME
        return self._binding(tool, args).seal_state(sealer, call.id, rounds, until)

    async def open_state(self, tool: str, args: dict[str, Any], state: str) -> tuple[str, int] | None:
        """Returns the call of a state and its rounds; None where it is not of this request, or too old."""
        return self._binding(tool, args).open_state(await self.calls.sealer(SEAL), state, self.calls.now())

    async def hold(
        self, call: CallHandle, request_id: str | int | None, seconds: float, progress: Progress
    ) -> CallHandle:
        """Returns a call once it is settled, or as it stands after so many seconds, or once its client has cancelled.

        Its agent's token is looked at again before a result is told.
        """
        # Without a session another client's request may have the same id.
        name = RequestName(self.session.id, str(request_id)) if self.session.id else None
        try:
            with self.held.wait_for(call.id), self.held.hold(name) as cancelled:
                call = await self._look_on(call, cancelled, seconds, progress)
        except asyncio.CancelledError:
            self.held.finish_later(self._leave(call))
            raise
        if cancelled.is_set():
            await self._leave(call)
        return call

    async def run_permitted(self, call: CallHandle) -> CallHandle:
        """Has a call run that people let run while nobody waited for it; returns how it stands."""
        return await self.calls.run(call) if call.answer.state == "permitted" else call

    async def hand_out(self, call: CallHandle) -> None:
        """Lets nobody join a call any more whose result is about to be sent."""
        if call.answer.state in SETTLED:
            await self.calls.hand_out(call)

    async def _attend(self, call: CallHandle) -> CallHandle:
        if call.answer.state not in SETTLED:
            await self.calls.attend(call)
        return call

    async def _leave(self, call: CallHandle) -> None:
        # Another request of the same agent may wait for it here: it is not left.
        if not self.held.is_awaited(call.id):
            with contextlib.suppress(ServerUnavailable):
                await self.calls.attend(call, AWAY_SECONDS)

    async def _look_on(
        self, call: CallHandle, cancelled: asyncio.Event, seconds: float, progress: Progress
    ) -> CallHandle:
        clock = asyncio.get_running_loop().time
        last, until = clock(), clock() + seconds

        async def watch(answer: CallAnswer) -> bool:
            nonlocal last
            if not cancelled.is_set() and clock() - last >= PROGRESS_SECONDS:
                last = clock()
                await progress(answer)
            return not cancelled.is_set()

        while True:
            call = await self.calls.wait(call, until - clock(), watch)
            if call.answer.state != "permitted":
                return call
            call = await self.calls.run(call)
            if call.answer.state in SETTLED or clock() >= until or cancelled.is_set():
                return call

    def _binding(self, tool: str, args: dict[str, Any]) -> RequestBinding:
        return RequestBinding(*self.calls.asker(self.agent, self.user), tool, args)


def list_tools(visible: Iterable[ToolListing], *, takes_choices: bool = False) -> list[dict[str, Any]]:
    """Returns the tools that Signoff runs, sorted by name, so that the list of one client is as that of another.

    A tool that its agent runs itself is left out: by MCP nobody is handed a permit. Without `takes_choices` a schema
    that chooses between schemas at its top is told as one object, as clients of the older versions refuse it.
    """
    found = {tool.name: _describe(tool, takes_choices=takes_choices) for tool in visible if tool.runs_here}
    return [found[name] for name in sorted(found)]


def _describe(tool: ToolListing, *, takes_choices: bool) -> dict[str, Any]:
    # No `outputSchema`: a result may have been cut, shortened or masked for its reader, and need not fit any more.
    found: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.schema if takes_choices else as_object(tool.schema),
        "annotations": {
            "readOnlyHint": tool.read_only,
            "destructiveHint": not tool.read_only,
            "idempotentHint": tool.idempotent,
        },
    }
    return {**found, "title": tool.title} if tool.title else found
