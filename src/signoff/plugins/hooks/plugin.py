"""The plugin for coding agents' hooks. Claude Code and Codex send their own format and read their own answers."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from signoff.calls import MOVING, AgentCalls, CallHandle, Calls, naming
from signoff.contracts.call import ReportCode
from signoff.contracts.canonical_json import NotCanonical, canonical_json, json_bytes, same_arguments, sha256_hex
from signoff.contracts.errors import BadRequest, Conflict, Refused, SignoffError
from signoff.contracts.ids import is_id
from signoff.contracts.limits import ARGUMENTS_BYTES, REASON_CHARS
from signoff.contracts.requests import CallBody, OutcomeBody, sentence
from signoff.contracts.responses import CallAnswer
from signoff.formats.replace import replace
from signoff.plugins import BasePlugin, PluginRouter

HookHost = Literal["claude-code", "codex"]
"""The host of the hooks. Each reads an answer in its own format."""
GATES: Final = ("PreToolUse", "PermissionRequest")
"""Events whose answer decides whether the call may run."""
_SESSIONS: Final = uuid.UUID("0d6a1f2e-93f5-5f0e-8a55-6a1b8f4c7c02")
_CUT: Final = 30_000
"""The kept length of a result that is too large, as ASCII: escaped in JSON, some characters take two bytes."""
HookAnswer = dict[str, Any]
"""The answer object of a hook. An empty one decides nothing."""
SILENT: Final[HookAnswer] = {}
USED_WORDS: Final = "Not run: the permit of this call was used before. Call it again for a new request."
_AGAIN: Final = "Call it again with the same arguments to keep waiting; nothing ran."
_NOT_EDITED: Final = "Not run: it was approved with other arguments, which cannot be given to you here: "
router = PluginRouter("/v1/hooks", tag="calls")

HOLD_SECONDS = 50.0
"""The default hold of a hook: proxies give up at a minute."""
LONGEST_HOLD_SECONDS = 3_600.0
"""The longest hold of a hook."""

Hold = Annotated[
    float, Query(ge=0, le=LONGEST_HOLD_SECONDS, description="Seconds to wait for people; below the hook's time-out.")
]
Defer = Annotated[
    bool, Query(description="End a `-p` run that waits with `defer`, to be resumed later; a session passes over it.")
]
Agent = Annotated[str | None, Query(description="In development, the agent of the calls; optional with one agent.")]
User = Annotated[str | None, Query(description="The requester's id; optional if the agent acts for one person.")]


class HookBody(BaseModel):
    """The event of a hook of Claude Code or Codex, with the fields that count here."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    hook_event_name: str = Field(description="`PreToolUse`, `PermissionRequest`, `PostToolUse`, `PostToolUseFailure`.")
    session_id: str = Field(default="", description="The coding agent's session, which is that of its calls.")
    tool_name: str = Field(default="", description="The tool, by its name in the gateway's manifest.")
    tool_input: Any = Field(default=None, description="The tool's arguments.")
    tool_use_id: str = Field(default="", description="The call's id; a permission request has none.")
    cwd: str = Field(default="", description="Its working directory, which approvers see.")
    tool_response: Any = Field(default=None, description="The result of the call.")
    error: str = Field(default="", description="Why it failed.")
    is_interrupt: bool = Field(default=False, description="Whether the call was interrupted.")

    @property
    def session(self) -> str | None:
        """Always the same for one session of the coding agent."""
        if not self.session_id or is_id(self.session_id):
            return self.session_id or None
        return str(uuid.uuid5(_SESSIONS, sha256_hex(self.session_id)))

    @property
    def key(self) -> str | None:
        """`None` without an id: then an equal call matches.

        Some models reuse an id for another call. The key includes the arguments, and ends with the call's report.
        """
        return self.key_of(self.tool_input) if self.tool_use_id else None

    def key_of(self, args: Any) -> str:
        return f"hook:{sha256_hex([self.tool_use_id, self.tool_name, _plain(args)])}"

    @property
    def outcome(self) -> OutcomeBody | None:
        """`None` for an event without an outcome."""
        if self.hook_event_name == "PostToolUse":
            return _report("ok", self.tool_response)
        if self.hook_event_name == "PostToolUseFailure":
            # An interrupted call may have taken effect.
            return _report("in_doubt" if self.is_interrupt else "execution_failed", self.error)
        return None

    def proposal(self, agent: str | None, user: str | None) -> CallBody:
        """Raises pydantic's `ValidationError` for an invalid call."""
        says = f"in {self.cwd}"[:REASON_CHARS] if self.cwd else ""
        return CallBody(
            tool=self.tool_name,
            args=self.tool_input,
            agent=agent,
            user=user,
            session=self.session,
            says=says,
            use=self.key or True,
        )

    def place(self, agent: str | None, user: str | None) -> CallBody:
        """Leave out the arguments, to find a call by its key."""
        return CallBody(tool=self.tool_name, agent=agent, user=user, session=self.session)


