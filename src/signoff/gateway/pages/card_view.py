"""Makes a request's page with all texts and numbers, so that the template decides nothing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from signoff.approvals.confirmation import is_money, needs_typing, row_to_type
from signoff.approvals.machine import deciding_votes
from signoff.approvals.quorum import progress
from signoff.approvals.request_state import as_answerable
from signoff.approvals.request_thread import questions_left, unanswered
from signoff.contracts.approval import ApprovalRequest, RequestMessage, Vote
from signoff.contracts.decision import at_least
from signoff.contracts.ids import show_code
from signoff.contracts.person import Absence
from signoff.engine.kill_switch import OPERATOR
from signoff.formats.lookalikes import mark_words, suspect_words
from signoff.formats.visible_text import ELLIPSIS, NEWLINE, cut_visible, one_line, whole_line
from signoff.gateway.approvals.secret_masks import masked_args
from signoff.gateway.approvals.value_tables import ValueTable
from signoff.gateway.auth.person_lookup import display_name
from signoff.gateway.auth.visitor import Visitor
from signoff.gateway.pages.call_view import CallLine
from signoff.gateway.pages.decided.similar_view import SimilarView
from signoff.gateway.pages.previews.preview_view import PreviewView
from signoff.gateway.pages.timeline_view import (
    DeliveryLine,
    EditDiff,
    TimedStep,
    diff_of,
    groups_words,
    silence_words,
    state_words,
    timed_words,
    who_may,
)
from signoff.gateway.pages.value_view import Row, key_rows, mark_new, usual_arguments, value_rows, values_count
from signoff.languages.catalogue import has_text, text
from signoff.languages.remarks import remark_text
from signoff.people.absences import is_away
from signoff.people.directory import Directory
from signoff.people.eligibility import (
    Eligibility,
    approver_spec_of,
    can_remember,
    find_assignable,
    has_handed_on,
    resolve_eligibility,
)
from signoff.store.questions.taken_requests import TakenRequest
from signoff.texts.endings import assignment_words, late_report_words, reason_words, undeclared_words, where_words
from signoff.texts.formatter import FormattedTime, Formatter
from signoff.texts.reasons import rule_expression, rule_words

RAW_CHARS: Final = 10_000
QUOTE_CHARS: Final = 90
"""Characters of words that are shown at once."""
WROTE_CHARS: Final = 4_000
"""Characters of a requester's message on a card."""


@dataclass(frozen=True)
class VoteLine:
    """One vote so far."""

    who: str
    verdict: str
    """The verdict for programs."""
    words: str
    """The verdict in words."""
    when: FormattedTime
    reason: str


@dataclass(frozen=True)
class AskedLine:
    """One message about the request: an approver's question, or the agent's answer."""

    by_agent: bool
    speaker: str
    lines: tuple[str, ...]
    when: FormattedTime | None


@dataclass(frozen=True)
class CardQuote:
    """Words of the requester or the agent: their start, and all lines if there are more."""

    speaker: str
    start: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class CardEnding:
    """The end of a request."""

    state: str
    sentence: str
    when: FormattedTime | None
    where: str
    """The channel of the decision."""
    reason: str
    result: str
    """The outcome of the call, as a person reported it."""
    then: CallLine | None
    """The call's line afterwards."""


