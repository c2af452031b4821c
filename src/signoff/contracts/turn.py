"""A turn's input, its result, and its view while it runs."""

import operator
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome, ProposedExternalCall, RuleReference
from signoff.contracts.content import Content, text_of
from signoff.contracts.frozen_model import ActivityMessage, FrozenModel
from signoff.contracts.message import Message
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Principal
from signoff.contracts.updates import NO_UPDATES, Updates

FinalState = Literal["complete", "clarifying", "awaiting", "delegated", "passed", "error", "cancelled"]
LiveState = Literal[
    "running", "suspended", "complete", "clarifying", "awaiting", "delegated", "passed", "error", "cancelled"
]
FAILED_STATES: Final[tuple[FinalState, ...]] = ("error", "cancelled")
"""The states of a turn that ended without an answer."""


class Denial(FrozenModel):
    """A person's denial of an action, independent of the call's id."""

    action: str
    """The start of the SHA-256 of tool and arguments."""
    approval_id: str
    """The denied request."""
    decided_by: str = ""
    """The person who denied it."""
    reason: str = ""
    decided_at: datetime | None = None
    """When it was denied, in UTC."""
    level: str = "user"
    """The level of the approvers."""


class WaitingCall(FrozenModel):
    """A pending call whose turn continues."""

    action: str
    """The start of the SHA-256 of tool and arguments."""
    approval_id: str
    code: str
    """The request's code."""


class SessionEvent(FrozenModel):
    """A session's event that starts no turn: a refused message, a late result, or a lost turn."""

    at: datetime
    """When, in workflow time, in UTC."""
    what: Literal["message", "result", "report", "turn"]
    id: str = ""
    """The message's id."""
    subject: str = ""
    """The named sender, unverified."""
    status: Literal["accepted", "refused"]
    code: str = ""
    """Why it was refused."""
    body: str = ""
    """The SHA-256 of the message."""
    more: int = 0
    """Number of similar later events, which are only counted."""


class TurnInput(ActivityMessage):
    """Starts a turn."""

    engine: int
    """The engine number, stamped at the turn's start."""
    tenant_id: str = DEFAULT_TENANT
    session_id: str
    turn_id: str
    actor: str
    """The answering actor."""
    messages: tuple[Message, ...]
    """The conversation. The last message is the person's."""
    principal: Principal
    """The requester, from the gateway's directory."""
    person_id: str = ""
    """The requester's person id."""
    channel: str = ""
    """The channel of the request."""
    route: str = ""
    """The requested route."""
    step: str = ""
    """The requested step."""
    seal: str = ""
    """Proves a route and step that the session knows, see `Place`. Empty if the message names them."""
    context: dict[str, Any] = Field(default_factory=dict)
    """The caller's context. It overrides `updates`."""
    dry_run: bool = False
    """True if tools are only simulated."""
    transient: tuple[str, ...] = ()
    """Names of tools that this turn has with priority over all others. They must be in its actor's reach."""
    trace: bool = False
    """True if the audit log shows the meaning of each call's tool name."""
    in_session: bool = False
    """True if a session started it and gets its reports."""
    may_leave: int = 0
    """Maximum number of pending calls at its end, if its actor permits. The session accepts the outcome of each."""
    denied: tuple[Denial, ...] = ()
    """Earlier denials in that session."""
    session_events: tuple[SessionEvent, ...] = ()
    """Events of the session since its last turn began, for the audit log."""
    updates: Updates = NO_UPDATES
    """The tools' changes to the context in the session's earlier turns."""
    external: ProposedExternalCall | None = None
    """The one call of an external agent: no model runs, and the turn ends with its outcome."""


class TokenUsage(FrozenModel):
    """Tokens, added up over a turn."""

    input_tokens: int = 0
    """Tokens that the model read."""
    output_tokens: int = 0
    """Tokens that the model wrote."""
    cost: float = 0.0
    """Their cost in USD."""

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
        )


class ResponsePart(FrozenModel):
    """A part of a turn's answer."""

    type: str = "response"
    """`response` for text."""
    content: Content


class TurnError(FrozenModel):
    """Why a turn ended in state `error`."""

    code: str
    """A stable code."""
    message: str
    """One sentence."""


class TurnResult(ActivityMessage):
    """A turn's result, in every end state."""

    state: FinalState
    """The end state."""
    parts: tuple[ResponsePart, ...] = ()
    """Its answer."""
    calls: tuple[CallOutcome, ...] = ()
    """One outcome for each call that a model proposed, in that order."""
    usage: TokenUsage = TokenUsage()
    """The tokens of its completions."""
    completions: int = 0
    """Number of requested completions."""
    error: TurnError | None = None
    """Why it failed."""
    pass_to: str = ""
    """The next actor, in state `passed`."""
    actor: str = ""
    turn: str = ""
    tool_calls: int = 0
    """Number of calls counted by the gates, including fallbacks."""
    cost: float = 0.0
    """The cost of model and tools together, in USD."""
    active_seconds: float = 0.0
    """Its work time."""
    elapsed_seconds: float = 0.0
    """Its total time, including waiting for approvers."""

    @property
    def text(self) -> str:
        """The text of its parts. For a stored part, the start."""
        return "\n".join(filter(None, (text_of(part.content) for part in self.parts)))


class CallView(FrozenModel):
    """One call for viewers."""

    call: str
    tool: str
    state: str
    """`proposed`, `running`, `waiting`, `permitted`, `used`, or the outcome's code."""
    args_preview: str = ""
    """The first characters of its arguments."""
    rule: RuleReference | None = None
    """The rule that let it run or asked."""
    approval: ApprovalRequest | None = None
    outcome: CallOutcome | None = None
    stands_for: str = ""
    """The original call, if this is its fallback."""


class ModelRetry(FrozenModel):
    """A completion that a running turn still waits for after a failed attempt."""

    attempt: int
    """The number of the present or next attempt, from 2."""
    error: str = ""
    """Why the last attempt failed, in one sentence."""
    next_at: datetime | None = None
    """When the next attempt begins (UTC). `None` while one runs."""


class TurnView(FrozenModel):
    """The answer to the `state` query: the turn for viewers, without the calls' arguments."""

    tenant: str
    session: str
    turn: str
    actor: str
    state: LiveState
    requester: Principal
    messages: tuple[Message, ...] = ()
    """The conversation so far."""
    calls: tuple[CallView, ...] = ()
    parts: tuple[ResponsePart, ...] = ()
    """While it waits, one `approval-request` a request, added by the gateway regardless of the turn's own data."""
    result: TurnResult | None = None
    """Its result, once it has ended."""
    started_at: datetime | None = None
    """When it started, in UTC."""
    refusals: int = 0
    """Number of refused decisions."""
    catalog: str = ""
    """The first 16 digits of the hash of its worker's latest catalog."""
    in_session: bool = False
    """True if a session started it."""
    route: str = ""
    """Its present route."""
    step: str = ""
    """Its present step."""
    seal: str = Field(default="", exclude_if=operator.not_)
    """Proves route and step to the gateway, see `Place`. No client gets it."""
    model_retry: ModelRetry | None = None
    """Set while the model is retried, as reported by the server. The turn itself does not know of retries."""
