"""Finds the call of an evaluation."""

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
"""The actions that call a tool: the name in the mapping of MCP, and in the profile's example."""
NOT_ALLOWED: Final = "subject_not_allowed"
"""The reason if the agent may not act in this name."""
_PEOPLE: Final = ("user", "identity")
_AGENTS: Final = ("agent", "ai_agent")


@dataclass(frozen=True)
class AskedCall:
    """The call of an evaluation."""

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
    """Raised if this caller cannot make the call of an evaluation. `reason` is a code."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def refusal(self) -> Refused:
        return Refused(self.message, code="not_allowed" if self.reason == NOT_ALLOWED else "malformed")


def find_call(calls: AgentCalls, body: EvaluationBody) -> AskedCall:
    """Find the call that `body` describes. Raises `NoSuchCall`.

    The subject is a person of the token's agent, or the agent itself. The resource is the tool. The action holds the
    arguments.
    """
    if body.action.name not in ACTIONS:
        raise NoSuchCall("unknown_action", f"the action of a call is `{ACTIONS[0]}`")
    if body.resource.type != TOOL:
        raise NoSuchCall("unknown_resource", f"the resource of a call is of the type `{TOOL}`")
    named, user = _read_subject(body)
    try:
        asker = calls.asker(named, user)
    # One answer for all, so that other people's existence stays unknown.
    except (Refused, NotFound) as error:
        raise NoSuchCall(NOT_ALLOWED, _words(error)) from None
    return AskedCall(*asker, body.resource.id, _read_arguments(body))


def _read_subject(body: EvaluationBody) -> tuple[str | None, str | None]:
    subject, act = body.subject, body.subject.properties.get("act")
    acting = act.get("sub") if isinstance(act, dict) else None
    if act is not None and (not isinstance(acting, str) or (isinstance(act, dict) and "act" in act)):
        raise NoSuchCall(NOT_ALLOWED, "`act` names the agent as `sub`, without another `act`")
    if subject.type in _PEOPLE:
        return acting, subject.id
    if subject.type in _AGENTS:
        if acting not in (None, subject.id):
            raise NoSuchCall(NOT_ALLOWED, "the subject is one agent, and `act` names another")
        return subject.id, None
    raise NoSuchCall(NOT_ALLOWED, "the subject must be a `user` of the agent, or the `agent` itself")


def _read_arguments(body: EvaluationBody) -> dict[str, Any]:
    args = body.action.properties.get("arguments", {})
    if not isinstance(args, dict):
        raise NoSuchCall("invalid_arguments", "`arguments` of the action must be a JSON object")
    try:
        size = len(canonical_json(args))
    except NotCanonical:
        raise NoSuchCall("invalid_arguments", "the arguments hold a value that JSON cannot carry safely") from None
    if size > ARGUMENTS_BYTES:
        raise NoSuchCall("invalid_arguments", "the arguments are too large")
    return args


def _words(error: SignoffError) -> str:
    return error.message if isinstance(error, BadRequest) else "this agent may not ask that in this name"