@dataclass(frozen=True)
class CardPage:
    """All contents of a card. `version` changes when a shown card becomes wrong.

    `unseen` describes values that are not drawn, next to the button. `opened` says whether this visitor has opened them
    all. `passkey`: the visitor's passkey must confirm the decision. `own_verdict` is the visitor's vote while the
    request waits for others, and `own_answer` its text. `asks` is the number of questions that the visitor can still
    ask, 0 while one is `unanswered`.
    """

    request: ApprovalRequest
    version: str
    state: str
    doubt: bool
    keys: tuple[Row, ...]
    rows: tuple[Row | ValueTable, ...]
    count: int
    note: str
    undeclared: str
    late: str
    rule: str
    expression: str
    stricter: tuple[str, ...]
    requester: str
    wrote: CardQuote | None
    """The requester's own words, if they are proved."""
    says: CardQuote | None
    asked: FormattedTime | None
    asked_ago: str
    due: FormattedTime | None
    due_in: str
    soon: bool
    silence: str
    timed: tuple[TimedStep, ...]
    diff: EditDiff | None
    preview: PreviewView | None
    votes: tuple[VoteLine, ...]
    assigned: tuple[str, ...]
    """Each hand-on and each added approver, in a sentence."""
    assignable: tuple[tuple[str, str], ...]
    """The ids and names of the possible other approvers."""
    away: tuple[str, ...]
    """Each approver who is away, in a sentence."""
    counted: str
    still: str
    may: str
    decides: bool
    is_eligible: bool
    passkey: bool
    stands_in: str
    own_verdict: str
    own_answer: str
    why_not: str
    edits: bool
    answers: bool
    """Whether the visitor may answer in place of the call."""
    remembers: bool
    example: tuple[str, str] | None
    typed: str
    raw: str
    unseen: str
    opened: bool
    ending: CardEnding | None
    withdraws: bool
    deliveries: tuple[DeliveryLine, ...]
    undo_seconds: float
    similar: SimilarView | None
    thread: tuple[AskedLine, ...]
    unanswered: bool
    asks: int
    taken: str
    """The sentence on the person who has taken it, or ""."""
    take_act: str
    """`take`, `release`, or "" if the visitor can do neither."""


def card_page(
    request: ApprovalRequest,
    args: Any,
    line: CallLine | None,
    visitor: Visitor,
    people: Directory,
    deliveries: tuple[DeliveryLine, ...] = (),
    unopened: int = 0,
    undo_seconds: float = 0.0,
    preview: PreviewView | None = None,
    *,
    first: Sequence[str] = (),
    schema: Mapping[str, Any] = MappingProxyType({}),
    compared: str = "",
    similar: SimilarView | None = None,
    external: bool = False,
    absences: Sequence[Absence] = (),
    taken: TakenRequest | None = None,
    in_room: bool = False,
    editors: Sequence[str] = (),
    wrote: str = "",
    recipients: Mapping[str, str] = MappingProxyType({}),
) -> CardPage:
    """`args` are the loaded arguments, or `None` if unavailable.

    `wrote` is the requester's message. `recipients` are those to mark, as for `mark_new`. `in_room` is whether a room
    shows the request. `editors` edited any revision.

    `unopened` is the number of pages of values that the visitor must still open before an approval. `undo_seconds` is
    the time left to undo the visitor's denial. `first` are the arguments at the top, and `schema` declares all.
    `compared` are the values that made the rule ask. `external` is whether the agent runs elsewhere.
    """
    formatter = visitor.formatter
    language = formatter.language
    eligibility = resolve_eligibility(visitor.person, people, approver_spec_of(request), formatter.now)
    passkey = at_least(request.min_assurance, "present")
    decides = not eligibility.code and at_least(visitor.assurance, "session" if passkey else request.min_assurance)
    pending = request.state == "pending"
    own_verdict = _own_verdict(request, visitor) if pending else ""
    masked = masked_args(args, request.secrets)
    usual = usual_arguments(args, schema)
    drawn = mark_new(value_rows(request, masked, formatter), recipients, masked, formatter)
    keys, rows = key_rows(drawn, request, first, usual)
    is_asked = unanswered(request.messages) is not None
    is_asker = pending and request.kind == "approval" and not eligibility.code
    requester = display_name(people, request.requester.user, request.tenant)
    tool = request.card.tool_title or request.tool
    return CardPage(
        request=request,
        version=version_of(request, line),
        state=state_words(request, language),
        doubt=request.kind == "in_doubt",
        keys=keys,
        rows=rows,
        count=values_count(request) - sum(bool(row.name) for row in keys),
        note=_sentences([remark_text(each, language) for each in request.card.notes]),
        undeclared=undeclared_words(request, language) if pending or (line and line.tone == "live") else "",
        late=late_report_words(request, formatter),
        rule=rule_words(request.rule, request.rule_text, language, tool, compared),
        expression=rule_expression(request.rule, request.rule_text),
        stricter=formatter.stricter_reasons(request.applied),
        requester=requester,
        wrote=_quote(text("card.wrote", language, who=requester), one_line(wrote, WROTE_CHARS).text),
        says=_quote(text("card.says_title", language), request.card.agent_says),
        asked=formatter.moment(request.opened_at) if request.opened_at else None,
        asked_ago=formatter.ago(request.opened_at) if request.opened_at else "",
        due=formatter.moment(request.expires_at) if request.expires_at else None,
        due_in=formatter.until(request.expires_at) if request.expires_at else "",
        soon=request.expires_at is not None and formatter.is_soon(request.expires_at),
        silence=silence_words(request, people, formatter),
        timed=timed_words(request, people, formatter),
        diff=diff_of(request, visitor),
        preview=preview,
        votes=tuple(_vote(vote, request, visitor, people) for vote in request.votes),
        away=_away_words(request, absences, people, formatter) if pending else (),
        assigned=assignment_words(request, language),
        assignable=_assignable(request, visitor, people, editors) if pending and decides else (),
        counted=_count_votes(request, formatter),
        still=_describe_open_seats(request, people, formatter),
        may=who_may(request, people, formatter, answered=True),
        decides=decides,
        is_eligible=not eligibility.code,
        passkey=passkey,
        stands_in=display_name(people, eligibility.on_behalf, request.tenant) if eligibility.on_behalf else "",
        own_verdict=own_verdict,
        own_answer=_describe_own_answer(request, own_verdict, formatter),
        why_not=_why_not(request, eligibility, visitor, people) if pending and not decides else "",
        edits=pending and decides and not own_verdict and request.edit != "off" and not why_no_edit(request, args),
        answers=pending and decides and not unopened and _may_answer(request, visitor, people, editors),
        remembers=pending
        and decides
        and not own_verdict
        and at_least(visitor.assurance, "channel")
        and can_remember(request, visitor.person, people, formatter.now),
        example=_example(request),
        typed=word_to_type(request, visitor) if pending else "",
        raw=_raw(request, args),
        unseen=_unseen(request, unopened, language),
        opened=not unopened,
        ending=None if pending else _describe_end(request, line, visitor, people),
        withdraws=pending and (visitor.person.id == request.requester.user or OPERATOR in visitor.person.roles),
        deliveries=deliveries,
        undo_seconds=undo_seconds,
        similar=similar,
        thread=tuple(_asked_line(each, visitor) for each in request.messages),
        unanswered=pending and is_asked,
        asks=0 if external or is_asked or not is_asker else questions_left(request.messages),
        taken=_describe_holder(request, taken, visitor, people) if pending else "",
        take_act=_take_act(taken, visitor) if pending and in_room and not eligibility.code else "",
    )


