"""Gates the calls of coding agents that ask by their hooks, and takes their reports."""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from signoff.calls import MOVING, AgentCalls, CallHandle
from signoff.contracts.canonical_json import same_arguments
from signoff.contracts.errors import BadRequest, Conflict, Refused
from signoff.contracts.requests import CallBody, OutcomeBody
from signoff.formats.replace import replace
from signoff.plugins.hooks.hook_answer import (
    SILENT,
    USED_WORDS,
    HookAnswer,
    allow,
    can_edit,
    defer,
    deny,
    refusal_words,
    wait_words,
)
from signoff.plugins.hooks.hook_event import HookBody, HookHost, run_key

_NOT_EDITED: Final = "Not run: it was approved with other arguments, which cannot be given to you here: "


@dataclass(frozen=True)
class HookCalls:
    """What one request of a hook needs: who it is, in whose name it asks, and how long it may be held.

    Methods raise `SignoffError` for what is refused or away, and pydantic's `ValidationError` for what is no call.
    """

    calls: AgentCalls
    request: Request
    host: HookHost
    agent: str | None
    user: str | None
    hold: float
    may_defer: bool

    async def gate(self, event: HookBody) -> HookAnswer:
        """Returns whether the call may run, after people have answered or `hold` seconds at the latest."""
        try:
            return await self._gate(event)
        except BadRequest as error:
            if error.code != "used":
                raise
            return deny(event, USED_WORDS)

    async def _gate(self, event: HookBody) -> HookAnswer:
        body = event.proposal(self.agent, self.user)
        call = await self.calls.propose(body, key=event.key, joins=True)
        if call.answer.state in MOVING:
            call = await self.calls.wait(call, self.hold)
            if await self.request.is_disconnected():
                # Nobody would read the yes: the call stays as it is, for who asks again.
                return deny(event, wait_words(call.answer))
            if call.answer.state == "permitted" or (call.answer.state == "used" and event.key is not None):
                # The same try for the same id: the answer to a hook may be lost, and it asks again.
                call = await self.calls.use(call, event.key)
        answer = call.answer
        if answer.state == "used" and answer.args is not None:
            return await self._allow(event, body, call)
        if answer.state == "waiting":
            deferred = self.may_defer and self.host == "claude-code" and event.hook_event_name == "PreToolUse"
            return defer(event, answer) if deferred else deny(event, wait_words(answer))
        if answer.state not in MOVING:
            await self.calls.hand_out(call)
        return deny(event, refusal_words(answer))

    async def report(self, event: HookBody, outcome: OutcomeBody) -> HookAnswer:
        """Takes the report of a call that ran. Returns `SILENT` for an unknown call, too."""
        place = event.place(self.agent, self.user)
        call = await self.calls.find(place, event.key) if event.key is not None else None
        if call is None and isinstance(event.tool_input, dict):
            call = await self.calls.find(place, run_key(event.tool_name, event.tool_input))
        if call is not None:
            try:
                await self.calls.report(call, outcome)
            except Refused as error:
                # The first report stands: the same hook may be sent twice.
                if not isinstance(error, Conflict) and error.code != "not_used":
                    raise
            if event.key is not None:
                await self.calls.unname(place, event.key, call)
        return SILENT

    async def _allow(self, event: HookBody, body: CallBody, call: CallHandle) -> HookAnswer:
        # A call that was joined may have other words: its agent runs it with its own.
        remarks, args = self.calls.remarks(body.tool), call.answer.args or {}
        if not call.edited_by:
            own = {name: value for name, value in body.args.items() if name in remarks}
            args = {name: value for name, value in args.items() if name not in remarks} | own
        permit = replace(call.answer, args=args, edited_by=call.edited_by)
        changed = not same_arguments(args, body.args)
        if changed and not can_edit(self.host, event):
            await self.calls.report(call, OutcomeBody(code="execution_failed", result="not run as approved"))
            return deny(event, f"{_NOT_EDITED}{args}")
        if event.key is None:
            await self.calls.name(body, run_key(body.tool, args), call)
        elif changed:
            await self.calls.name(body, event.key_of(args), call)
        return allow(self.host, event, permit)
