"""Questions, the requests built from them, their cards and votes."""

from datetime import datetime
from typing import Final, Literal

from signoff.contracts.call import LateReport, RuleReference
from signoff.contracts.content import Content, Words
from signoff.contracts.decision import Assurance, Decision, Verdict
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.person import Principal

ApprovalState = Literal["pending", "approved", "denied", "timed_out", "cancelled", "lapsed", "happened"]
"""`happened` only where `kind` is `in_doubt`: somebody says that the call had its effect."""


class CardRow(FrozenModel):
    """One argument as shown: one line, untrusted text made visible, cut on its own."""

    name: str
    """The argument's dotted name; "" for a remark of the card's own, that something is not drawn."""
    label: str
    """The argument's title; of a remark the argument that it is about, if any."""
    value: str
    """The value as shown; a remark in English."""
    secret: bool = False
    """Whether the value is hidden; then only its length is shown."""
    cut: bool = False
    """Whether the value is cut."""
    length: int = 0
    """The full length of the value, in characters."""
    format: str = ""
    """The schema's `format` (or `type`); of a remark what it says of `length` values: `more`, `more_of`, `missing`."""


class Card(FrozenModel):
    """What a person sees, made from the validated arguments that will run, never from the model's words."""

    effect: str
    """The sentence that says what the call does."""
    rows: tuple[CardRow, ...] = ()
    """The arguments."""
    agent_says: str = ""
    """The model's own words, marked as such."""
    note: str = ""
    """Why the question is asked again, such as `the tool changed while you were asked`; English."""
    notes: tuple[Words, ...] = ()
    """The same for readers of other languages."""
    mark: str = ""
    """First 8 characters of an HMAC of the digest under a key of the store."""
    tool_title: str = ""
    """The tool's title."""

    @property
    def whole(self) -> bool:
        """Returns whether the rows give every value that is no secret in full. Computed, so that nobody can claim
        it.
        """
        return not any(row.cut or not row.name for row in self.rows)


class Vote(FrozenModel):
    """One person's counted answer."""

    subject: str
    """The entry or login by which they answered."""
    person_id: str = ""
    """The id of the human; "" where it is `subject`."""
    on_behalf: str = ""
    """The id of the human whose delegation the vote uses, or ""."""
    name: str = ""
    """The person's name."""
    verdict: Verdict
    """The answer."""
    reason: str = ""
    """The reason they gave."""
    channel: str = ""
    """By which channel they answered."""
    assurance: Assurance = "none"
    """How strongly they were identified."""
    at: datetime
    """When they answered, in UTC."""
    unsigned: bool = False
    """Whether the decision is unsigned."""
    entries: tuple[str, ...] = ()
    """Of a question with groups: the approver entries of it under which the vote counts."""
    decision: Decision
    """The whole decision."""


class ApproverGroup(FrozenModel):
    """So many different people among those whom `of` names have to approve; one person fills one place."""

    of: tuple[str, ...]
    """`role:<role>` and `user:<id>`."""
    quorum: int = 1
    """How many of them have to approve."""


class AppliedTerm(FrozenModel):
    """A stricter term that applied to one call, and why."""

    reason: str = ""
    """The policy's words for it, or its condition."""
    quorum: int = 1
    """How many different people it wants."""
    groups: tuple[ApproverGroup, ...] = ()
    """Whom it wants as well."""
    min_assurance: Assurance = "none"
    """How surely they must be identified."""
    timeout: float | None = None
    """For how many seconds it waits."""
    escalate_after: float | None = None
    """After how many seconds it is escalated."""
    escalate_to: tuple[str, ...] = ()
    """To whom alone it is escalated."""


EditMode = Literal["off", "propose", "approve"]
"""Whether approvers may change the arguments: not at all; for others to decide; or as a yes to what they wrote."""
EDIT_MODES: tuple[EditMode, ...] = ("off", "propose", "approve")
"""The strictest first."""
JUDGED_SECONDS: Final = 60.0
"""How far the instant at which a call was judged may lie from that at which its question was written."""


Ending = Literal["cancelled", "lapsed", "superseded", "not_asked"]
"""How a turn ended a question by its own word, always towards `does not run`; `unsigned`: answered by a raw message."""


