"""Describes the course of a request: approvers, deadlines, edits, and cards on channels."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from signoff.approvals.edit_diff import row_changes
from signoff.approvals.quorum import people_who_gave
from signoff.contracts.approval import ApprovalRequest, ApproverGroup, CardRow
from signoff.contracts.person import Person
from signoff.gateway.auth.person_lookup import active_people, display_name
from signoff.gateway.auth.visitor import Visitor
from signoff.languages.catalogue import text
from signoff.people.directory import Directory
from signoff.people.eligibility import rights
from signoff.people.on_call import asks_rota, find_on_call
from signoff.registry.manifest.channel_sections import DeclaredChannel
from signoff.store.delivery_queue import DeliveryRow
from signoff.texts.formatter import FormattedTime, Formatter


@dataclass(frozen=True)
class TimedStep:
    """One timed event, past or future: its text, and the time at its end, if any."""

    words: str
    when: FormattedTime | None = None


@dataclass(frozen=True)
class DiffLine:
    """One argument, old and new; "" if absent."""

    label: str
    before: str
    after: str


@dataclass(frozen=True)
class EditDiff:
    """The changes of an edit."""

    who: str
    lines: tuple[DiffLine, ...]
    """The changed arguments; empty if they are hidden."""


def state_words(request: ApprovalRequest, language: str) -> str:
    doubt = "doubt." if request.kind == "in_doubt" else ""
    return text(f"{doubt}state.{request.state}", language)


def who_may(request: ApprovalRequest, people: Directory, formatter: Formatter, *, answered: bool = False) -> str:
    """Return each role with its people, their delegates, then people named singly.

    `answered` leaves out people with a counted decision. People who handed the request on are always left out.
    """
    voters = {voter for vote in request.votes for voter in (vote.subject, vote.on_behalf)} if answered else set()
    gave = people_who_gave(request.assignments)
    return _name_approvers(request.approvers, request, people, formatter, voters.union(gave))


def groups_words(
    groups: Iterable[ApproverGroup], request: ApprovalRequest, people: Directory, formatter: Formatter
) -> str:
    lacking = ((group.quorum, _others(group.of, request, people, formatter)) for group in groups)
    return ", ".join(formatter.text("card.group", n=lacks, who=who) for lacks, who in lacking)


def silence_words(request: ApprovalRequest, people: Directory, formatter: Formatter) -> str:
    if request.kind == "in_doubt":
        return text("card.silence.given_up", formatter.language)
    if request.on_timeout == "escalate" and not request.extended and request.expires_at is not None:
        last = request.expires_at + timedelta(seconds=request.timeout)
        who = _others(request.escalate_to, request, people, formatter)
        return text("card.silence.extended", formatter.language, who=who, when=formatter.moment(last).clock)
    return text("card.silence.denied", formatter.language)


def timed_words(request: ApprovalRequest, people: Directory, formatter: Formatter) -> tuple[TimedStep, ...]:
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
    if not request.edited_by:
        return None
    who = request.edited_name or request.edited_by
    if request.edited_by == visitor.person.id:
        who = f"{who} ({text('receipt.you', visitor.formatter.language)})"
    return EditDiff(who, diff_lines(request.before, request.card.rows, visitor.formatter))


def diff_lines(before: tuple[CardRow, ...], after: tuple[CardRow, ...], formatter: Formatter) -> tuple[DiffLine, ...]:
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
    candidates = [
        person
        for person in active_people(people, request.tenant)
        if (request.allow_self or person.id != request.requester.user) and person.id not in without
    ]
    names: list[str] = []
    for approver in approvers:
        kind, _, name = approver.partition(":")
        own = [person for person in candidates if approver in rights(person)]
        # A delegation passes no shift on.
        deputies = _standing_in(own, candidates, request, people, formatter)
        if asks_rota((approver,)):
            now = formatter.now
            own += [each for each in candidates if approver in find_on_call(people, each.id, request.tenant, now)]
        shown = [*(person.name or person.id for person in own), *deputies]
        if kind != "user":
            missing = "card.nobody" if kind == "role" else "card.nobody_on_call"
            names.append(f"{', '.join(shown) or text(missing, formatter.language)} ({name})")
        elif shown or people.find(name, request.tenant) is None:
            names.append(", ".join(shown) or name)
    return "; ".join(names) or text("card.nobody", formatter.language)


def _standing_in(
    own: Sequence[Person],
    everybody: Sequence[Person],
    request: ApprovalRequest,
    people: Directory,
    formatter: Formatter,
) -> list[str]:
    """Return the delegates who may answer only for a person in `own`, with that person."""
    names: list[str] = []
    for person in everybody:
        if person not in own:
            delegators = [each for each in people.delegators(person.id, request.tenant, formatter.now) if each in own]
            names += [
                text("card.for_whom", formatter.language, who=person.name or person.id, principal=each.name or each.id)
                for each in delegators
            ]
    return names


@dataclass(frozen=True)
class DeliveryLine:
    """One card: recipient, channel, state for programs and in words, and the error."""

    who: str
    channel: str
    state: str
    words: str
    why: str


def delivery_lines(
    rows: Iterable[DeliveryRow], declared: Mapping[str, DeclaredChannel], people: Directory, language: str
) -> tuple[DeliveryLine, ...]:
    """In order of planning, without dropped cards."""
    return tuple(_line(row, declared, people, language) for row in rows if row.state != "dropped")


def _line(row: DeliveryRow, declared: Mapping[str, DeclaredChannel], people: Directory, language: str) -> DeliveryLine:
    kind = declared[row.channel].kind if row.channel in declared else ""
    failed = row.state == "failed" or (row.state == "planned" and bool(row.code))
    return DeliveryLine(
        who=row.address if row.kind == "room" else display_name(people, row.person, row.tenant),
        channel=row.channel if kind in ("", row.channel) else f"{row.channel} ({kind})",
        state=row.state,
        words=text("end.replaced" if row.replaced else f"told.{row.state}", language),
        why=(row.message or row.code)[:200] if failed else "",
    )
