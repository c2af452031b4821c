"""A tool call: the context of its policies, its right to run and its one outcome."""

import operator
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field, computed_field

from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Principal
from signoff.contracts.preview import AnyPart
from signoff.contracts.updates import Updates

CallCode = Literal[
    "ok", "input_invalid", "not_available", "execution_failed", "denied", "skipped", "in_doubt", "refused",
    "too_many_calls", "waiting", "answered",
]  # fmt: skip
ResultType = Literal[
    "ToolResult", "ToolInvalid", "ToolNotAvailable", "ToolFailed", "ToolDenied", "ToolSkipped", "ToolInDoubt",
    "ToolRefused", "ToolLimited", "ToolWaiting", "ToolAnswered",
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
    "answered": "ToolAnswered",
}
"""The type of each result, by its code. Docs/results.md has the same table."""
DenialSource = Literal["human", "policy", "timeout", "cancelled", "repeat"]

RuleKind = Literal["policy", "global", "handler", "permission", "requester", "in_doubt", "grant"]

IN_DOUBT_TEXT = "It is not known whether this happened; do not repeat it."
DEFAULT_DENIAL = "Denied by user."

_TYPES: Final[Mapping[str, ResultType]] = {str(code): each for code, each in RESULT_TYPES.items()}


def type_from_code(code: str) -> ResultType:
    """An unknown code of a newer engine counts as failed."""
    return _TYPES.get(code, "ToolFailed")


class RuleReference(FrozenModel):
    """The rule that runs, asks about or denies a call. Empty fields are not written."""

    # Nearly every call has the default kind, which messages omit like all defaults.
    kind: RuleKind = "policy"
    """The rule's origin: the tool's `policy`, a `global` rule, the policy's `handler`, or another check.

    Other checks are the tool's own (`permission`), a doubtful `requester`, an unknown outcome (`in_doubt`), and a
    `grant`.
    """
    name: str = Field(default="", exclude_if=operator.not_)
    """A policy's key, such as `deny_if`. A global rule's name. A grant's id. Else ""."""
    handler: str = Field(default="", exclude_if=operator.not_)
    """The `module:function` that answered, alone or with the policy's rule. Else ""."""
    answer: Literal["", "admin", "failed"] = Field(default="", exclude_if=operator.not_)
    """The reason for a different question by the handler: it asks administrators, or gave no answer."""

    @property
    def label(self) -> str:
        """The rule on one line. Different rules have different labels."""
        if self.kind in ("global", "grant"):
            return f"{self.kind}:{self.name}"
        own = self.name if self.kind == "policy" else "" if self.kind == "handler" else self.kind
        handler = f"handler:{self.handler}" if self.handler else ""
        return ", ".join(filter(None, (own, handler))) + (f" ({self.answer})" if self.answer else "")


REQUIRES_APPROVAL: Final = RuleReference(name="requires_approval")
"""The rule without an expression: the policy is just `true` or `false`, or none of its rules applied."""
PERMISSION_RULE: Final = RuleReference(kind="permission")
"""Needs approval: the tool's permission check would deny the call."""
REQUESTER_RULE: Final = RuleReference(kind="requester")
"""Needs approval: the requester is doubtful."""
IN_DOUBT_RULE: Final = RuleReference(kind="in_doubt")
"""Asks whether a call happened."""


class Place(FrozenModel):
    """A position of a conversation: a route of an actor, and a step of it."""

    actor: str
    """The route's actor."""
    route: str
    step: str = ""
    """The step. Empty before the first one."""
    seal: str = ""
    """Proves by a key of the store that the gateway or a worker put the session there."""


class CallContext(FrozenModel):
    """The context of policies, `ctx`, at the time of the call's proposal."""

    actor: str
    session: str
    turn: str
    tenant: str = DEFAULT_TENANT
    channel: str = ""
    route: str = ""
    step: str = ""
    seal: str = ""
    """Proves `route` and `step` if they differ from the requester's own, see `Place`."""
    user: Principal
    extra: dict[str, Any] = Field(default_factory=dict)
    transient: tuple[str, ...] = ()
    """Names of tools that only this turn has, with priority over all others."""
    trace: bool = False
    """True if the audit log shows the meaning of each call's tool name."""


class RunRight(NamedTuple):
    """The right to run a call, as a worker derives it from gates and store. No message carries it."""

    revision: int | None = None
    """The revision of the approved question. `None` for a call by rule or grant."""
    rule: RuleReference | None = None
    """The present rule, or that of the approved question."""
    policy_hash: str = ""
    """The hash of that rule's policy."""
    grant: str = ""
    """The id of the grant that replaced the approval. The ticket's claim checks it and uses it up."""
    decisions: tuple[Decision, ...] = ()
    """The answers that approved the question."""
    doubts: tuple[Decision, ...] = ()
    """The answers that earlier attempts of this call did not happen."""
    previewed: Mapping[str, AnyPart] = MappingProxyType({})
    """The bound parts of the preview by name, as computed again for this run."""