def _may_answer(request: ApprovalRequest, visitor: Visitor, people: Directory, editors: Sequence[str]) -> bool:
    """Only for display: the decision itself checks the same rules."""
    if request.answer_schema is None or progress(request).needed > 1:
        return False
    spec = approver_spec_of(as_answerable(request, editors))
    return not resolve_eligibility(visitor.person, people, spec, visitor.formatter.now).code


def _describe_holder(request: ApprovalRequest, taken: TakenRequest | None, visitor: Visitor, people: Directory) -> str:
    if taken is None:
        return ""
    formatter, when = visitor.formatter, visitor.formatter.time(taken.lapses_at)
    if taken.person == visitor.person.id:
        return formatter.text("room.took", when=when)
    return formatter.text("room.taken", who=display_name(people, taken.person, request.tenant), when=when)


def _take_act(taken: TakenRequest | None, visitor: Visitor) -> str:
    if taken is None:
        return "take"
    return "release" if taken.person == visitor.person.id else ""


def _asked_line(message: RequestMessage, visitor: Visitor) -> AskedLine:
    language, by_agent = visitor.formatter.language, message.by == "agent"
    lines = tuple(map(whole_line, message.text.splitlines())) or (text("ask.no_answer", language),)
    named = _name_person(whole_line(message.name or message.subject), message.subject, visitor)
    when = visitor.formatter.moment(message.at) if message.at else None
    return AskedLine(by_agent, text("ask.agent", language) if by_agent else named, lines, when)


