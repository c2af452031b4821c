"""Writes the course of a request: who may answer, what time brings, what was changed on the way, and who was told
beside the inbox.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from signoff.approvals.edit_diff import row_changes
from signoff.contracts.approval import ApprovalRequest, ApproverGroup, CardRow
from signoff.contracts.person import Person
from signoff.gateway.auth.person_lookup import active_people, display_name
from signoff.gateway.auth.visitor import Visitor
from signoff.languages.catalogue import text
from signoff.people.directory import Directory
from signoff.people.eligibility import rights
from signoff.registry.manifest.channel_sections import DeclaredChannel
from signoff.store.delivery_queue import DeliveryRow
from signoff.texts.formatter import FormattedTime, Formatter


@dataclass(frozen=True)
class TimedStep:
    """One thing that time brings or brought: words, and the moment they end with, if any."""

    words: str
    when: FormattedTime | None = None


@dataclass(frozen=True)
class DiffLine:
    """One argument, old and new; "" for none."""

    label: str
    before: str
    after: str


@dataclass(frozen=True)
class EditDiff:
    """What somebody changed."""

    who: str
    """Who changed it."""
    lines: tuple[DiffLine, ...]
    """The changed arguments; none where they are hidden."""


def state_words(request: ApprovalRequest, language: str) -> str:
    """Returns the state of a request in a word or two."""
    doubt = "doubt." if request.kind == "in_doubt" else ""
    return text(f"{doubt}state.{request.state}", language)


def who_may(request: ApprovalRequest, people: Directory, formatter: Formatter, *, answered: bool = False) -> str:
    """Says who may answer: each role with its people, those who stand in for them, then those named one by one.

    With `answered` without those who have answered already.
    """
    voters = {voter for vote in request.votes for voter in (vote.subject, vote.on_behalf)} if answered else set()
    return _name_approvers(request.approvers, request, people, formatter, voters)


def groups_words(
    groups: Iterable[ApproverGroup], request: ApprovalRequest, people: Directory, formatter: Formatter
) -> str:
    """Returns how many of whom are still needed: each group with its people."""
    lacking = ((group.quorum, _others(group.of, request, people, formatter)) for group in groups)
    return ", ".join(formatter.text("card.group", n=lacks, who=who) for lacks, who in lacking)


def silence_words(request: ApprovalRequest, people: Directory, formatter: Formatter) -> str:
    """Says what happens if nobody answers in time."""
    if request.kind == "in_doubt":
        return text("card.silence.given_up", formatter.language)
    if request.on_timeout == "escalate" and not request.extended and request.expires_at is not None:
        last = request.expires_at + timedelta(seconds=request.timeout)
        who = _others(request.escalate_to, request, people, formatter)
        return text("card.silence.extended", formatter.language, who=who, when=formatter.moment(last).clock)
    return text("card.silence.denied", formatter.language)


def timed_words(request: ApprovalRequest, people: Directory, formatter: Formatter) -> tuple[TimedStep, ...]:
    """Returns reminders and escalation, past and to come, of a request that waits."""
    if request.state != "pending":
        return ()
    steps = [
        TimedStep(
            text("card.reminded" if at < request.reminded else "card.reminder", formatter.language),
            formatter.moment(when),
        )
        for at, when in enumerate(request.remind_at)
    ]
    who = _others(request.escalate_to, request, people, formatter)
    if request.escalated:
        steps.append(TimedStep(text("card.escalated", formatter.language, who=who)))
    elif request.escalate_at is not None:
        moment = formatter.moment(request.escalate_at)
        steps.append(TimedStep(text("card.escalates", formatter.language, who=who), moment))
    return tuple(steps)


def diff_of(request: ApprovalRequest, visitor: Visitor) -> EditDiff | None:
    """Returns the changes of a request's last edit; None where nobody edited it."""
    if not request.edited_by:
        return None
    who = request.edited_name or request.edited_by
    if request.edited_by == visitor.person.id:
        who = f"{who} ({text('receipt.you', visitor.formatter.language)})"
    return EditDiff(who, diff_lines(request.before, request.card.rows, visitor.formatter))


def diff_lines(before: tuple[CardRow, ...], after: tuple[CardRow, ...], formatter: Formatter) -> tuple[DiffLine, ...]:
    """Returns the rows of two cards that differ, their values as each card shows them."""
    old, new = ({row.name: row for row in rows if row.name} for rows in (before, after))
    return tuple(
        DiffLine(
            label=formatter.label(change.label or change.name),
            before=formatter.value(old[change.name], before) if change.name in old else "",
            after=formatter.value(new[change.name], after) if change.name in new else "",
        )
        for change in row_changes(before, after)
    )


def _others(approvers: Sequence[str], request: ApprovalRequest, people: Directory, formatter: Formatter) -> str:
    return _name_approvers(approvers, request, people, formatter, set())


def _name_approvers(
    approvers: Sequence[str],
    request: ApprovalRequest,
    people: Directory,
    formatter: Formatter,
    without: Collection[str],
) -> str:
    everybody = [
        person
        for person in active_people(people, request.tenant)
        if (request.allow_self or person.id != request.requester.user) and person.id not in without
    ]
    names: list[str] = []
    for approver in approvers:
        kind, _, name = approver.partition(":")
        own = [person for person in everybody if approver in rights(person)]
        found = [person.name or person.id for person in own] + _standing_in(own, everybody, request, people, formatter)
        if kind == "role":
            names.append(f"{', '.join(found) or text('card.nobody', formatter.language)} ({name})")
        elif found or people.find(name, request.tenant) is None:
            names.append(", ".join(found) or name)
    return "; ".join(names) or text("card.nobody", formatter.language)


def _standing_in(
    own: Sequence[Person],
    everybody: Sequence[Person],
    request: ApprovalRequest,
    people: Directory,
    formatter: Formatter,
) -> list[str]:
    """Returns those who may answer only in the place of one of `own`, and of whom."""
    names: list[str] = []
    for person in everybody:
        if person not in own:
            standing = [each for each in people.delegators(person.id, request.tenant, formatter.now) if each in own]
            names += [
                text("card.for_whom", formatter.language, who=person.name or person.id, whom=each.name or each.id)
                for each in standing
            ]
    return names


@dataclass(frozen=True)
class DeliveryLine:
    """One card: for whom, on which channel, its state for machines and in words, and why it failed."""

    who: str
    channel: str
    state: str
    words: str
    why: str


def delivery_lines(
    rows: Iterable[DeliveryRow], declared: Mapping[str, DeclaredChannel], people: Directory, language: str
) -> tuple[DeliveryLine, ...]:
    """Returns the cards of a request, in the order in which they were planned; those that nobody needed any more left
    out.
    """
    return tuple(_line(row, declared, people, language) for row in rows if row.state != "dropped")


def _line(row: DeliveryRow, declared: Mapping[str, DeclaredChannel], people: Directory, language: str) -> DeliveryLine:
    kind = declared[row.channel].kind if row.channel in declared else ""
    failed = row.state == "failed" or (row.state == "planned" and bool(row.code))
    return DeliveryLine(
        who=display_name(people, row.person, row.tenant),
        channel=row.channel if kind in ("", row.channel) else f"{row.channel} ({kind})",
        state=row.state,
        words=text(f"told.{row.state}", language),
        why=(row.message or row.code)[:200] if failed else "",
    )
