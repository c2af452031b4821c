"""Terms, questions, the requests built from them, their cards and votes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from signoff.contracts.call import LateReport, RuleReference
from signoff.contracts.content import Content, Words
from signoff.contracts.decision import ASSURANCES, Assurance, Decision, Verdict
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.person import Principal
from signoff.contracts.preview import PreviewReference

ApprovalState = Literal["pending", "approved", "denied", "answered", "timed_out", "cancelled", "lapsed", "happened"]
"""`answered`: a person answered instead, so that the call does not run.

`happened` only if `kind` is `in_doubt`: an approver says that the call took effect.
"""


class CardRow(FrozenModel):
    """One argument on a card: one line, with untrusted text made visible, truncated separately."""

    name: str
    """The argument's dotted name. "" for the card's own remark about hidden rows."""
    label: str
    """The argument's title. For a remark, its argument if any."""
    value: str
    """The value as shown. For a remark, English text."""
    secret: bool = False
    """True if the value is masked: only its length is shown."""
    cut: bool = False
    """True if the value is truncated."""
    length: int = 0
    """The full length of the value, in characters."""
    format: str = ""
    """The schema's `format` (or `type`). For a remark about `length` values: `more`, `more_of`, `missing`."""


class Card(FrozenModel):
    """The card of a request, made from the validated arguments that will run, never from the model's text."""

    effect: str
    """The sentence that describes the effect."""
    rows: tuple[CardRow, ...] = ()
    agent_says: str = ""
    """The model's own text, marked as such."""
    note: str = ""
    """Why the question is asked again, such as `the tool changed while the request was waiting`; English."""
    notes: tuple[Words, ...] = ()
    """The same for readers of other languages."""
    mark: str = ""
    """First 8 characters of an HMAC of the digest under a key of the store."""
    tool_title: str = ""

    @property
    def whole(self) -> bool:
        """True if the rows show every value in full, except secrets. Computed, so that it cannot be forged.

        False for a card without an effect: nothing has been drawn.
        """
        return self.effect != "" and not any(row.cut or not row.name for row in self.rows)


class Vote(FrozenModel):
    """One person's counted answer."""

    subject: str
    """The voter's account."""
    person_id: str = ""
    """The voter's person id. "" if it is `subject`."""
    on_behalf: str = ""
    """The id of the delegator, or ""."""
    name: str = ""
    """The person's name."""
    verdict: Verdict
    reason: str = ""
    channel: str = ""
    """The channel of the answer."""
    assurance: Assurance = "none"
    """The voter's identification."""
    at: datetime
    """The time of the answer, in UTC."""
    unsigned: bool = False
    """True if the decision is unsigned."""
    entries: tuple[str, ...] = ()
    """For a question with groups: the approver entries of the vote."""
    decision: Decision
    """The whole decision."""


class RequestMessage(FrozenModel):
    """A message about a waiting request: a question of an approver, or the agent's answer."""

    number: int
    """Its number within the approval, from 1."""
    by: Literal["approver", "agent"]
    text: str
    """The text. "" if the agent gave no answer."""
    revision: int
    """The revision that it is about."""
    subject: str = ""
    """The approver's id."""
    name: str = ""
    """The approver's name."""
    channel: str = ""
    """The channel of the question."""
    at: datetime | None = None
    """The time of storing, in UTC."""


class ApproverGroup(FrozenModel):
    """A group of approvers with its own quorum. One person fills one place."""

    of: tuple[str, ...]
    """`role:<role>`, `user:<id>` and `oncall:<rota>`."""
    quorum: int = 1
    """The number of approvals from this group."""


def _stronger(one: Assurance, other: Assurance) -> Assurance:
    return max(one, other, key=ASSURANCES.index)


def _all_groups(one: tuple[ApproverGroup, ...], other: tuple[ApproverGroup, ...]) -> tuple[ApproverGroup, ...]:
    merged: dict[frozenset[str], ApproverGroup] = {}
    for group in (*one, *other):
        previous = merged.get(frozenset(group.of), group)
        merged[frozenset(group.of)] = max(previous, group, key=lambda each: each.quorum)
    return tuple(merged.values())


def _in_both(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in one if each in other)


@dataclass(frozen=True)
class Stricter:
    """Orders the values of a term. `None` restricts nothing."""

    of: Callable[[Any, Any], Any]
    """Returns the least value that is as strict as both."""
    word: str = ""
    """A comparative for settings that only change something if they are stricter."""

    def __call__(self, one: Any, other: Any) -> Any:
        if one is None or other is None:
            return one if other is None else other
        return self.of(one, other)