def _quote(speaker: str, visible: str) -> CardQuote | None:
    marked = mark_words(visible, suspect_words([visible]))
    shown = tuple(line for line in marked.split(NEWLINE) if line.strip())
    if not shown:
        return None
    start = cut_visible(shown[0], QUOTE_CHARS)
    is_whole = len(shown) == 1 and start == shown[0]
    return CardQuote(speaker, start, () if is_whole else shown)


def _sentences(remarks: Sequence[str]) -> str:
    """A single remark stays unchanged."""
    if len(remarks) < 2:
        return "".join(remarks)
    return " ".join(f"{each[:1].upper()}{each[1:].removesuffix('.')}{_end(each)}" for each in remarks)


def _end(remark: str) -> str:
    return "" if remark.endswith(ELLIPSIS) else "."


def _unseen(request: ApprovalRequest, unopened: int, language: str) -> str:
    """Return "" for a whole card."""
    if request.card.whole:
        return ""
    return text("card.unseen" if unopened else "card.unseen.opened", language)


def version_of(request: ApprovalRequest, line: CallLine | None) -> str:
    """Return a text that changes when a card on a screen becomes wrong."""
    votes = "".join(f"{vote.subject}{vote.verdict}" for vote in (*request.votes, *request.assignments))
    course = f"{request.reminded}{request.escalated:d}{request.extended:d}{request.late_report is not None:d}"
    course += f"{len(request.messages)}"
    return f"{request.revision}-{request.state}-{votes}-{course}-{line.state if line is not None else ''}"


def why_no_edit(request: ApprovalRequest, args: Any) -> str:
    if request.state != "pending":
        return "edit.why.over"
    if request.edit == "off" or request.kind == "in_doubt":
        return "edit.why.policy"
    return "" if isinstance(args, dict) else "edit.why.args"


def word_to_type(request: ApprovalRequest, visitor: Visitor) -> str:
    """Return the text as the visitor sees it on the card, or ""."""
    if not needs_typing(request):
        return ""
    row = row_to_type(request)
    if row is None:
        return show_code(request.code)
    return visitor.formatter.value(row, ()) if is_money(row) else row.value


def _why_not(request: ApprovalRequest, eligibility: Eligibility, visitor: Visitor, people: Directory) -> str:
    own = eligibility.code == "self_approval"
    language = visitor.formatter.language
    if has_handed_on(request, visitor.person, people):
        return text("card.gave", language)
    if not eligibility.code:
        return text(f"card.needs.{request.min_assurance}", language)
    return text("card.own" if own else "card.not_yours", language, who=who_may(request, people, visitor.formatter))


def _vote(vote: Vote, request: ApprovalRequest, visitor: Visitor, people: Directory) -> VoteLine:
    language = visitor.formatter.language
    who = _name_person(vote.name or vote.subject, vote.subject, visitor)
    if vote.on_behalf:
        who = text("card.for_whom", language, who=who, principal=display_name(people, vote.on_behalf, request.tenant))
    words = text(f"doubt.state.{vote.verdict}" if request.kind == "in_doubt" else f"state.{vote.verdict}", language)
    return VoteLine(who, vote.verdict, words, visitor.formatter.moment(vote.at), vote.reason)


def _away_words(
    request: ApprovalRequest, absences: Sequence[Absence], people: Directory, formatter: Formatter
) -> tuple[str, ...]:
    """Leaves out people who may not decide the request, also as people to ask instead."""
    eligible = {each.id: each.name or each.id for each in find_assignable(request, people, formatter.now)}
    away = [each for each in absences if each.person in eligible and is_away(each, request.tool, formatter.now)]
    # The longest absence of a person counts. Only an entered one may name another person.
    longest = {each.person: each for each in sorted(away, key=lambda each: each.until)}
    instead = {each.person: each.to for each in away if each.to in eligible}
    return tuple(
        formatter.text(
            "card.away.to" if each.person in instead else "card.away",
            who=eligible[each.person],
            when=formatter.time(each.until),
            to=eligible.get(instead.get(each.person, ""), ""),
        )
        for each in longest.values()
    )


