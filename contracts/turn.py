"""A turn: its input, its result, and how it looks while it runs."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.frozen_model import Shape
from signoff.contracts.message import Message
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Principal
from signoff.contracts.updates import NO_UPDATES, Updates

TurnState = Literal["complete", "clarifying", "awaiting", "delegated", "passed", "error", "cancelled"]
LiveState = Literal[
    "running", "suspended", "complete", "clarifying", "awaiting", "delegated", "passed", "error", "cancelled"
]


class Denial(Shape):
    """A call that a person denied, without its id: `action` is the sha-256 of its tool and arguments."""

    action: str
    approval_id: str
    decided_by: str = ""
    reason: str = ""
    decided_at: datetime | None = None
    rule: str = ""
    level: str = "user"


class Heard(Shape):
    """What reached a session without being a turn's beginning: refused, a late result, or that a turn is gone.

    `at` is workflow time, in UTC. `subject` is who it says it is from, which nobody has checked; `body` the sha-256 of
    what was sent; `more` how many later ones like it are only counted.
    """

    at: datetime
    what: Literal["message", "result", "report", "turn"]
    id: str = ""
    subject: str = ""
    status: Literal["accepted", "refused"]
    code: str = ""
    body: str = ""
    more: int = 0


class TurnInput(Shape):
    """The start of a turn. `principal` comes from the gateway's directory.

    `transient` are names of tools that this turn has before all others; they must be in its actor's reach.
    `in_session`: a session began it and is told how it goes. `denied` is what people denied before in that session;
    `heard` is what came to it since its last turn began, for the record. `updates` is what tools changed of
    the context in its earlier turns; `context` is what the caller says, and wins.
    """

    engine: int
    tenant_id: str = DEFAULT_TENANT
    session_id: str
    turn_id: str
    actor: str
    messages: tuple[Message, ...]
    principal: Principal
    person_id: str = ""
    channel: str = ""
    route: str = ""
    step: str = ""
    context: dict[str, Any] = Field(default_factory=dict)
    dry_run: bool = False
    transient: tuple[str, ...] = ()
    in_session: bool = False
    denied: tuple[Denial, ...] = ()
    heard: tuple[Heard, ...] = ()
    updates: Updates = NO_UPDATES


class Usage(Shape):
    """Tokens, added up over a turn."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
        )


class ResponsePart(Shape):
    """A part of what the turn answers; `type` is `response` for words."""

    type: str = "response"
    content: Content


class TurnError(Shape):
    """Why a turn ended in state `error`: a stable code and one sentence."""

    code: str
    message: str


class TurnResult(Shape):
    """What a turn completes with, whatever its state. `pass_to`: the actor it is passed to, where it is `passed`.

    `calls` has one outcome for each call that a model proposed, in that order. The report (P16): `actor` and `turn`,
    `completions` asked of the model, `tool_calls` counted by the gates (those of fallbacks too), `cost` in USD of model
    and tools together, `active_seconds` of work and `elapsed_seconds` since the start, waiting for people included.
    Results of old have none of it.
    """

    state: TurnState
    parts: tuple[ResponsePart, ...] = ()
    calls: tuple[CallOutcome, ...] = ()
    usage: Usage = Usage()
    completions: int = 0
    error: TurnError | None = None
    pass_to: str = ""
    actor: str = ""
    turn: str = ""
    tool_calls: int = 0
    cost: float = 0.0
    active_seconds: float = 0.0
    elapsed_seconds: float = 0.0


class CallView(Shape):
    """One call as an onlooker sees it. `state`: proposed, running, waiting, or the outcome's code.

    `stands_for` is the call in whose place this one was tried, as its tool's fallback.
    """

    call: str
    tool: str
    state: str
    args_preview: str = ""
    rule: str = ""
    approval: ApprovalRequest | None = None
    outcome: CallOutcome | None = None
    stands_for: str = ""


class TurnView(Shape):
    """The answer to the `state` query: everything an onlooker may see of a turn, args of calls excluded."""

    tenant: str
    session: str
    turn: str
    actor: str
    state: LiveState
    requester: Principal
    messages: tuple[Message, ...] = ()
    calls: tuple[CallView, ...] = ()
    result: TurnResult | None = None
    started_at: datetime | None = None
    refusals: int = 0
    catalog: str = ""
    in_session: bool = False