def _plain(args: Any) -> Any:
    try:
        canonical_json(args)
    except NotCanonical:
        return json.dumps(args)
    return args


def run_key(tool: str, args: dict[str, Any]) -> str:
    """Return the key of a call whose final event has an id that its first event lacked."""
    return f"run:{sha256_hex([tool, args])}"


def _report(code: ReportCode, result: Any) -> OutcomeBody:
    try:
        whole = json_bytes(result)
        if len(whole) <= ARGUMENTS_BYTES:
            return OutcomeBody(code=code, result=result)
        # The holder of the whole result can prove that it is the call's.
        digest = hashlib.sha256(whole).hexdigest()
        return OutcomeBody(
            code=code, result=f"{json.dumps(result)[:_CUT]} (cut: {len(whole)} bytes of JSON, sha-256 {digest})"
        )
    except NotCanonical:
        # Keep a result that JSON cannot carry safely, such as half of a surrogate pair, as escaped text.
        return OutcomeBody(code=code, result=json.dumps(result)[:_CUT])


def allow(host: HookHost, event: HookBody, permit: CallAnswer) -> HookAnswer:
    """Pass the arguments of `permit` if they differ."""
    args = permit.args or {}
    changed = not same_arguments(args, event.tool_input)
    if event.hook_event_name == "PermissionRequest":
        return _decide(event, {"behavior": "allow", **({"updatedInput": args} if changed else {})})
    if not changed and not permit.note:
        # Codex counts a bare approval as a failed hook. Without an answer it follows its own rules.
        return SILENT if host == "codex" else _permit(event, "allow")
    if not changed and host != "codex":
        return _permit(event, "allow", additionalContext=permit.note)
    editor = f"{permit.edited_by or 'An approver'} edited the arguments before approving. The call runs with these."
    note = "\n".join(filter(None, (editor if changed else "", permit.note)))
    return _permit(event, "allow", updatedInput=args, additionalContext=note)


def deny(event: HookBody, reason: str) -> HookAnswer:
    """`reason` is for the model."""
    words = reason.strip() or "not allowed"
    if event.hook_event_name == "PermissionRequest":
        return _decide(event, {"behavior": "deny", "message": words})
    return _permit(event, "deny", permissionDecisionReason=words)


def defer(event: HookBody, call: CallAnswer) -> HookAnswer:
    """The run ends here and asks again after it resumes. Only for Claude Code's `-p`."""
    return _permit(event, "defer", permissionDecisionReason=wait_words(call))


def can_edit(host: HookHost, event: HookBody) -> bool:
    return host != "codex" or event.hook_event_name != "PermissionRequest"


def wait_words(call: CallAnswer) -> str:
    """Return text for the model, with how to continue."""
    code = f" {call.code}" if call.code else ""
    where = f" ({call.page})" if call.page else ""
    return f"Not run: waiting for approval{code}{where}. {_AGAIN}"


def refusal_words(call: CallAnswer) -> str:
    match call.state:
        case "denied":
            by = f" by {call.by}" if call.source == "human" and call.by else ""
            without = "no reason given" if call.source in ("", "human") else call.source
            return f"Denied{by}: {call.reason or without}"
        case "used":
            return USED_WORDS
        case "ended":
            return f"Not run here: Signoff has this call's outcome already, {call.code}: {call.result}"
    return "Not run: this tool is run by Signoff itself, and not by you."


