"""Lists and calls tools for one external agent that speaks MCP. Each request is held during its approval."""

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
"""The key of the `ToolCalls` in a request's scope."""
HOLD_SECONDS: Final = 50.0
"""The longest hold of a request: clients give up after a minute."""
LONG_HOLD_SECONDS: Final = 3_600.0
"""The longest hold of a request whose client gets progress messages."""
PROGRESS_SECONDS: Final = 15.0
"""The interval of progress messages."""
STATE_LIFETIME: Final = timedelta(hours=1)
"""The lifetime of a request's state between two rounds."""
AWAY_SECONDS: Final = 600.0
"""How long a call without a waiting request keeps its request for approval."""

Progress = Callable[[CallAnswer], Awaitable[None]]
"""Reports the state of a call to a client."""


@dataclass(frozen=True)
class ToolCalls:
    """The calls of one agent's request, with the agent, its person and the HTTP request.

    Methods raise `SignoffError` for a refused request or an unavailable service.
    """

    calls: AgentCalls
    public_url: str
    request: Request
    held: HeldRequests
    agent: str
    user: str | None
    session: ClientSession

    def tools(self, *, takes_choices: bool = False) -> list[dict[str, Any]]:
        """See `list_tools`."""
        return list_tools(self.calls.tools(agent=self.agent, user=self.user), takes_choices=takes_choices)

    def require_tool(self, name: str) -> None:
        """Raise `NotFound` for a tool that is not listed."""
        if all(each["name"] != name for each in self.tools()):
            raise NotFound(f"Unknown tool: {name[:64]}")

    async def propose(self, name: str, args: dict[str, Any], key: str | None, *, attended: bool) -> CallHandle:
        """Propose or join a call. An `attended` call runs only while a request of its agent waits for it."""
        body = CallBody(tool=name, args=args, agent=self.agent, user=self.user)
        call = await self.calls.propose(body, key=key, joins=True, attended=attended)
        return call if call.is_new else await self._attend(call)

    async def join(self, name: str) -> CallHandle:
        """Cancel the call's withdrawal if its request was interrupted."""
        return await self._attend(await self.load(name))

    async def load(self, name: str) -> CallHandle:
        return await self.calls.wait(await self.calls.load(name, self.agent), 0)

    async def withdraw(self, name: str) -> None:
        """A started call continues."""
        call = await self.load(name)
        with contextlib.suppress(BadRequest):
            await self.calls.withdraw(call)

    async def times(self, call: CallHandle) -> CallTimes:
        return await self.calls.times(call)

    async def decision_page(self, call: CallHandle) -> DecisionPage | None:
        """Return `None` if only others may decide."""
        asked = await self.calls.question(call)
        if asked is None or asked.request.state != "pending":
            return None
        if not self.calls.may_decide(asked, agent=self.agent, user=self.user):
            return None
        words = f"{call.answer.tool} waits for your approval, {show_code(asked.request.code)}."
        return DecisionPage(f"{self.public_url}/approvals/{asked.request.id}", words)

    async def seal_state(self, tool: str, args: dict[str, Any], call: CallHandle, rounds: int) -> str:
        sealer, until = await self.calls.sealer(SEAL), self.calls.now() + STATE_LIFETIME
        return self._binding(tool, args).seal_state(sealer, call.id, rounds, until)

    async def open_state(self, tool: str, args: dict[str, Any], state: str) -> tuple[str, int] | None:
        """Return `None` if the state is another request's, or expired."""
        return self._binding(tool, args).open_state(await self.calls.sealer(SEAL), state, self.calls.now())

    async def hold(
        self, call: CallHandle, request_id: str | int | None, seconds: float, progress: Progress
    ) -> CallHandle:
        """Return a call once it is settled, cancelled by its client, or after this many seconds.

        The agent's token is checked again before a result is returned.
        """
        # Without a session, another client's request may have the same id.
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
        return await self.calls.run(call) if call.answer.state == "permitted" else call

    async def hand_out(self, call: CallHandle) -> None:
        """Prevent joins of a call whose result is about to be sent."""
        if call.answer.state in SETTLED:
            await self.calls.hand_out(call)

    async def _attend(self, call: CallHandle) -> CallHandle:
        if call.answer.state not in SETTLED:
            await self.calls.attend(call)
        return call

    async def _leave(self, call: CallHandle) -> None:
        # If another request of the agent waits for it here, the call is still attended.
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
    """Return the tools that Signoff runs, sorted by name, equal for all clients.

    Tools that their agent runs are left out, because MCP has no permits. Without `takes_choices`, a schema that chooses
    between schemas at its top becomes one object: clients of the older versions reject it.
    """
    found = {tool.name: _describe(tool, takes_choices=takes_choices) for tool in visible if tool.runs_here}
    return [found[name] for name in sorted(found)]


def _describe(tool: ToolListing, *, takes_choices: bool) -> dict[str, Any]:
    # Without `outputSchema`: a result may be cut, shortened or masked for its reader, and no longer fit.
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
