"""A request for approval and the card that shows it."""

from datetime import datetime
from typing import Literal

from signoff.contracts.base import Shape
from signoff.contracts.content import Content
from signoff.contracts.decision import Assurance, Decision
from signoff.contracts.person import Principal

ApprovalState = Literal["pending", "approved", "denied", "timed_out", "cancelled", "lapsed", "happened"]
"""`happened` only where `kind` is `in_doubt`: somebody says that the call had its effect."""


class CardRow(Shape):
    """One argument as shown: one line, untrusted text made visible, cut on its own.

    `length` is the value's full length in characters; `secret` rows show only that.
    `format` is the schema's `format` (or `type`), for display.
    """

    name: str
    label: str
    value: str
    secret: bool = False
    cut: bool = False
    length: int = 0
    format: str = ""


class Card(Shape):
    """What a person sees, made from the validated arguments that will run, never from the model's words."""

    effect: str
    rows: tuple[CardRow, ...] = ()
    agent_says: str = ""
    note: str = ""
    """Why it is asked again, such as `the tool changed while you were asked`."""
    mark: str = ""
    """First 8 characters of an HMAC of the digest under a key of the store."""
    tool_title: str = ""


class Vote(Shape):
    """One person's counted answer: `subject` is the entry or login they answered by, `person_id` the human (empty in
    votes of old: `subject`). `on_behalf` is the human whose delegation it used, if any."""

    subject: str
    person_id: str = ""
    on_behalf: str = ""
    name: str = ""
    verdict: Literal["approved", "denied", "happened"]
    reason: str = ""
    channel: str = ""
    assurance: Assurance = "none"
    at: datetime
    unsigned: bool = False
    decision: Decision


class ApprovalRequest(Shape):
    """One question to people about one call. Times are workflow time, in UTC.

    `approvers` holds `role:<role>` and `user:<id>`; `requester` is who asked for the turn.
    `grant_ttl` is how many seconds an approval stays valid before execution starts. `kind` `in_doubt` asks what
    became of a call whose outcome is not known. `edited_by` changed the arguments of the revision before; `before`
    are the rows its card showed. `escalate_after`, `remind_after` and `timeout` are seconds from `opened_at`. With
    `on_timeout` `escalate` the deadline is put off once, by `timeout`; then `extended` is set.
    """

    id: str
    kind: Literal["approval", "in_doubt"] = "approval"
    code: str
    revision: int = 1
    digest: str
    definition: str = ""
    tenant: str
    turn: str
    session: str = ""
    actor: str = ""
    call: str
    tool: str
    args: Content
    secrets: tuple[str, ...] = ()
    card: Card
    rule: str = ""
    rule_text: str = ""
    policy_hash: str = ""
    approvers: tuple[str, ...] = ()
    quorum: int = 1
    veto: bool = True
    allow_self: bool = False
    allow_edit: bool = False
    confirm: str = ""
    min_assurance: Assurance = "channel"
    accept_unsigned: bool = False
    level: str = "user"
    requester: Principal
    timeout: float = 86_400.0
    grant_ttl: float = 900.0
    remind_after: float | None = None
    escalate_after: float | None = None
    escalate_to: tuple[str, ...] = ()
    on_timeout: Literal["deny", "escalate"] = "deny"
    allow_remember: bool = False
    notify: tuple[str, ...] = ()
    edited_by: str = ""
    edited_name: str = ""
    before: tuple[CardRow, ...] = ()
    reminded: int = 0
    escalated: bool = False
    extended: bool = False
    opened_at: datetime | None = None
    expires_at: datetime | None = None
    remind_at: tuple[datetime, ...] = ()
    escalate_at: datetime | None = None
    state: ApprovalState = "pending"
    votes: tuple[Vote, ...] = ()
    decided_by: str = ""
    decided_name: str = ""
    decided_at: datetime | None = None
    decided_channel: str = ""
    reason: str = ""