class TermValues(FrozenModel):
    """The terms that can become stricter. The defaults restrict nothing."""

    quorum: Annotated[int, Stricter(max, "larger")] = 1
    """The total number of different approvers."""
    groups: Annotated[tuple[ApproverGroup, ...], Stricter(_all_groups)] = ()
    """The groups that approvers must fill. If empty, any approver fills any place."""
    min_assurance: Annotated[Assurance, Stricter(_stronger, "stronger")] = "none"
    """The minimum identification of approvers."""
    timeout: Annotated[float | None, Stricter(min, "shorter")] = None
    """Seconds to answer."""
    escalate_after: Annotated[float | None, Stricter(min)] = None
    """Seconds to the escalation. `None`: never."""
    escalate_to: Annotated[tuple[str, ...] | None, Stricter(_in_both)] = None
    """The only approvers that an escalation may add."""


class AppliedTerm(TermValues):
    """A stricter term that applied to one call, with its reason."""

    reason: str = ""
    """The policy's reason, or its condition."""


class Terms(TermValues):
    """All terms of one question."""

    approvers: tuple[str, ...] = ()
    """All approvers, as `role:<role>`, `user:<id>` and `oncall:<rota>`, including those in `groups`."""
    min_assurance: Assurance = "channel"
    timeout: float = 86_400.0
    """Seconds from the question to its deadline."""
    remind_after: float | None = None
    """Seconds to each reminder. `None`: never."""
    escalate_to: tuple[str, ...] = ()
    """The approver entries that an escalation adds."""
    on_timeout: Literal["deny", "escalate"] = "deny"
    """Whether the deadline denies, or escalates and is extended once, by `timeout`."""

    def alone(self) -> "Terms":
        """Return the terms of a question or verdict without the rest of it."""
        return Terms(**self.by_name())

    def by_name(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Terms.model_fields}


EditMode = Literal["off", "propose", "approve"]
"""Approvers may not edit arguments, may propose an edit to others, or approve with an edit."""
EDIT_MODES: tuple[EditMode, ...] = ("off", "propose", "approve")
"""The strictest first."""
JUDGED_SECONDS: Final = 60.0
"""Maximum seconds between a call's judgement and its question."""


Ending = Literal["cancelled", "lapsed", "superseded", "not_asked", "expired"]
"""How a turn ended its question, always without a run. `expired`: at its deadline."""


class Settlement(FrozenModel):
    """How a request was settled, if it was."""

    state: ApprovalState = "pending"
    decided_by: str = ""
    """The id of the person with the deciding answer, the last of several, or ""."""
    decided_name: str = ""
    """The names of all deciding people in order, separated by commas."""
    decided_at: datetime | None = None
    """When it was decided, in UTC."""
    decided_channel: str = ""
    """The channel of the deciding answer."""
    reason: str = ""
    """The given reason."""


class Timed(Terms, Settlement):
    """A request's terms as time changes them."""

    opened_at: datetime | None = None
    """When its question was written, by the store's clock (UTC)."""
    reminded: int = 0
    """Number of reminders."""
    escalated: bool = False
    """True after an escalation."""
    extended: bool = False
    """True if its deadline was extended."""
    expires_at: datetime | None = None
    """Its deadline, in UTC."""
    remind_at: tuple[datetime, ...] = ()
    """When reminders are due, in UTC."""
    escalate_at: datetime | None = None
    """When it escalates, in UTC. `None`: never, or already done."""


class TurnQuestion(Timed):
    """A turn's memory of its question. The store's row holds all of it.

    The gates send neither times nor fields that the turn knows from the call. Other fields have the names and meanings
    of `Question`.
    """

    id: str = ""
    call: str = ""
    tool: str = ""
    args: Content | None = None
    """The arguments that run after approval. The gates leave them out if the turn's call has the same ones."""
    digest: str = ""
    rule: RuleReference | None = None
    kind: Literal["approval", "in_doubt"] = "approval"
    code: str = ""
    revision: int = 1
    question_hash: str
    """The SHA-256 of the question, which answers name."""
    effect: str
    """The one line that describes the effect."""
    note: str = ""
    """The note on the card."""
    level: str = "user"
    edited_by: str = ""
    """The id of the last person who edited the arguments, or ""."""
    remarks: str = ""
    """The approvers' edits and remarks, for the model."""
    word: Decision | None = None
    """The deciding answer that the call took effect."""


