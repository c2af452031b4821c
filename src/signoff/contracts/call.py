"""A tool call: the context of its policies, its permit and its one outcome."""

import operator
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field, computed_field

from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Principal
from signoff.contracts.updates import Updates

CallCode = Literal[
    "ok", "input_invalid", "not_available", "execution_failed", "denied", "skipped", "in_doubt", "refused",
    "too_many_calls", "waiting",
]  # fmt: skip
ResultType = Literal[
    "ToolResult", "ToolInvalid", "ToolNotAvailable", "ToolFailed", "ToolDenied", "ToolSkipped", "ToolInDoubt",
    "ToolRefused", "ToolLimited", "ToolWaiting",
]  # fmt: skip
RESULT_TYPES: Final[Mapping[CallCode, ResultType]] = {
    "ok": "ToolResult",
    "input_invalid": "ToolInvalid",
    "not_available": "ToolNotAvailable",
    "execution_failed": "ToolFailed",
    "denied": "ToolDenied",
    "skipped": "ToolSkipped",
    "in_doubt": "ToolInDoubt",
    "refused": "ToolRefused",
    "too_many_calls": "ToolLimited",
    "waiting": "ToolWaiting",
}
"""The type of each result, by its code; docs/results.md says the same in one table."""
DenialSource = Literal["human", "policy", "timeout", "cancelled", "repeat"]

RuleKind = Literal["policy", "global", "handler", "permission", "requester", "in_doubt", "grant"]

IN_DOUBT_TEXT = "It is not known whether this happened; do not repeat it."
DEFAULT_DENIAL = "Denied by user."

_TYPES: Final[Mapping[str, ResultType]] = {str(code): each for code, each in RESULT_TYPES.items()}


def type_from_code(code: str) -> ResultType:
    """Returns the type of a result with this code; of a code of newer engines that it failed."""
    return _TYPES.get(code, "ToolFailed")


class RuleReference(FrozenModel):
    """Names the rule that lets a call run, asks people about it or denies it. What is empty is written nowhere."""

    # The kind of nearly every call is left out of messages, as all defaults are.
    kind: RuleKind = "policy"
    """Whose rule it is: of the tool's `policy`, the manifest's `global` one, the policy's `handler` alone; the tool's
    own check (`permission`), doubt about who asks (`requester`) or about what happened (`in_doubt`); a `grant`.
    """
    name: str = Field(default="", exclude_if=operator.not_)
    """Of a policy its key, such as `deny_if`; of a global rule its name; of a grant its id; else ""."""
    handler: str = Field(default="", exclude_if=operator.not_)
    """The `module:function` that answered, alone or beside the policy's rule; else ""."""
    answer: Literal["", "admin", "failed"] = Field(default="", exclude_if=operator.not_)
    """What makes the handler's question another one: it asks administrators, or gave no answer."""

    @property
    def label(self) -> str:
        """The rule on one line as logs, the record and terminals name it; no two rules have the same."""
        if self.kind in ("global", "grant"):
            return f"{self.kind}:{self.name}"
        own = self.name if self.kind == "policy" else "" if self.kind == "handler" else self.kind
        handler = f"handler:{self.handler}" if self.handler else ""
        return ", ".join(filter(None, (own, handler))) + (f" ({self.answer})" if self.answer else "")


REQUIRES_APPROVAL: Final = RuleReference(name="requires_approval")
"""What decides where no expression does: the policy is just `true` or `false`, or none of its rules applied."""
PERMISSION_RULE: Final = RuleReference(kind="permission")
"""People are asked as the tool's permission check would deny the call (X10)."""
REQUESTER_RULE: Final = RuleReference(kind="requester")
"""People are asked as nobody is sure who the requester is."""
IN_DOUBT_RULE: Final = RuleReference(kind="in_doubt")
"""People are asked whether a call happened."""


class Place(FrozenModel):
    """A position of a conversation: a route of an actor, and a step of it."""

    actor: str
    """The actor whose route it is."""
    route: str
    """The route."""
    step: str = ""
    """The step; empty where the route has not come to one."""
    seal: str = ""
    """Proves by a key of the store that the gateway or a worker put the session there."""


class CallContext(FrozenModel):
    """What policies see as `ctx`, as it stood when the call was proposed."""

    actor: str
    session: str
    turn: str
    tenant: str = DEFAULT_TENANT
    channel: str = ""
    route: str = ""
    step: str = ""
    seal: str = ""
    """Proves `route` and `step` where they are not those that the user asked for, see `Place`."""
    user: Principal
    extra: dict[str, Any] = Field(default_factory=dict)
    transient: tuple[str, ...] = ()
    """Names of tools that this turn alone has before all others."""
    trace: bool = False
    """Whether it is recorded which tool each call's name means, and why."""


class Permit(FrozenModel):
    """What a tool activity is given and does not trust: it derives the right to run itself."""

    kind: Literal["auto", "approved"]
    call: str
    digest: str
    ctx: CallContext
    approval_id: str = ""
    revision: int = 1
    quorum: int = 1
    decisions: tuple[Decision, ...] = ()
    rule: RuleReference | None = None
    policy_hash: str = ""
    doubts: tuple[Decision, ...] = ()
    """Who said that an earlier try of this call did not happen: each names that try by `doubt_digest`."""
    grant: str = ""
    """Id of the grant by which nobody was asked; checked and spent with the ticket."""
    override: str = ""
    """sha-256 of what the tool objected to when people were asked to let it pass."""


