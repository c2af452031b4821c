"""A request as its page shows it: every word and number ready, nothing left to decide for the template."""

import json
from dataclasses import dataclass
from typing import Any, Final

from signoff.approvals.arguments import find
from signoff.approvals.visible import scalar_line
from signoff.contracts.approval import ApprovalRequest, CardRow
from signoff.contracts.decision import at_least
from signoff.contracts.limits import ARGUMENTS_BYTES
from signoff.gateway.call_view import CallLine
from signoff.gateway.deciding import seat_at
from signoff.gateway.identity import active_people, display_name
from signoff.gateway.masking import masked_args
from signoff.gateway.texts import has_text, text
from signoff.gateway.visitor import Visitor
from signoff.gateway.words import Moment, is_money
from signoff.registry.people import Directory
from signoff.registry.seats import Seat, rights

RAW_CHARS: Final = 20_000
_ABSENT: Final = object()


@dataclass(frozen=True)
class Row:
    """One argument. `whole` is the full text of a value that is cut; `remark` a line of the card's own."""

    label: str
    value: str
    secret: bool = False
    whole: str = ""
    length: int = 0
    remark: bool = False


@dataclass(frozen=True)
class VoteLine:
    """Who has answered."""

    who: str
    verdict: str
    when: Moment


@dataclass(frozen=True)
class Ending:
    """How it ended: the sentence, when and where, the reason, and what happened to the call then."""

    state: str
    sentence: str
    when: Moment | None
    where: str
    reason: str
    then: CallLine | None


@dataclass(frozen=True)
class CardPage:
    """Everything a card shows. `version` changes when what is shown is no longer true."""

    request: ApprovalRequest
    version: str
    rows: tuple[Row, ...]
    rule: str
    expression: str
    requester: str
    asked: Moment | None
    asked_ago: str
    due: Moment | None
    due_in: str
    votes: tuple[VoteLine, ...]
    may: str
    decides: bool
    why_not: str
    typed: str
    raw: str
    ending: Ending | None
    withdraws: bool


def card_page(request: ApprovalRequest, args: Any, line: CallLine, visitor: Visitor, people: Directory) -> CardPage:
    """The page of a request. `args` are its loaded arguments, or None when they cannot be had."""
    reader = visitor.reader
    seat = seat_at(request, visitor.person, people, reader.now)
    decides = not seat.code and at_least(visitor.assurance, request.min_assurance)
    pending = request.state == "pending"
    return CardPage(
        request=request,
        version=version_of(request, line),
        rows=tuple(_row(row, request, args, visitor) for row in request.card.rows),
        rule=rule_words(request.rule, reader.language),
        expression=request.rule_text if request.rule_text and request.rule != "requires_approval" else "",
        requester=display_name(people, request.requester.user, request.tenant),
        asked=reader.moment(request.opened_at) if request.opened_at else None,
        asked_ago=reader.ago(request.opened_at) if request.opened_at else "",
        due=reader.moment(request.expires_at) if request.expires_at else None,
        due_in=reader.until(request.expires_at) if request.expires_at else "",
        votes=tuple(
            VoteLine(_named(vote.name or vote.subject, vote.subject, visitor), vote.verdict, reader.moment(vote.at))
            for vote in request.votes
        ),
        may=who_may(request, people, reader.language),
        decides=decides,
        why_not=_why_not(request, seat, visitor, people) if pending and not decides else "",
        typed=(*typed_words(request, visitor), "")[0] if pending else "",
        raw=_raw(request, args),
        ending=None if pending else _ending(request, line, visitor),
        withdraws=pending and visitor.person.id == request.requester.user,
    )


def version_of(request: ApprovalRequest, line: CallLine) -> str:
    """Changes when a card on a screen is no longer the truth."""
    return f"{request.revision}-{request.state}-{len(request.votes)}-{line.state}"