class ToolDenied(FrozenModel):
    """A denial, as the result of the call that the model reads. Signoff never raises it."""

    type: Literal["ToolDenied"] = "ToolDenied"
    """Always `ToolDenied`: the model distinguishes it by this from a tool's result."""
    code: Literal["denied"] = "denied"
    """Always `denied`."""
    source: DenialSource
    """The source of the denial."""
    approval_id: str = ""
    """The denied request, or ""."""
    tool: str
    call_id: str
    decided_by: str = ""
    """The person who denied, or ""."""
    reason: str = ""
    """The given reason. "" without one. The model then reads `DEFAULT_DENIAL`."""
    decided_at: datetime | None = None
    """When it was denied, in UTC."""
    level: str = "user"
    """The level of the approvers."""

    def for_model(self) -> dict[str, Any]:
        """Return the denial for the model.

        Only here does a denial without a reason get text, so that no page quotes a person with it.
        """
        return {**self.model_dump(mode="json"), "reason": self.reason or DEFAULT_DENIAL}


class CallOutcome(FrozenModel):
    """The one result of one call. `value` is for the model, `cost` in USD, `gate` is the deciding gate."""

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
    """The editor of the arguments."""
    note: str = ""
    """A note before `value` for the model, for example about an edit or a decision that the call happened."""
    truncated: bool = False
    original_chars: int = 0
    rest: str = ""
    """For a truncated value: the sealed handle to its whole text, valid only in this turn."""
    direct: bool = False
    """True if it may be the turn's answer: its tool returns directly, and the call succeeded."""
    handed: bool = False
    """True if the tool handed the work off: the result arrives later."""
    data_update: Content | None = None
    context_update: Content | None = None
    """JSON objects that the tool wants merged into collected data and context, for readers of the outcome."""
    meta: Content | None = Field(default=None, exclude_if=operator.not_)
    """The tool's JSON object about the call, for audit log and transcript."""
    updates: Updates | None = None
    """The merged part, as declared by the tool. `None` in old outcomes and for tools without a declaration."""
    place: Place | None = Field(default=None, exclude_if=operator.not_)
    """The next place named by the tool, sealed by a worker."""
    fallback: str = ""
    """The fallback that answered or was decided after `tool` failed with `primary_error`."""
    primary_error: str = ""
    left_out: tuple[str, ...] = ()
    """Names of fields left out of a turn's result because of its size."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def type(self) -> ResultType:
        """The type of the result. Derived from its code, so that it cannot be forged. Not in histories."""
        return type_from_code(self.code)


ReportCode = Literal["ok", "execution_failed", "in_doubt"]
"""The outcomes that an agent may report about a call."""


class LateReport(FrozenModel):
    """An agent's late report of a call. It changes no outcome, but helps approvers."""

    code: ReportCode
    """The reported outcome."""
    text: str = ""
    """The result in the agent's text; JSON if the agent sent no text."""
    at: datetime
    """When it arrived, in UTC."""


CallState = Literal["waiting", "running", "permitted", "used", "denied", "ended"]
"""The state of an external call, for its agent."""


class WorkflowSignal(FrozenModel):
    """The target of a signal: a workflow of the namespace."""

    id: str
    """The workflow's id."""
    run_id: str = ""
    """Its run. "" for the latest."""
    signal: str
    """The signal's name."""


class Callback(FrozenModel):
    """The target for the notice of a settled call: an address or a workflow."""

    url: str = ""
    """The address to post to. "" for a workflow."""
    state: str = ""
    """The agent's own text, which returns with it."""
    workflow: WorkflowSignal | None = None
    """The workflow to signal."""


class ProposedExternalCall(FrozenModel):
    """The one call of an external agent's turn, instead of a model's answer."""

    tool: str
    """The tool's name from the agent."""
    args: Content
    says: str = ""
    """The agent's text with the call."""
    report_within: float = 0.0
    """Seconds to report a used call. 0 for the default."""
    ask_within: float = 0.0
    """Seconds from the proposal to the last answer, if shorter than the policy's time. 0 for the policy's."""
    callback: Callback | None = None
    """The target for the notice of the settled call."""
    join_key: str = ""
    """The digest that lets equal proposals join it. "" if its agent named it."""
    attended: bool = False
    """True if Signoff runs the approved call only while its agent waits for it."""
