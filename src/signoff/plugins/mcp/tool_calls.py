"""Lists tools to one external agent that speaks MCP, and calls them: each request is held while people are asked."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from starlette.requests import Request

from signoff.calls.agent_calls import MOVING, SETTLED
from signoff.calls.use_id import make_use_id
from signoff.contracts.call import CallContext
from signoff.contracts.errors import BadRequest, NotFound, ServerUnavailable
from signoff.contracts.ids import show_code
from signoff.contracts.person import Person
from signoff.contracts.requests import CallBody
from signoff.contracts.responses import CallAnswer
from signoff.engine.call_client import CallClient
from signoff.gateway.approvals.decisions import eligibility_for
from signoff.gateway.auth.caller import AuthenticatedCaller, own_tenant
from signoff.gateway.calls.call_proposer import CHANNEL, agent_of, asker_of, hand_out, propose
from signoff.gateway.calls.call_reader import confirm_call, find_request, load_call, read_call
from signoff.gateway.calls.call_wait import wait_for_call
from signoff.gateway.calls.call_withdrawal import withdraw
from signoff.gateway.calls.external_turn import ExternalTurn
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.transport.middleware import RETRY_SECONDS
from signoff.people.directory import principal_of, turn_context
from signoff.plugins.mcp.held_requests import HeldRequests, RequestName
from signoff.plugins.mcp.sealed_values import MCP_KEY, ClientSession, RequestBinding
from signoff.plugins.mcp.tool_list import list_tools
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
    """What one request of an agent needs: who it is, in whose name it asks, and by which request it came.

    Methods raise `SignoffError` for what is refused or away.
    """

    deps: GatewayDeps
    request: Request
    held: HeldRequests
    caller: AuthenticatedCaller | None
    agent: str
    user: str | None
    session: ClientSession

    def tools(self, *, takes_choices: bool = False) -> list[dict[str, Any]]:
        """Returns the tools that the agent may see, for the person in whose name it asks; see `list_tools`."""
        person = self._person()
        ctx = CallContext(
            actor=self.agent,
            session="",
            turn="",
            tenant=self._tenant,
            channel=CHANNEL,
            user=principal_of(person, self.deps.people),
            extra=turn_context(person, {}),
        )
        return list_tools(self.deps.catalog.tool_view(ctx).visible(), takes_choices=takes_choices)

    def require_tool(self, name: str) -> None:
        """Raises `NotFound` for a tool that is not in the list."""
        if all(each["name"] != name for each in self.tools()):
            raise NotFound(f"Unknown tool: {name[:64]}")

    async def propose(
        self, name: str, args: dict[str, Any], key: str | None, *, attended: bool
    ) -> tuple[ExternalTurn, CallAnswer]:
        """Proposes a call, or joins it, and returns how it stands at once.

        One that is `attended` runs only while a request of its agent waits for it.
        """
        body = CallBody(tool=name, args=args, agent=self.agent, user=self.user)
        turn, reply = await propose(self.deps, body, self.caller, key, "", joins=True, attended=attended)
        if reply is None or reply.nonce != turn.requester.nonce:
            return await self.join(turn.name)
        if reply.state in MOVING:
            return await self.load(turn.name)
        return turn, await confirm_call(self.deps, turn, reply.state, reply.outcome)

    async def join(self, call: str) -> tuple[ExternalTurn, CallAnswer]:
        """Returns a call as it stands, which is not withdrawn any more if its request was broken off before."""
        turn, answer = await self.load(call)
        if answer.state not in SETTLED:
            await self._calls.attend(turn.key)
        return turn, answer

    async def load(self, call: str) -> tuple[ExternalTurn, CallAnswer]:
        """Returns a call of this agent as it stands."""
        turn = await load_call(self.deps, call, self.agent, self._tenant)
        return turn, await read_call(self.deps, turn)

    async def withdraw(self, call: str) -> None:
        """Withdraws a call of this agent; one whose work has begun goes on."""
        turn, _ = await self.load(call)
        with contextlib.suppress(BadRequest):
            await withdraw(self.deps, turn, self.request)

    async def decision_page(self, turn: ExternalTurn) -> DecisionPage | None:
        """Returns the page on which the person in whose name a call is asked for may decide; None where others may."""
        asked = await find_request(self.deps, turn)
        if asked is None or asked.request.state != "pending":
            return None
        if eligibility_for(asked.request, self._person(), self.deps.people, self.deps.clock()).code:
            return None
        words = f"{turn.call.tool} waits for your approval, {show_code(asked.request.code)}."
        return DecisionPage(f"{self.deps.settings.public_url}/approvals/{asked.request.id}", words)

    async def seal_state(self, tool: str, args: dict[str, Any], turn: ExternalTurn, rounds: int) -> str:
        """Returns the sealed state of a request after a round, for its next one."""
        key = await self.deps.store.secret_key(MCP_KEY)
        return self._binding(tool, args).seal_state(key, turn.name, rounds, self.deps.clock() + STATE_LIFETIME)

    async def open_state(self, tool: str, args: dict[str, Any], state: str) -> tuple[str, int] | None:
        """Returns the call of a state and its rounds; None where it is not of this request, or too old."""
        key = await self.deps.store.secret_key(MCP_KEY)
        return self._binding(tool, args).open_state(key, state, self.deps.clock())

    async def hold(
        self, turn: ExternalTurn, request_id: str | int | None, seconds: float, progress: Progress
    ) -> CallAnswer:
        """Returns a call once it is settled, or as it stands after so many seconds, or once its client has cancelled.

        Its agent's token is looked at again before a result is told.
        """
        # Without a session another client's request may have the same id.
        name = RequestName(self.session.id, str(request_id)) if self.session.id else None
        try:
            with self.held.wait_for(turn.name), self.held.hold(name) as cancelled:
                answer = await self._look_on(turn, cancelled, seconds, progress)
        except asyncio.CancelledError:
            self.held.finish_later(self._leave(turn))
            raise
        if cancelled.is_set():
            await self._leave(turn)
        return answer

    async def run_permitted(self, turn: ExternalTurn, answer: CallAnswer) -> CallAnswer:
        """Has a call run that people let run while nobody waited for it; returns how it stands."""
        if answer.state != "permitted":
            return answer
        # Of several that come for it one is first; the others see it run.
        await self._calls.use(turn.key, make_use_id(None))
        return await read_call(self.deps, turn)

    async def _leave(self, turn: ExternalTurn) -> None:
        # Another request of the same agent may wait for it here: it is not left.
        if not self.held.is_awaited(turn.name):
            with contextlib.suppress(ServerUnavailable):
                await self._calls.attend(turn.key, AWAY_SECONDS)

    async def _look_on(
        self, turn: ExternalTurn, cancelled: asyncio.Event, seconds: float, progress: Progress
    ) -> CallAnswer:
        clock = asyncio.get_running_loop().time
        last, until = clock(), clock() + seconds

        async def watch(answer: CallAnswer) -> bool:
            nonlocal last
            if not cancelled.is_set() and clock() - last >= PROGRESS_SECONDS:
                last = clock()
                await progress(answer)
            return not cancelled.is_set()

        while True:
            answer = await wait_for_call(self.request, turn, until - clock(), watch)
            if answer.state != "permitted":
                return answer
            answer = await self.run_permitted(turn, answer)
            if answer.state in SETTLED or clock() >= until or cancelled.is_set():
                return answer

    async def hand_out(self, turn: ExternalTurn, answer: CallAnswer) -> None:
        """Lets nobody join a call any more whose result is about to be sent."""
        if answer.state in SETTLED:
            await hand_out(self.deps, turn)

    @property
    def is_beyond_limit(self) -> bool:
        """Whether the agent had no stream left for this request, which is answered at once."""
        return RETRY_SECONDS in self.request.scope

    @property
    def _calls(self) -> CallClient:
        return CallClient(self.deps.client)

    def _binding(self, tool: str, args: dict[str, Any]) -> RequestBinding:
        return RequestBinding(self._tenant, self.agent, self._person().id, tool, args)

    @property
    def _tenant(self) -> str:
        return own_tenant(self.caller, None)

    def _person(self) -> Person:
        _, agent = agent_of(self.deps, self.caller, self.agent)
        return asker_of(self.deps, agent, self.user, self._tenant)