class Question(Terms):
    """One question to approvers about one call. The store inserts this row once and never changes it.

    `question_hash` covers everything except `code`, `judged_at`, `opened_at`, `asked_at`, `ended_at` and
    `ended_as`. Spans are in seconds from `opened_at`.
    """

    id: str
    """The approval id, `<tenant>.<session>.<turn>.<call>`."""
    kind: Literal["approval", "in_doubt"] = "approval"
    """`in_doubt` asks about a call with an unknown outcome."""
    code: str = ""
    """The short code that people read and type."""
    revision: int = 1
    """The number of the question about the call, from 1."""
    tenant: str
    session: str = ""
    turn: str
    actor: str = ""
    """The actor of the call."""
    call: str
    """The call's id."""
    requester: Principal
    """The requester of the turn, with the gateway's signature."""
    channel: str = ""
    """The channel of the turn's message."""
    context: str = ""
    """The SHA-256 of the turn's given context. With `channel`, the requester's signature covers it."""
    tool: str
    definition: str = ""
    """The SHA-256 of the tool's declaration, which is its key in the store."""
    args: Content
    """The arguments that run after approval."""
    digest: str
    """The SHA-256 that binds the tool and its arguments."""
    doubt_of: int = 0
    """For `in_doubt`: the number of the ticket."""
    edit_of: int = 0
    """The revision whose signed or unsigned answer edited the arguments."""
    edit_delivery: str = ""
    """The delivery id of the edit: only its author's answer approves the result, even with equal arguments."""
    secrets: tuple[str, ...] = ()
    """Dotted names of arguments that every card masks."""
    show: tuple[str, ...] | None = None
    """Dotted names of the arguments on the card. `None`: all."""
    rule: RuleReference | None = None
    """The rule that asks."""
    rule_text: str = ""
    """The text of that rule."""
    policy_hash: str = ""
    """The SHA-256 of the policy."""
    override: str = ""
    """The SHA-256 of the tool's objection that approvers are asked to override."""
    applied: tuple[AppliedTerm, ...] = ()
    """Why the terms are stricter than the policy's own, if they are."""
    veto: bool = True
    """True if one denial ends it."""
    require_reason: bool = False
    """True if a denial needs a reason."""
    preview: PreviewReference | None = None
    """The preview of the effect. `None` if the tool has none."""
    preview_required: bool = False
    """True if an approval needs a preview without a fault."""
    preview_for: Literal["approvers", "requester"] = "approvers"
    """The readers of the preview. `requester`: approvers and the requester."""
    allow_self: bool = False
    """True if the requester may decide it."""
    edit: EditMode = "off"
    """Whether approvers may edit the arguments."""
    proposers: tuple[str, ...] = ()
    """Editors who count as requesters: they may not decide, just as the requester may not."""
    allow_remember: bool = False
    """True if an answer may be remembered."""
    confirm: str = ""
    """`type` if approvers type a value of the card again. Else ""."""
    accept_unsigned: bool = False
    """True if unsigned answers count."""
    level: str = "user"
    """`user`, or `admin` if administrators are asked."""
    grant_ttl: float = 86_400.0
    """Lifetime of an approval, in seconds from the answer that completed it."""
    notify: tuple[str, ...] = ()
    """Names of the policy's channels. If empty, the channels of the manifest's rules."""
    agent_says: str = ""
    """The model's own text."""
    notes: tuple[Words, ...] = ()
    """Why it is asked again, or the editor."""
    judged_at: datetime | None = None
    """When the gates judged the call, in UTC: `ctx.now` of the rules that ask."""
    opened_at: datetime | None = None
    """When it was written, by the store's clock (UTC)."""
    asked_at: datetime | None = None
    """When an approver's question to the agent moved its deadline, by the store's clock (UTC)."""
    ended_at: datetime | None = None
    """When the turn ended it, by the store's clock (UTC)."""
    ended_as: Ending | None = None
    """How the turn ended it, if it did."""

    @property
    def judging_delay(self) -> float:
        """The seconds between `judged_at` and `opened_at`, 0 if one is unknown.

        Later rules use `judged_at`, and a forger could choose a day with weaker rules: readers ignore a question with
        more than `JUDGED_SECONDS`.
        """
        if self.judged_at is None or self.opened_at is None:
            return 0.0
        return abs((self.judged_at - self.opened_at).total_seconds())


class ApprovalRequest(Question, Timed):
    """A question with its card, and the effects of answers and time."""

    question_hash: str = ""
    """The SHA-256 of the question, which an answer names."""
    seen: str = ""
    """Only in the view with every value in full: an approval of a partial card must send it back."""
    card: Card
    edited_by: str = ""
    """The id of the previous revision's editor, or ""."""
    edited_name: str = ""
    """The editor's name."""
    before: tuple[CardRow, ...] = ()
    """The rows of the card before that edit."""
    answer_schema: dict[str, Any] | None = None
    """The JSON Schema of a person's answer instead of a run. `None` if the tool takes none."""
    undeclared: bool = False
    """True if the gateway's catalog lacks the tool of a request that may still run.

    The tool was removed or renamed, or gateway and worker have different deploys.
    """
    late_report: LateReport | None = None
    """For `in_doubt`: the agent's late report, its text truncated to a card's length."""
    votes: tuple[Vote, ...] = ()
    """The counted answers."""
    messages: tuple[RequestMessage, ...] = ()
    """The approvers' questions and the agent's answers, oldest first. Only in the view of one request."""
    thread: str = ""
    """The hash of `messages`, which an approval names. "" without messages."""
    assignments: tuple[Vote, ...] = ()
    """The hand-ons of this revision, and the added approvers of this and earlier revisions, in order."""
