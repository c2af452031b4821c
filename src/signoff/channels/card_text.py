"""Writes a card in words, for channels of text.

Text from a model or a person is untrusted: it is kept on one line, invisible characters become marks, and each value is
cut separately. Each channel must escape all of this text for its own markup.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from signoff.approvals.argument_rows import NAME_CHARS
from signoff.approvals.card import NOTE_CHARS
from signoff.approvals.confirmation import needs_typing
from signoff.approvals.quorum import progress
from signoff.channels.envelopes import OutboundCard
from signoff.contracts.approval import ApprovalRequest, CardRow, RequestMessage
from signoff.contracts.decision import Assurance, at_least
from signoff.contracts.ids import show_code
from signoff.contracts.limits import EFFECT_CHARS, REASON_CHARS
from signoff.formats.visible_text import ELLIPSIS, MISSING, cut_visible, one_line
from signoff.languages.catalogue import text
from signoff.languages.remarks import remark_text
from signoff.texts.endings import assignment_words, late_report_words, undeclared_words
from signoff.texts.formatter import Formatter
from signoff.texts.reasons import rule_words

How = Literal["text", "reply", "buttons", "link", "unseen"]
"""How a channel takes answers: a message with the code, a reply to the card, buttons, or only the link.

`unseen`: only a denial, as the card does not show every value.
"""

LEAST_CHARS: Final = 400
"""The least room for a card, in characters."""
_TIGHTER: Final = (120, 60, 24)
_LEAST_EFFECT: Final = 60
_MARK_CHARS: Final = 12
"""More characters than the mark of an invisible one has."""


@dataclass(frozen=True)
class CardLimits:
    """A channel's limits for a card. Raises `ValueError` for a `whole` below `LEAST_CHARS`."""

    whole: int = 20_000
    """Characters of a whole card as text."""
    value: int = 500
    """Characters of one value."""
    says: int = 1_000
    """Characters of the model's own words."""
    rows: int = 60
    """Rows of the card."""

    def __post_init__(self) -> None:
        if self.whole < LEAST_CHARS:
            raise ValueError(f"a card needs room for {LEAST_CHARS} characters, not {self.whole}")


@dataclass(frozen=True)
class CardLine:
    """One argument of a card, or a message between an approver and the agent."""

    label: str
    """The label. "" for remarks."""
    value: str
    note: str = ""
    """The note that the value is cut, with its full length."""

    @property
    def text(self) -> str:
        """Label, value and note on one line."""
        line = f"{self.label}: {self.value}" if self.label else self.value
        return f"{line} ({self.note})" if self.note else line


@dataclass(frozen=True)
class CardWords:
    """The parts of a card, for channels with their own layout.

    `text` is the whole card as plain text. Leave out empty parts. A card that is not `whole` can be denied here, but is
    approved only where every value is shown.
    """

    heading: str
    """The question, in a few words."""
    subject: str
    code: str
    effect: str
    """The sentence on the call's effect."""
    rows: tuple[CardLine, ...]
    note: str
    """The reason for a new revision, or its editor."""
    asked: str
    """The actor and the requester."""
    rule: str
    """The reason for asking."""
    says_lead: str
    says: str
    """The model's own words."""
    counted: str
    """The number of approvals, and the missing approvers."""
    due: str
    more: str
    """The number of other open requests."""
    incomplete: str
    """The sentence that values are missing, with the link. "" if `whole`."""
    how: str
    """How to answer here, or by the link."""
    open: str
    """The sentence with the link. "" if another part has it."""
    link: str
    whole: bool
    """Whether every value is shown."""
    decides: bool
    """Whether the channel takes an answer; otherwise only the link does."""
    approves: bool
    """Whether the channel takes an approval: only if every value is shown."""
    approve: str
    deny: str

    @property
    def text(self) -> str:
        """The card as plain text, in short paragraphs."""
        rows = "\n".join(f"- {row.text}" for row in self.rows)
        says = f"{self.says_lead}\n“{self.says}”" if self.says else ""
        facts = "\n".join(filter(None, (self.note, self.asked, self.rule)))
        course = "\n".join(filter(None, (self.counted, self.due, self.more)))
        ways = "\n".join(filter(None, (self.incomplete, self.how, self.open)))
        first = f"{self.heading} ({self.code})"
        return "\n\n".join(filter(None, (first, self.effect, rows, facts, says, course, ways)))


