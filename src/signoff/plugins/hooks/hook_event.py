"""Reads what the hook of a coding agent sends: a call that is about to run, or what became of one."""

import hashlib
import json
import uuid
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from signoff.contracts.call import ReportCode
from signoff.contracts.canonical_json import NotCanonical, canonical_json, json_bytes, sha256_hex
from signoff.contracts.ids import is_id
from signoff.contracts.limits import ARGUMENTS_BYTES, REASON_CHARS
from signoff.contracts.requests import CallBody, OutcomeBody

HookHost = Literal["claude-code", "codex"]
"""Whose hooks these are; each reads an answer of its own shape."""
GATES: Final = ("PreToolUse", "PermissionRequest")
"""Events to which the answer says whether the call may run."""
_SESSIONS: Final = uuid.UUID("0d6a1f2e-93f5-5f0e-8a55-6a1b8f4c7c02")
_CUT: Final = 30_000
"""Characters that are kept of a result that is too large, as ASCII: escaped in JSON some take two bytes."""


class HookBody(BaseModel):
    """What a hook of Claude Code or Codex sends; of its many fields those that count here."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    hook_event_name: str = Field(description="`PreToolUse`, `PermissionRequest`, `PostToolUse`, `PostToolUseFailure`.")
    session_id: str = Field(default="", description="The coding agent's session, which is that of its calls.")
    tool_name: str = Field(default="", description="The tool, by its name in the gateway's manifest.")
    tool_input: Any = Field(default=None, description="The tool's arguments.")
    tool_use_id: str = Field(default="", description="The call's id; a permission request has none.")
    cwd: str = Field(default="", description="Where it would run, which people are shown.")
    tool_response: Any = Field(default=None, description="What came of the call.")
    error: str = Field(default="", description="Why it failed.")
    is_interrupt: bool = Field(default=False, description="Whether somebody broke it off.")

    @property
    def session(self) -> str | None:
        """The session of its calls, always the same for the same one of the coding agent."""
        if not self.session_id or is_id(self.session_id):
            return self.session_id or None
        return str(uuid.uuid5(_SESSIONS, sha256_hex(self.session_id)))

    @property
    def key(self) -> str | None:
        """The key of the call in its session; None without an id, so that an equal call is meant.

        Some models use an id again for another call. The key has the arguments too, and ends with the call's report.
        """
        return self.key_of(self.tool_input) if self.tool_use_id else None

    def key_of(self, args: Any) -> str:
        """Return the key of the call with these arguments."""
        return f"hook:{sha256_hex([self.tool_use_id, self.tool_name, _plain(args)])}"

    @property
    def outcome(self) -> OutcomeBody | None:
        """The report of what became of the call; None of an event that tells none."""
        if self.hook_event_name == "PostToolUse":
            return _report("ok", self.tool_response)
        if self.hook_event_name == "PostToolUseFailure":
            # Of what was broken off nobody knows how far it had come.
            return _report("in_doubt" if self.is_interrupt else "execution_failed", self.error)
        return None

    def proposal(self, agent: str | None, user: str | None) -> CallBody:
        """Makes the proposal of its call. Raises pydantic's `ValidationError` for a call that nobody can propose."""
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
        """Makes a proposal without arguments, by which a call is found whose key is known."""
        return CallBody(tool=self.tool_name, agent=agent, user=user, session=self.session)


def _plain(args: Any) -> Any:
    """Return arguments that have a digest: text in place of a number that JSON cannot carry safely."""
    try:
        canonical_json(args)
    except NotCanonical:
        return json.dumps(args)
    return args


def run_key(tool: str, args: dict[str, Any]) -> str:
    """Returns the key under which a call is found whose end is told with an id that was not there when it began."""
    return f"run:{sha256_hex([tool, args])}"


def _report(code: ReportCode, result: Any) -> OutcomeBody:
    try:
        whole = json_bytes(result)
        if len(whole) <= ARGUMENTS_BYTES:
            return OutcomeBody(code=code, result=result)
        # Who has the whole of it can show that it is what ran.
        digest = hashlib.sha256(whole).hexdigest()
        return OutcomeBody(
            code=code, result=f"{json.dumps(result)[:_CUT]} (cut: {len(whole)} bytes of JSON, sha-256 {digest})"
        )
    except NotCanonical:
        # A result that JSON cannot carry safely, such as half of a surrogate pair, is kept as text with escapes.
        return OutcomeBody(code=code, result=json.dumps(result)[:_CUT])