class ToolDenied(FrozenModel):
    """A denial in the form in which the model gets it: as the call's result, never as an exception."""

    type: Literal["ToolDenied"] = "ToolDenied"
    """Always `ToolDenied`: by this the model tells it from what a tool gave."""
    code: Literal["denied"] = "denied"
    """Always `denied`."""
    source: DenialSource
    """Who or what denied."""
    approval_id: str = ""
    """The request that was denied, or ""."""
    tool: str
    """The tool's name."""
    call_id: str
    """The call's id."""
    decided_by: str = ""
    """Who denied, or ""."""
    reason: str = ""
    """The reason given; "" where a person gave none. The model then reads `DEFAULT_DENIAL`."""
    decided_at: datetime | None = None
    """When it was denied, in UTC."""
    level: str = "user"
    """Who was asked."""

    def for_model(self) -> dict[str, Any]:
        """Return the denial as the model reads it.

        Only here does a denial without a reason get words, so that no page quotes a person with them.
        """
        return {**self.model_dump(mode="json"), "reason": self.reason or DEFAULT_DENIAL}


class CallOutcome(FrozenModel):
    """The one result of one call. `value` is what the model reads; `cost` in USD; `gate` names who decided."""

    call: str
    tool: str
    code: CallCode
    gate: str = ""
    value: Content = Content(inline="")
    structured: Content | None = None
    cost: float = 0.0
    duration_ms: int = 0
    approval_id: str = ""
    decided_by: str = ""
    rule: RuleReference | None = None
    denied: ToolDenied | None = None
    edited_by: str = ""
    """Who changed the arguments before they ran."""
    note: str = ""
    """What the model is told before `value`: that people changed the arguments, or say that it happened."""
    truncated: bool = False
    original_chars: int = 0
    rest: str = ""
    """Of a truncated one: the sealed handle to its whole text, good in this turn only."""
    direct: bool = False
    """It may be the turn's answer: its tool returns directly, and the call succeeded."""
    handed: bool = False
    """Its tool handed the work off: what comes of it is brought later."""
    data_update: Content | None = None
    context_update: Content | None = None
    """JSON objects that the tool wishes merged into collected data and into the context, for who reads the outcome."""
    meta: Content | None = Field(default=None, exclude_if=operator.not_)
    """A JSON object that the tool tells of the call, for record and transcript."""
    updates: Updates | None = None
    """What of it is merged, as the tool declares it. Outcomes of old, and of tools that declare nothing, have none."""
    place: Place | None = Field(default=None, exclude_if=operator.not_)
    """The place that its tool named as the next one, sealed by a worker."""
    fallback: str = ""
    """The tool that answered, or was decided, in place of `tool`, which failed with `primary_error`."""
    primary_error: str = ""
    left_out: tuple[str, ...] = ()
    """Names of fields that a turn's result left out, as it would have been too large."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def type(self) -> ResultType:
        """The type of the result, derived from its code, so that nobody can claim another; in no history."""
        return type_from_code(self.code)


ReportCode = Literal["ok", "execution_failed", "in_doubt"]
"""What an agent may say became of a call that it ran."""


class LateReport(FrozenModel):
    """An agent's report of a call after the time for it, which changes no outcome: people judge by it."""

    code: ReportCode
    """What the agent says became of the call."""
    text: str = ""
    """The result in the agent's words; JSON where the agent sent no text."""
    at: datetime
    """When it arrived, in UTC."""


CallState = Literal["waiting", "running", "permitted", "used", "denied", "ended"]
"""How far an external call has come, as its agent is told."""


class WorkflowSignal(FrozenModel):
    """A workflow of the namespace that is sent a signal."""

    id: str
    """Its id."""
    run_id: str = ""
    """Its run; "" for the latest."""
    signal: str
    """The signal's name."""


class Callback(FrozenModel):
    """Whom to tell that a call is settled: an address or a workflow."""

    url: str = ""
    """The address that is posted to; "" where a workflow is told."""
    state: str = ""
    """Words of the agent's own that come back with it."""
    workflow: WorkflowSignal | None = None
    """The workflow that is sent a signal."""


class ProposedExternalCall(FrozenModel):
    """The one call of a turn whose agent thinks elsewhere: it stands in the place of a model's answer."""

    tool: str
    """The tool's name, as the agent gave it."""
    args: Content
    """The arguments."""
    says: str = ""
    """The agent's words beside the call."""
    report_within: float = 0.0
    """Within how many seconds a call that was used must be reported; 0 for the default."""
    ask_within: float = 0.0
    """Within how many seconds of its proposal people must have answered, where that is sooner than the policy's time; 0
    for that.
    """
    callback: Callback | None = None
    """Whom to tell that it is settled."""
    join_key: str = ""
    """The digest by which equal proposals join it; "" of one that its agent named."""
    attended: bool = False
    """Whether Signoff runs it, once people approved, only while its agent waits for it."""