def _permit(event: HookBody, decision: str, **more: Any) -> HookAnswer:
    return _output(event, {"permissionDecision": decision, **more})


def _decide(event: HookBody, decision: dict[str, Any]) -> HookAnswer:
    return _output(event, {"decision": decision})


def _output(event: HookBody, output: dict[str, Any]) -> HookAnswer:
    return {"hookSpecificOutput": {"hookEventName": event.hook_event_name, **output}}


@dataclass(frozen=True)
class HookCalls:
    """One request of a hook: its host, agent and person, and its longest hold.

    Methods raise `SignoffError` for a refused request or an unavailable service, and pydantic's `ValidationError` for
    an invalid call.
    """

    calls: AgentCalls
    request: Request
    host: HookHost
    agent: str | None
    user: str | None
    hold: float
    may_defer: bool

    async def gate(self, event: HookBody) -> HookAnswer:
        """Return after a decision or `hold` seconds at the latest."""
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
                # The approval would not reach its reader: the call keeps its state for the next request.
                return deny(event, wait_words(call.answer))
            if call.answer.state == "permitted" or (call.answer.state == "used" and event.key is not None):
                # The same attempt for the same id: the answer to a hook may get lost, and it asks again.
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
        """Return `SILENT` also for an unknown call."""
        place = event.place(self.agent, self.user)
        call = await self.calls.find(place, event.key) if event.key is not None else None
        if call is None and isinstance(event.tool_input, dict):
            call = await self.calls.find(place, run_key(event.tool_name, event.tool_input))
        if call is not None:
            try:
                await self.calls.report(call, outcome)
            except Refused as error:
                # The first report is final: a hook may be sent twice.
                if not isinstance(error, Conflict) and error.code != "not_used":
                    raise
            if event.key is not None:
                await self.calls.unname(place, event.key, call)
        return SILENT

    async def _allow(self, event: HookBody, body: CallBody, call: CallHandle) -> HookAnswer:
        # A joined call may have other remarks: its agent runs it with its own.
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


@router.post("/claude-code", summary="Receive a hook of Claude Code", reports=True)
async def answer_claude_code(
    event: HookBody,
    calls: Calls,
    request: Request,
    hold: Hold = HOLD_SECONDS,
    defer: Defer = False,
    agent: Agent = None,
    user: User = None,
) -> dict[str, Any]:
    """`PreToolUse` and `PermissionRequest` are answered whether the call may run; `PostToolUse` and
    `PostToolUseFailure` report it. Any other event is answered with nothing.
    """
    return await _answer(HookCalls(calls, request, "claude-code", agent, user, hold, defer), event)


@router.post("/codex", summary="Receive a hook of Codex", reports=True)
async def answer_codex(
    event: HookBody,
    calls: Calls,
    request: Request,
    hold: Hold = HOLD_SECONDS,
    agent: Agent = None,
    user: User = None,
) -> dict[str, Any]:
    """The same in the shape that Codex reads: a call that may run unchanged is answered with nothing."""
    return await _answer(HookCalls(calls, request, "codex", agent, user, hold, False), event)


async def _answer(calls: HookCalls, event: HookBody) -> HookAnswer:
    outcome = event.outcome
    if outcome is not None:
        try:
            return await calls.report(event, outcome)
        except (ValidationError, NotCanonical):
            # Such a call cannot have had a permit.
            return SILENT
    if event.hook_event_name not in GATES:
        return SILENT
    try:
        with naming("`tool_use_id`", event.tool_use_id):
            return await calls.gate(event)
    except ValidationError as error:
        return deny(event, f"Not run: {sentence(error.errors())}")
    except SignoffError as error:
        await calls.calls.note_refusal(error, event.tool_name)
        # In the hook's own format of a denial: by default an error status lets the call run.
        return deny(event, f"Not run: {error.message}")


class HooksPlugin(BasePlugin):
    """Adds the routes of coding agents' hooks."""

    name: ClassVar[str] = "hooks"

    def routers(self) -> Sequence[PluginRouter]:
        return (router,)