def who_may(request: ApprovalRequest, people: Directory, language: str) -> str:
    """Who may decide, in words: each role with its people, then those named one by one."""
    everybody = [
        person
        for person in active_people(people, request.tenant)
        if request.allow_self or person.id != request.requester.user
    ]
    told: list[str] = []
    for approver in request.approvers:
        kind, _, name = approver.partition(":")
        found = [person.name or person.id for person in everybody if approver in rights(person)]
        if kind == "role":
            told.append(f"{', '.join(found) or text('card.nobody', language)} ({name})")
        else:
            told.append(", ".join(found) or name)
    return "; ".join(told) or text("card.nobody", language)


def rule_words(rule: str, language: str) -> str:
    """The rule that asked, in words."""
    key = f"card.rule.{rule}"
    return text(key, language) if has_text(key) else text("card.rule.other", language, rule=rule)


def typed_words(request: ApprovalRequest, visitor: Visitor) -> tuple[str, ...]:
    """What may be typed to approve a high-risk request, as shown first: its amount, else its first value.

    Empty for a request that asks for no typing.
    """
    if request.confirm != "type" and not at_least(request.min_assurance, "mfa"):
        return ()
    rows = [row for row in request.card.rows if row.name and not row.secret and not row.cut]
    amount = next((row for row in rows if is_money(row)), None)
    if amount is not None:
        return visitor.reader.value(amount, ()), amount.value
    return (rows[0].value if rows else request.code,)


def typed_right(typed: str, words: tuple[str, ...]) -> bool:
    """Whether a person typed one of them; spaces around and case do not matter."""
    given = " ".join(typed.split()).casefold()
    return given in {" ".join(word.split()).casefold() for word in words}


def _row(row: CardRow, request: ApprovalRequest, args: Any, visitor: Visitor) -> Row:
    if not row.name:
        return Row("", row.value, remark=True)
    whole = ""
    if row.cut and isinstance(args, dict):
        found = find(args, row.name, _ABSENT)
        whole = scalar_line(found, ARGUMENTS_BYTES).text if isinstance(found, str) else ""
    shown = visitor.reader.value(row, request.card.rows)
    return Row(row.label or row.name, shown, secret=row.secret, whole=whole, length=row.length if row.cut else 0)


def _why_not(request: ApprovalRequest, seat: Seat, visitor: Visitor, people: Directory) -> str:
    own = seat.code == "self_approval"
    language = visitor.reader.language
    if not seat.code:
        return text(f"card.needs.{request.min_assurance}", language)
    return text("card.own" if own else "card.not_yours", language, who=who_may(request, people, language))


def _ending(request: ApprovalRequest, line: CallLine, visitor: Visitor) -> Ending:
    language = visitor.reader.language
    who = _named(request.decided_name or request.decided_by, request.decided_by, visitor)
    key = f"receipt.{request.state}"
    if request.state == "cancelled" and who:
        key = "receipt.cancelled_by"
    decided = request.state in ("approved", "denied")
    return Ending(
        state=request.state,
        sentence=text(key, language, who=who or "?"),
        when=visitor.reader.moment(request.decided_at) if request.decided_at else None,
        where=channel_words(request.decided_channel, language) if decided else "",
        reason=request.reason,
        then=line if request.state in ("approved", "lapsed") else None,
    )


def channel_words(channel: str, language: str) -> str:
    """Where an answer came from."""
    key = f"channel.{channel}"
    return text(key, language) if has_text(key) else text("channel.other", language, channel=channel)


def _named(name: str, subject: str, visitor: Visitor) -> str:
    return f"{name} ({text('receipt.you', visitor.reader.language)})" if subject == visitor.person.id else name


def _raw(request: ApprovalRequest, args: Any) -> str:
    shown: dict[str, Any] = {"approval_id": request.id, "revision": request.revision, "tool": request.tool}
    shown["mark" if request.secrets else "digest"] = request.card.mark if request.secrets else request.digest
    shown["args"] = masked_args(args, request.secrets)
    written = json.dumps(shown, indent=2, ensure_ascii=True)
    return written if len(written) <= RAW_CHARS else written[:RAW_CHARS] + "…"
