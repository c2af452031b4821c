"""A turn's input, its result, and its view while it runs."""

import operator
from datetime import datetime
from typing import Any, Literal

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


class Denial(FrozenModel):
    """A call that a person denied, without its id."""

    action: str
    """The beginning of the sha-256 of its tool and arguments."""
    approval_id: str
    """The request that was denied."""
    decided_by: str = ""
    """Who denied it."""
    reason: str = ""
    """The reason given."""
    decided_at: datetime | None = None
    """When it was denied, in UTC."""
    level: str = "user"
    """Who was asked."""


class WaitingCall(FrozenModel):
    """A call that people are asked about while its turn goes on."""

    action: str
    """The beginning of the sha-256 of its tool and arguments."""
    approval_id: str
    """The request."""
    code: str
    """The request's code."""


class SessionEvent(FrozenModel):
    """An event of a session that starts no turn: a refused message, a late result, or that a turn is gone."""

    at: datetime
    """When, in workflow time, in UTC."""
    what: Literal["message", "result", "report", "turn"]
    """What kind of event it is."""
    id: str = ""
    """The message's id."""
    subject: str = ""
    """The sender it names, which nobody has checked."""
    status: Literal["accepted", "refused"]
    """Whether it was accepted."""
    code: str = ""
    """Why it was refused."""
    body: str = ""
    """The sha-256 of what was sent."""
    more: int = 0
    """How many later ones like it are only counted."""


class TurnInput(ActivityMessage):
    """Starts a turn."""

    engine: int
    """The number of the engine, stamped when the turn is started."""
    tenant_id: str = DEFAULT_TENANT
    """The tenant."""
    session_id: str
    """The session."""
    turn_id: str
    """The turn's id."""
    actor: str
    """The actor that answers."""
    messages: tuple[Message, ...]
    """The conversation; the last message is the person's."""
    principal: Principal
    """Who asks, from the gateway's directory."""
    person_id: str = ""
    """The id of the human who asks."""
    channel: str = ""
    """By which channel they ask."""
    route: str = ""
    """The route asked for."""
    step: str = ""
    """The step asked for."""
    seal: str = ""
    """Proves a route and step that the session knows, see `Place`; empty where the message names them."""
    context: dict[str, Any] = Field(default_factory=dict)
    """The context that the caller gave; wins over `updates`."""
    dry_run: bool = False
    """Whether tools are only simulated."""
    transient: tuple[str, ...] = ()
    """Names of tools that this turn has before all others; they must be in its actor's reach."""
    trace: bool = False
    """Whether it is recorded which tool each call's name means, and why."""
    in_session: bool = False
    """Whether a session started it and gets its reports."""
    may_leave: int = 0
    """Over how many undecided calls it may end, if its actor may; the session takes an outcome of each."""
    denied: tuple[Denial, ...] = ()
    """What people denied before in that session."""
    session_events: tuple[SessionEvent, ...] = ()
    """Events of the session since its last turn began, for the record."""
    updates: Updates = NO_UPDATES
    """What tools changed of the context in the session's earlier turns."""
    external: ProposedExternalCall | None = None
    """The one call of an agent that thinks elsewhere: no model is asked, and the turn ends with its outcome."""


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
    """`response` for words."""
    content: Content
    """The part's content."""


class TurnError(FrozenModel):
    """Why a turn ended in state `error`."""

    code: str
    """A stable code."""
    message: str
    """One sentence."""


class TurnResult(ActivityMessage):
    """What a turn completes with, whatever its state."""

    state: FinalState
    """The state in which it ended."""
    parts: tuple[ResponsePart, ...] = ()
    """Its answer."""
    calls: tuple[CallOutcome, ...] = ()
    """One outcome for each call that a model proposed, in that order."""
    usage: TokenUsage = TokenUsage()
    """The tokens that its completions took."""
    completions: int = 0
    """How many completions were asked of the model."""
    error: TurnError | None = None
    """Why it failed."""
    pass_to: str = ""
    """The actor that goes on, where the state is `passed`."""
    actor: str = ""
    """Its actor."""
    turn: str = ""
    """Its id."""
    tool_calls: int = 0
    """How many calls the gates counted, those of fallbacks too."""
    cost: float = 0.0
    """The cost of model and tools together, in USD."""
    active_seconds: float = 0.0
    """How long it worked."""
    elapsed_seconds: float = 0.0
    """How long it took, waiting for people included."""

    @property
    def text(self) -> str:
        """The words of its parts; of one that lies in the store the beginning."""
        return "\n".join(filter(None, (text_of(part.content) for part in self.parts)))


class CallView(FrozenModel):
    """One call as an onlooker sees it."""

    call: str
    """The call's id."""
    tool: str
    """The tool's name."""
    state: str
    """`proposed`, `running`, `waiting`, `permitted`, `used`, or the outcome's code."""
    args_preview: str = ""
    """The first characters of its arguments."""
    rule: RuleReference | None = None
    """The rule that let it run or asked."""
    approval: ApprovalRequest | None = None
    """Its request."""
    outcome: CallOutcome | None = None
    """Its outcome."""
    stands_for: str = ""
    """The call in whose place this one was tried, as its tool's fallback."""


class ModelRetry(FrozenModel):
    """The model's answer that a running turn still waits for, after at least one try that failed."""

    attempt: int
    """The number of the try that runs or comes next, from 2."""
    error: str = ""
    """Why the last try failed, in one sentence."""
    next_at: datetime | None = None
    """When the next try begins (UTC); None while one runs."""


class TurnView(FrozenModel):
    """The answer to the `state` query: everything an onlooker may see of a turn, args of calls excluded."""

    tenant: str
    """The tenant."""
    session: str
    """The session."""
    turn: str
    """The turn's id."""
    actor: str
    """Its actor."""
    state: LiveState
    """Its state."""
    requester: Principal
    """Who asked for it."""
    messages: tuple[Message, ...] = ()
    """The conversation so far."""
    calls: tuple[CallView, ...] = ()
    """Its calls."""
    parts: tuple[ResponsePart, ...] = ()
    """Of one that waits for people an `approval-request` each request; the gateway adds it, whatever the turn says."""
    result: TurnResult | None = None
    """Its result, once it has ended."""
    started_at: datetime | None = None
    """When it was started, in UTC."""
    refusals: int = 0
    """How many decisions were refused."""
    catalog: str = ""
    """The first 16 digits of the hash of the catalog that its worker used last."""
    in_session: bool = False
    """Whether a session started it."""
    route: str = ""
    """The route on which it is."""
    step: str = ""
    """The step at which it is."""
    seal: str = Field(default="", exclude_if=operator.not_)
    """Proves route and step to the gateway, see `Place`; no client gets it."""
    model_retry: ModelRetry | None = None
    """Set while the model is asked again, as the server tells it; the turn itself knows nothing of its tries."""