def card_words(
    card: OutboundCard,
    formatter: Formatter,
    *,
    how: How,
    assurance: Assurance = "channel",
    limits: CardLimits | None = None,
) -> CardWords:
    """Write a card with a `text` of at most `limits.whole` characters.

    `assurance` is the channel's. A card that the channel cannot decide points to the link. If there is no room, values
    are cut shorter, then the model's words and the rule are left out, then the last arguments. `whole` is then False.
    """
    limits = limits or CardLimits()
    if how == "link" or card.kind == "digest" or link_only(card.request, assurance):
        how = "link"
    writer = _Writer(card, formatter, how)
    fitting = (words for words in writer.attempts(limits) if len(words.text) <= limits.whole)
    return next(fitting, None) or writer.least(limits.whole)


def link_only(request: ApprovalRequest, assurance: Assurance) -> bool:
    """Return whether only the link can decide a request, not a channel of this assurance."""
    elsewhere = needs_typing(request) or request.kind == "in_doubt" or request.preview_required
    return elsewhere or not at_least(assurance, request.min_assurance)


def how_words(how: How, request: ApprovalRequest, formatter: Formatter, link: str) -> str:
    language = formatter.language
    words = {"approve": text("word.approve", language), "deny": text("word.deny", language)}
    return text(f"card.how.{how}", language, **words, code=show_code(request.code), link=link)


