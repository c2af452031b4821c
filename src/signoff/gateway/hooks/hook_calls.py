"""Gates the calls of coding agents that ask by their hooks, and takes their reports."""

import asyncio
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from signoff.contracts.canonical_json import same_arguments
from signoff.contracts.errors import BadRequest, Conflict, Refused
from signoff.contracts.requests import CallBody, OutcomeBody
from signoff.contracts.responses import CallAnswer
from signoff.gateway.auth.caller import AuthenticatedCaller
from signoff.gateway.auth.streams import HeldSeconds, waiting
from signoff.gateway.calls.call_proposer import find_call, hand_out, name_call, propose, remarks_of, unname_call
from signoff.gateway.calls.call_reader import MOVING, confirm_call, load_call, make_used_answer, read_call
from signoff.gateway.calls.external_turn import ExternalTurn
from signoff.gateway.calls.permit_service import read_permit, use_id, use_permit
from signoff.gateway.calls.report_service import report_outcome
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.hooks.hook_answer import (
    SILENT,
    HookAnswer,
    allow,
    can_edit,
    defer,
    deny,
    refusal_words,
    wait_words,
)
from signoff.gateway.hooks.hook_event import HookBody, HookHost, run_key
from signoff.gateway.live import Live

_LOOK_SECONDS: Final = 2.0
"""How often a held request looks whether the gateway ends."""
_NOT_EDITED: Final = "Not run: it was approved with other arguments, which cannot be given to you here: "


@dataclass(frozen=True)
class HookCalls:
    """What one request of a hook needs: who it is, in whose name it asks, and how long it may be held.

    Methods raise `SignoffError` for what is refused or away, and pydantic's `ValidationError` for what is no call.
    """

    deps: GatewayDeps
    live: Live
    request: Request
    caller: AuthenticatedCaller | None
    host: HookHost
    agent: str | None
    user: str | None
    hold: float
    may_defer: bool

    async def gate(self, event: HookBody) -> HookAnswer:
        """Returns whether the call may run, after people have answered or `hold` seconds at the latest."""
        body = event.proposal(self.agent, self.user)
        # The same try for the same id: the answer to a hook may be lost, and it asks again.
        use = use_id(event.key)
        turn, answer = await self._propose(body, event.key, use)
        if answer.state in MOVING:
            answer = await self._wait(turn)
            if await self.request.is_disconnected():
                # Nobody would read the yes: the call stays as it is, for who asks again.
                return deny(event, wait_words(answer))
        if answer.state == "permitted" or (answer.state == "used" and answer.args is None and event.key is not None):
            answer = await self._use(turn, answer, use)
        if answer.state == "used" and answer.args is not None:
            return await self._allow(event, body, turn, answer)
        if answer.state == "waiting":
            deferred = self.may_defer and self.host == "claude-code" and event.hook_event_name == "PreToolUse"
            return defer(event, answer) if deferred else deny(event, wait_words(answer))
        if answer.state not in MOVING:
            await hand_out(self.deps, turn)
        return deny(event, refusal_words(answer))

    async def report(self, event: HookBody, outcome: OutcomeBody) -> HookAnswer:
        """Takes the report of a call that ran; says nothing, also of one that nobody asked about."""
        place = event.place(self.agent, self.user)
        turn = await find_call(self.deps, place, self.caller, event.key) if event.key is not None else None
        if turn is None and isinstance(event.tool_input, dict):
            turn = await find_call(self.deps, place, self.caller, run_key(event.tool_name, event.tool_input))
        if turn is not None:
            try:
                await report_outcome(self.deps, turn, outcome)
            except Refused as error:
                # The first report stands: the same hook may be sent twice.
                if not isinstance(error, Conflict) and error.code != "not_used":
                    raise
            if event.key is not None:
                await unname_call(self.deps, place, self.caller, event.key, turn)
        return SILENT

    async def _propose(self, body: CallBody, key: str | None, use: str) -> tuple[ExternalTurn, CallAnswer]:
        turn, reply = await propose(self.deps, body, self.caller, key, use, joins=True)
        if reply is not None and reply.permit is not None:
            permit = await read_permit(self.deps, turn, reply, use)
            await hand_out(self.deps, turn)
            return turn, make_used_answer(self.deps, turn, permit.args, permit.key, permit.note)
        if reply is not None and reply.nonce == turn.requester.nonce and reply.state not in MOVING:
            return turn, await confirm_call(self.deps, turn, reply.state, reply.outcome)
        turn = await load_call(self.deps, turn.name, turn.given.actor, turn.key.tenant)
        return turn, await read_call(self.deps, turn)

    async def _wait(self, turn: ExternalTurn) -> CallAnswer:
        clock = asyncio.get_running_loop().time
        async with waiting(self.request, self.hold, turn.name) as seconds:
            until = clock() + seconds
            while True:
                left = HeldSeconds(max(0.0, min(_LOOK_SECONDS, until - clock())))
                answer = await read_call(self.deps, turn, left)
                over = answer.state not in MOVING or clock() >= until or not await self.live.pause(0)
                if over or await self.request.is_disconnected():
                    return answer

    async def _use(self, turn: ExternalTurn, before: CallAnswer, use: str) -> CallAnswer:
        try:
            permit = await use_permit(self.deps, turn, use)
        except BadRequest as error:
            if error.code != "used":
                raise
            return before.model_copy(update={"state": "used", "args": None})
        await hand_out(self.deps, turn)
        facts = {"edited_by": before.edited_by, "decided_by": before.decided_by}
        used = make_used_answer(self.deps, turn, permit.args, permit.key, permit.note)
        return used.model_copy(update=facts)

    async def _allow(self, event: HookBody, body: CallBody, turn: ExternalTurn, permit: CallAnswer) -> HookAnswer:
        # A call that was joined may have other words: its agent runs it with its own.
        remarks = remarks_of(self.deps, body.tool)
        args = permit.args or {}
        if not permit.edited_by:
            own = {name: value for name, value in body.args.items() if name in remarks}
            args = {name: value for name, value in args.items() if name not in remarks} | own
        permit = permit.model_copy(update={"args": args})
        changed = not same_arguments(args, body.args)
        if changed and not can_edit(self.host, event):
            await report_outcome(self.deps, turn, OutcomeBody(code="execution_failed", result="not run as approved"))
            return deny(event, f"{_NOT_EDITED}{args}")
        if event.key is None:
            await name_call(self.deps, body, self.caller, run_key(body.tool, args), turn)
        elif changed:
            await name_call(self.deps, body, self.caller, event.key_of(args), turn)
        return allow(self.host, event, permit)
