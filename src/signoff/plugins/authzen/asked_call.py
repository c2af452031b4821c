"""Finds the call that an evaluation is about: which agent's, in whose name, of which tool, with which arguments."""

from dataclasses import dataclass
from typing import Any, Final

from signoff.calls import AgentCalls
from signoff.contracts.canonical_json import NotCanonical, canonical_json, sha256_hex
from signoff.contracts.errors import BadRequest, NotFound, Refused, SignoffError
from signoff.contracts.limits import ARGUMENTS_BYTES
from signoff.plugins.authzen.evaluation_body import EvaluationBody

TOOL: Final = "tool"
"""The type of resources that are tools."""
ACTIONS: Final = ("tools/call", "invoke")
"""The actions that are a call of a tool: as the mapping of MCP names it, and as the profile's own example does."""
NOT_ALLOWED: Final = "subject_not_allowed"
"""The reason where the agent may not ask in this name."""
_PEOPLE: Final = ("user", "identity")
_AGENTS: Final = ("agent", "ai_agent")


@dataclass(frozen=True)
class AskedCall:
    """A call that somebody asks about."""

    tenant: str
    agent: str
    user: str
    tool: str
    args: dict[str, Any]

    @property
    def digest(self) -> str:
        """The same for the same call of the same agent in the same name."""
        return sha256_hex([self.tenant, self.agent, self.user, self.tool, self.args])


class NoSuchCall(Exception):
    """Raised where what is asked about is no call that this caller could make; `reason` is a code."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def refusal(self) -> Refused:
        """The refusal in our own words."""
        return Refused(self.message, code="not_allowed" if self.reason == NOT_ALLOWED else "malformed")


def find_call(calls: AgentCalls, body: EvaluationBody) -> AskedCall:
    """Returns the call that `body` is about. Raises `NoSuchCall`.

    The subject is a person for whom the agent of the token may act, or the agent itself; the resource is the tool, and
    the arguments are those of the action.
    """
    if body.action.name not in ACTIONS:
        raise NoSuchCall("unknown_action", f"the action of a call is `{ACTIONS[0]}`")
    if body.resource.type != TOOL:
        raise NoSuchCall("unknown_resource", f"the resource of a call is of the type `{TOOL}`")
    named, user = _read_subject(body)
    try:
        asker = calls.asker(named, user)
    # One answer for all: nobody is told who else is there.
    except (Refused, NotFound) as error:
        raise NoSuchCall(NOT_ALLOWED, _words(error)) from None
    return AskedCall(*asker, body.resource.id, _read_arguments(body))


def _read_subject(body: EvaluationBody) -> tuple[str | None, str | None]:
    """Returns which agent and which person a subject names."""
    subject, act = body.subject, body.subject.properties.get("act")
    acting = act.get("sub") if isinstance(act, dict) else None
    if act is not None and (not isinstance(acting, str) or (isinstance(act, dict) and "act" in act)):
        raise NoSuchCall(NOT_ALLOWED, "`act` names the agent as `sub`, and nobody behind it")
    if subject.type in _PEOPLE:
        return acting, subject.id
    if subject.type in _AGENTS:
        if acting not in (None, subject.id):
            raise NoSuchCall(NOT_ALLOWED, "the subject is one agent, and `act` names another")
        return subject.id, None
    raise NoSuchCall(NOT_ALLOWED, "the subject is a `user` for whom the agent acts, or the `agent` itself")


def _read_arguments(body: EvaluationBody) -> dict[str, Any]:
    args = body.action.properties.get("arguments", {})
    if not isinstance(args, dict):
        raise NoSuchCall("invalid_arguments", "`arguments` of the action must be a JSON object")
    try:
        size = len(canonical_json(args))
    except NotCanonical:
        raise NoSuchCall("invalid_arguments", "the arguments hold what JSON cannot carry safely") from None
    if size > ARGUMENTS_BYTES:
        raise NoSuchCall("invalid_arguments", "the arguments are too large")
    return args


def _words(error: SignoffError) -> str:
    return error.message if isinstance(error, BadRequest) else "this agent may not ask that in this name"