class Question(FrozenModel):
    """One question to people about one call, as its row in the store holds it: inserted once, never changed.

    `question_hash` covers everything but `code`, `judged_at`, `opened_at`, `ended_at` and `ended_as`. Spans are in
    seconds from `opened_at`.
    """

    id: str
    """The approval id, `<tenant>.<session>.<turn>.<call>`."""
    kind: Literal["approval", "in_doubt"] = "approval"
    """`in_doubt` asks whether a call happened whose outcome is not known."""
    code: str = ""
    """The short code that people read and type."""
    revision: int = 1
    """Which time the call is asked about, from 1."""
    tenant: str
    """The tenant."""
    session: str = ""
    """The session."""
    turn: str
    """The turn."""
    actor: str = ""
    """The actor that made the call."""
    call: str
    """The call's id."""
    requester: Principal
    """The person who asked for the turn, with the gateway's signature."""
    channel: str = ""
    """By which the turn was asked for."""
    context: str = ""
    """sha-256 of what was given of its context; with `channel` it is what the requester's signature covers."""
    tool: str
    """The tool's name."""
    definition: str = ""
    """sha-256 of the tool's declaration, under which the declaration itself lies in the store."""
    args: Content
    """The arguments that run if it is approved."""
    digest: str
    """sha-256 that binds the tool and its arguments."""
    doubt_of: int = 0
    """Of `in_doubt`: the number of the ticket in question."""
    edit_of: int = 0
    """The revision whose signed or unsigned answer changed the arguments."""
    edit_delivery: str = ""
    """The delivery id of that answer: nobody else's counts as a yes to what it made, also with the same arguments."""
    secrets: tuple[str, ...] = ()
    """Dotted names of arguments that no card shows."""
    show: tuple[str, ...] | None = None
    """Dotted names of the arguments that the card shows; None: all."""
    rule: RuleReference | None = None
    """The rule that asks."""
    rule_text: str = ""
    """The text of that rule."""
    policy_hash: str = ""
    """sha-256 of the policy."""
    override: str = ""
    """sha-256 of what the tool objects to and people are asked to let pass."""
    approvers: tuple[str, ...] = ()
    """Everybody who is asked, as `role:<role>` and `user:<id>`; those of `groups` among them."""
    quorum: int = 1
    """How many different people have to approve in all."""
    groups: tuple[ApproverGroup, ...] = ()
    """Places that those people have to fill; empty: any of `approvers` fills any."""
    applied: tuple[AppliedTerm, ...] = ()
    """Why the terms are stricter than the policy's own, if they are."""
    veto: bool = True
    """Whether one denial ends it."""
    require_reason: bool = False
    """Whether a denial counts only with a reason."""
    allow_self: bool = False
    """Whether the requester may decide it."""
    edit: EditMode = "off"
    """Whether approvers may change the arguments."""
    proposers: tuple[str, ...] = ()
    """Who changed the arguments where that makes them one who asks: they decide it no more than the requester does."""
    allow_remember: bool = False
    """Whether an answer may be remembered."""
    confirm: str = ""
    """`type` where approvers type a value of the card again; else ""."""
    min_assurance: Assurance = "channel"
    """How surely approvers must be identified."""
    accept_unsigned: bool = False
    """Whether answers without a signature count."""
    level: str = "user"
    """`user`, or `admin` where administrators are asked."""
    timeout: float = 86_400.0
    """After how many seconds from `opened_at` its deadline is."""
    grant_ttl: float = 86_400.0
    """For how many seconds after the answer that completed it an approval may be used."""
    remind_after: float | None = None
    """After how many seconds people are reminded; None: never."""
    escalate_after: float | None = None
    """After how many seconds it is escalated; None: never."""
    escalate_to: tuple[str, ...] = ()
    """The approver entries that an escalation adds."""
    on_timeout: Literal["deny", "escalate"] = "deny"
    """Whether the deadline denies, or escalates and is put off once, by `timeout`."""
    notify: tuple[str, ...] = ()
    """Names of the channels that the policy wants; empty: those of the manifest's rules."""
    agent_says: str = ""
    """The model's own words."""
    notes: tuple[Words, ...] = ()
    """Why it is asked again, or by whom it was changed."""
    judged_at: datetime | None = None
    """The instant at which the gates judged the call, in UTC: `ctx.now` of the rules that ask."""
    opened_at: datetime | None = None
    """When it was written, by the store's clock (UTC)."""
    ended_at: datetime | None = None
    """When the turn ended it by its own word, by the store's clock (UTC)."""
    ended_as: Ending | None = None
    """How the turn ended it, if it did."""

    @property
    def judging_delay(self) -> float:
        """How many seconds lie between `judged_at` and `opened_at`; 0 where one of them is not known.

        Rules go by `judged_at` later on: whoever could choose it could choose a day on which they ask for less. So no
        reader goes by a question with more than `JUDGED_SECONDS`.
        """
        if self.judged_at is None or self.opened_at is None:
            return 0.0
        return abs((self.judged_at - self.opened_at).total_seconds())


class ApprovalRequest(Question):
    """A question with everything that follows from it: its card, and what answers and time have made of it."""

    question_hash: str = ""
    """sha-256 of the question, which an answer names."""
    seen: str = ""
    """Only in the one view that gives every value: what a yes has to send back where the card is not whole."""
    card: Card
    """The card that people see."""
    edited_by: str = ""
    """The id of the person who changed the arguments of the revision before, or ""."""
    edited_name: str = ""
    """The name of that person."""
    before: tuple[CardRow, ...] = ()
    """The rows of the card before that change."""
    undeclared: bool = False
    """Whether the gateway's catalog lacks the tool of a request that may still run: it was removed or renamed, or the
    gateway is of another deploy than the worker."""
    late_report: LateReport | None = None
    """Of `in_doubt`: what the agent reported after the time for it, its text cut to a card's length."""
    reminded: int = 0
    """How many reminders there were."""
    escalated: bool = False
    """Whether it was escalated."""
    extended: bool = False
    """Whether its deadline was put off."""
    expires_at: datetime | None = None
    """Its deadline, in UTC."""
    remind_at: tuple[datetime, ...] = ()
    """When reminders are due, in UTC."""
    escalate_at: datetime | None = None
    """When it is escalated, in UTC; None: never, or done."""
    state: ApprovalState = "pending"
    """The present state."""
    votes: tuple[Vote, ...] = ()
    """The counted answers."""
    decided_by: str = ""
    """The id of the person whose answer decided it, the last of several, or ""."""
    decided_name: str = ""
    """The names of all whose answers decided it, in their order, by commas."""
    decided_at: datetime | None = None
    """When it was decided, in UTC."""
    decided_channel: str = ""
    """The channel of the deciding answer."""
    reason: str = ""
    """The reason that was given."""