def _assignable(
    request: ApprovalRequest, visitor: Visitor, people: Directory, editors: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Leaves out people who cannot be asked, although the policy names them."""
    if request.kind != "approval":
        return ()
    votes = (*request.votes, *request.assignments)
    done = {visitor.person.id, request.requester.user, *request.proposers, *editors}
    done |= {vote.subject for vote in votes} | {vote.decision.to for vote in votes}
    found = find_assignable(request, people, visitor.formatter.now)
    return tuple((each.id, each.name or each.id) for each in found if each.id not in done)


def _example(request: ApprovalRequest) -> tuple[str, str] | None:
    rows = (row for row in request.card.rows if row.format in ("number", "integer") and not row.secret and not row.cut)
    return next(((row.name, row.value) for row in rows if row.name.isidentifier()), None)


def _count_votes(request: ApprovalRequest, formatter: Formatter) -> str:
    votes = progress(request)
    if votes.needed < 2:
        return ""
    key = "card.votes_doubt" if request.kind == "in_doubt" else "card.votes"
    return formatter.text(key, n=votes.yes, of=votes.needed)


def _describe_open_seats(request: ApprovalRequest, people: Directory, formatter: Formatter) -> str:
    if request.state != "pending" or not (seats := progress(request).open):
        return ""
    return formatter.text("card.still", groups=groups_words(seats, request, people, formatter))


def _own_verdict(request: ApprovalRequest, visitor: Visitor) -> str:
    own = (vote.verdict for vote in request.votes if vote.subject == visitor.person.id)
    return next(own, "")


def _describe_own_answer(request: ApprovalRequest, verdict: str, formatter: Formatter) -> str:
    if not verdict:
        return ""
    kind = "doubt." if request.kind == "in_doubt" else ""
    votes = progress(request)
    return formatter.text(f"card.own.{kind}{verdict}", n=votes.yes, of=votes.needed)


def _describe_end(request: ApprovalRequest, line: CallLine | None, visitor: Visitor, people: Directory) -> CardEnding:
    language = visitor.formatter.language
    # For a withdrawal the request has only the person's id.
    by = request.decided_by and (request.decided_name or display_name(people, request.decided_by, request.tenant))
    votes = deciding_votes(request)
    named = [(vote.name or display_name(people, vote.subject, request.tenant), vote.subject) for vote in votes]
    who = ", ".join(_name_person(*each, visitor) for each in named or [(by, request.decided_by)])
    doubt = "doubt." if request.kind == "in_doubt" else ""
    key = f"ended.{doubt}{request.state}"
    if not has_text(key):
        key = f"ended.{request.state}"
    if request.state == "cancelled" and who:
        key = "ended.cancelled_by"
    decided = request.state in ("approved", "denied", "answered", "happened")
    return CardEnding(
        state=request.state,
        sentence=text(key, language, who=who or "?"),
        when=visitor.formatter.moment(request.decided_at) if request.decided_at else None,
        where=where_words(request.decided_channel, language) if decided else "",
        reason=reason_words(request, language),
        result=reported_words(request),
        then=line if request.state in ("approved", "lapsed", "happened") else None,
    )


def reported_words(request: ApprovalRequest) -> str:
    """Return the deciding person's report of an unknown outcome, or their answer as JSON. Else ""."""
    if not request.votes or request.state not in ("answered", "happened"):
        return ""
    word = request.votes[-1].decision
    return word.result if request.state == "happened" else whole_line(json.dumps(word.answer, ensure_ascii=False))


def _name_person(name: str, subject: str, visitor: Visitor) -> str:
    return f"{name} ({text('receipt.you', visitor.formatter.language)})" if subject == visitor.person.id else name


def _raw(request: ApprovalRequest, args: Any) -> str:
    shown: dict[str, Any] = {"approval_id": request.id, "revision": request.revision, "tool": request.tool}
    shown["question_hash"] = request.question_hash
    shown["args"] = masked_args(args, request.secrets)
    written = json.dumps(shown, indent=2, ensure_ascii=True)
    return written if len(written) <= RAW_CHARS else written[:RAW_CHARS] + "…"