class _Writer:
    """Writes one card, in ever shorter forms."""

    def __init__(self, card: OutboundCard, formatter: Formatter, how: How) -> None:
        self.card = card
        self.request = card.request
        self.formatter = formatter
        self.how = how

    def attempts(self, limits: CardLimits) -> Iterator[CardWords]:
        rows = min(len(self.request.card.rows), limits.rows)
        yield self.words(limits.value, limits.says, rows, REASON_CHARS)
        for value in (limits.value, *(each for each in _TIGHTER if each < limits.value)):
            yield self.words(value, limits.says, rows)
        # Leave out the model's words before any argument: only the arguments run.
        least = min(limits.value, _TIGHTER[-1])
        yield self.words(least, 0, rows)
        for kept in range(rows, -1, -1):
            yield replace(self.words(least, 0, kept), rule="")

    def least(self, max_chars: int) -> CardWords:
        short = text("card.incomplete_short", self.formatter.language)
        hint = short if self.how == "link" else text("card.incomplete", self.formatter.language, link=self.card.link)
        bare = replace(self.words(0, 0, 0), rows=(), note="", asked="", rule="", counted="", more="", effect=ELLIPSIS)
        # Not whole even for a call without arguments: the requester and the rule are missing.
        how = self.how if self.how == "link" else "unseen"
        how_to_answer = how_words(how, self.request, self.formatter, self.card.link)
        bare = replace(bare, whole=False, approves=False, incomplete=hint, how=how_to_answer, open="")
        # Never cut the address: a cut link is useless.
        fitting = (bare, replace(bare, due=""), replace(bare, due="", incomplete=short, how="", open=""))
        words = next((each for each in fitting if len(each.text) + _LEAST_EFFECT <= max_chars), fitting[-1])
        return replace(words, effect=cut_visible(self.request.card.effect, max_chars - len(words.text)))

    def words(self, value: int, says: int, rows: int, message: int = 0) -> CardWords:
        """`value`, `says` and `message` are numbers of characters. A message has at least `value`."""
        card, request, formatter, language = self.card, self.request, self.formatter, self.formatter.language
        digest = card.kind == "digest"
        messages = map(partial(self.message, max(value, message)), request.messages)
        lines = () if digest else (*self.lines(value, rows), *messages)
        whole = digest or not (any(line.note or not line.label for line in lines))
        heading, code, effect = self.heading(), show_code(request.code), cut_visible(request.card.effect, EFFECT_CHARS)
        how = how_words(self.how if whole or self.how == "link" else "unseen", request, formatter, card.link)
        linked = self.how == "link"
        incomplete = "" if whole else text("card.incomplete", language, link=card.link)
        # `how` already has the link.
        if linked and incomplete:
            incomplete = text("card.incomplete_short", language)
        agent = "" if digest else request.card.agent_says
        return CardWords(
            heading=heading,
            subject=text("card.subject", language, heading=heading, effect=effect, code=code),
            code=code,
            effect=effect,
            rows=lines,
            note=self.note(),
            asked=self.question(),
            rule="" if digest else self.rule(),
            says_lead=text("card.says", language) if agent and says else "",
            says=cut_visible(agent, says) if agent and says else "",
            counted=self.votes(),
            due=self.due(),
            more=text("card.more", language, n=card.more) if card.more else "",
            incomplete=incomplete,
            how=how,
            open="" if linked or incomplete or not card.link else text("card.open", language, link=card.link),
            link=card.link,
            whole=whole,
            decides=not linked,
            approves=not linked and whole,
            approve=text("button.approve", language),
            deny=text("button.deny", language),
        )

    def heading(self) -> str:
        language = self.formatter.language
        if self.card.kind == "digest":
            return text("card.digest", language, n=self.card.more + 1)
        if self.request.kind == "in_doubt":
            return text("card.doubt", language)
        return text("card.remind" if self.card.kind == "remind" else "card.ask", language)

    def lines(self, value: int, rows: int) -> tuple[CardLine, ...]:
        every = self.request.card.rows
        lines = [self.line(row, value) for row in every[:rows]]
        if rows < len(every):
            lines.append(CardLine("", text("card.left_out", self.formatter.language, n=len(every) - rows)))
        return tuple(lines)

    def message(self, limit: int, message: RequestMessage) -> CardLine:
        """Approvers approve the thread, too: a cut message makes the card incomplete."""
        language = self.formatter.language
        who = one_line(message.name or message.subject, NAME_CHARS).text
        label = text("ask.agent", language) if message.by == "agent" else text("ask.person", language, who=who)
        words = message.text or text("ask.no_answer", language)
        whole = one_line(words, _MARK_CHARS * len(words) + 2).text
        shown = cut_visible(whole, limit)
        note = text("card.cut", language, n=len(words)) if len(shown) < len(whole) else ""
        return CardLine(label, f"“{shown}”", note)

    def line(self, row: CardRow, limit: int) -> CardLine:
        value = self.formatter.card_words(row)
        shown = cut_visible(value, limit)
        cut = row.cut or len(shown) < len(value)
        # A row may already be cut; only its `length` has the full length.
        length = max(row.length, len(row.value))
        note = text("card.cut", self.formatter.language, n=length) if cut else ""
        return CardLine(self.formatter.label(row.label or row.name, NAME_CHARS) if row.name else "", shown, note)

    def note(self) -> str:
        report = self.request.late_report
        late = late_report_words(self.request, self.formatter)
        said = f"{late} {cut_visible(report.text, NOTE_CHARS)}".rstrip() if report is not None else ""
        undeclared = undeclared_words(self.request, self.formatter.language)
        preview = self.request.preview is not None and not self.request.preview.fault
        seen = text("card.preview", self.formatter.language) if preview else ""
        assigned = assignment_words(self.request, self.formatter.language)
        return " ".join(filter(None, (self.remark(), *assigned, undeclared, said, seen)))

    def remark(self) -> str:
        request = self.request
        words = cut_visible(remark_text(request.card.notes, self.formatter.language), NOTE_CHARS)
        if request.revision < 2:
            # In a first revision, the notes name the system that runs a call outside of Signoff.
            return "" if request.kind == "in_doubt" else words
        words = words or MISSING
        return text("card.again", self.formatter.language, n=request.revision, note=words)

    def question(self) -> str:
        request = self.request
        who = one_line(request.requester.name or request.requester.user, NAME_CHARS).text
        actor = one_line(request.actor or request.tool, NAME_CHARS).text
        return text("card.asked", self.formatter.language, actor=actor, who=who)

    def rule(self) -> str:
        request = self.request
        tool = request.card.tool_title or request.tool
        words = rule_words(request.rule, request.rule_text, self.formatter.language, tool)
        return " ".join(filter(None, (words, *self.formatter.stricter_reasons(request.applied))))

    def votes(self) -> str:
        votes_so_far = progress(self.request)
        if votes_so_far.needed < 2:
            return ""
        words = self.formatter.text("card.counted", n=votes_so_far.yes, of=votes_so_far.needed)
        return f"{words} {self.formatter.open(votes_so_far.open)}".rstrip()

    def due(self) -> str:
        request, formatter = self.request, self.formatter
        if request.expires_at is None:
            return ""
        extended = request.on_timeout == "escalate" and not request.extended
        key = "card.due.doubt" if request.kind == "in_doubt" else "card.due.extended" if extended else "card.due"
        when = formatter.time(request.expires_at)
        return text(key, formatter.language, when=when, span=formatter.until(request.expires_at))
