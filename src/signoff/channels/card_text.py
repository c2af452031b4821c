"""Writes a card in words, for channels of text: whole sentences in the language of the person.

Nothing here knows a channel. What comes from a model or a person is untrusted: it stands on one line, invisible
characters are marks, and each value is cut on its own. Markup is the channel's: escape all that is said here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from signoff.approvals.argument_rows import NAME_CHARS
from signoff.approvals.card import NOTE_CHARS
from signoff.approvals.confirmation import needs_typing
from signoff.approvals.quorum import progress
from signoff.channels.envelopes import OutboundCard
from signoff.contracts.approval import ApprovalRequest, CardRow
from signoff.contracts.decision import Assurance, at_least
from signoff.contracts.ids import show_code
from signoff.contracts.limits import EFFECT_CHARS
from signoff.formats.visible_text import ELLIPSIS, MISSING, cut_visible, one_line
from signoff.languages.catalogue import text
from signoff.languages.remarks import remark_text
from signoff.texts.endings import late_report_words, undeclared_words
from signoff.texts.formatter import Formatter
from signoff.texts.reasons import rule_words

How = Literal["text", "reply", "buttons", "link", "unseen"]
"""How a channel takes answers: a message with the code, a reply to the card itself, buttons, or only the link; where a
card is not whole, nothing but a no (`unseen`)."""

LEAST_CHARS: Final = 400
"""The least room in which a card says what it has to."""
_TIGHTER: Final = (120, 60, 24)
_LEAST_EFFECT: Final = 60


@dataclass(frozen=True)
class CardLimits:
    """How much a channel has room for, in characters: a whole card as text, one value, the agent's words; and rows.

    Raises `ValueError` for a `whole` below `LEAST_CHARS`.
    """

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
    """One argument of a card."""

    label: str
    """Its label; "" for remarks."""
    value: str
    """Its value."""
    note: str = ""
    """That it is cut, and how long it is."""

    @property
    def text(self) -> str:
        """Returns all of it on one line."""
        line = f"{self.label}: {self.value}" if self.label else self.value
        return f"{line} ({self.note})" if self.note else line


@dataclass(frozen=True)
class CardWords:
    """A card part by part, for channels that lay it out themselves; `text` is all of it as plain text.

    Empty parts are not said. `whole` is False where something of the action is not shown; then `incomplete` says so,
    with the link. `subject` is one line that names it in a list. `decides` is False where only the link can answer, and
    `approves` also where the card is not whole: then it can be denied here, and is approved where all of it is read.
    """

    heading: str
    """What is asked, in a few words."""
    subject: str
    """One line that names it in a list."""
    code: str
    """The short code."""
    effect: str
    """The sentence that says what the call does."""
    rows: tuple[CardLine, ...]
    """The arguments."""
    note: str
    """Why it is asked again, or by whom it was changed."""
    asked: str
    """Who asks."""
    rule: str
    """Why people are asked."""
    says_lead: str
    """The words before `says`."""
    says: str
    """The model's own words."""
    counted: str
    """How many have approved, and who is lacking."""
    due: str
    """When it ends."""
    more: str
    """How many other requests wait."""
    incomplete: str
    """That something is not shown, with the link; "" where `whole`."""
    how: str
    """How to answer here, or by the link."""
    open: str
    """The sentence with the link; "" where another has it."""
    link: str
    """The link to the inbox."""
    whole: bool
    """Whether every value is shown."""
    decides: bool
    """Whether it can be answered here at all."""
    approves: bool
    """Whether it can be approved here: only where all of it is shown."""
    approve: str
    """The word that approves."""
    deny: str
    """The word that denies."""

    @property
    def text(self) -> str:
        """Returns the card as plain text, in short paragraphs."""
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
    """Writes a card; its `text` is at most `limits.whole` characters.

    `how` is how the channel takes answers, and `assurance` the channel's: what it cannot decide says so. Where there is
    no room, values are cut shorter, then the agent's words and the rule go, then the last arguments; `whole` is then
    False.
    """
    limits = limits or CardLimits()
    if how == "link" or card.kind == "digest" or link_only(card.request, assurance):
        how = "link"
    writer = _Writer(card, formatter, how)
    fitting = (words for words in writer.attempts(limits) if len(words.text) <= limits.whole)
    return next(fitting, None) or writer.least(limits.whole)


def link_only(request: ApprovalRequest, assurance: Assurance) -> bool:
    """Returns whether a channel of that assurance cannot decide a request, so that only the link can."""
    elsewhere = needs_typing(request) or request.kind == "in_doubt"
    return elsewhere or not at_least(assurance, request.min_assurance)


def how_words(how: How, request: ApprovalRequest, formatter: Formatter, link: str) -> str:
    """Writes how a request is answered."""
    language = formatter.language
    words = {"approve": text("word.approve", language), "deny": text("word.deny", language)}
    return text(f"card.how.{how}", language, **words, code=show_code(request.code), link=link)


class _Writer:
    """Writes one card, in more and more narrow forms."""

    def __init__(self, card: OutboundCard, formatter: Formatter, how: How) -> None:
        self.card = card
        self.request = card.request
        self.formatter = formatter
        self.how = how

    def attempts(self, limits: CardLimits) -> Iterator[CardWords]:
        """Yields the card in full, then in less and less room."""
        rows = min(len(self.request.card.rows), limits.rows)
        for value in (limits.value, *(each for each in _TIGHTER if each < limits.value)):
            yield self.words(value, limits.says, rows)
        # The agent's words go before any argument does: only arguments run.
        least = min(limits.value, _TIGHTER[-1])
        yield self.words(least, 0, rows)
        for kept in range(rows, -1, -1):
            yield replace(self.words(least, 0, kept), rule="")

    def least(self, max_chars: int) -> CardWords:
        """Writes what is left where even no argument fits: what it is, and that there is more to read."""
        short = text("card.incomplete_short", self.formatter.language)
        hint = short if self.how == "link" else text("card.incomplete", self.formatter.language, link=self.card.link)
        bare = replace(self.words(0, 0, 0), rows=(), note="", asked="", rule="", counted="", more="", effect=ELLIPSIS)
        # Said also of a call without arguments: who asks, and by which rule, is not there.
        how = self.how if self.how == "link" else "unseen"
        how_to_answer = how_words(how, self.request, self.formatter, self.card.link)
        bare = replace(bare, whole=False, approves=False, incomplete=hint, how=how_to_answer, open="")
        # An address that is cut leads nowhere.
        fitting = (bare, replace(bare, due=""), replace(bare, due="", incomplete=short, how="", open=""))
        words = next((each for each in fitting if len(each.text) + _LEAST_EFFECT <= max_chars), fitting[-1])
        return replace(words, effect=cut_visible(self.request.card.effect, max_chars - len(words.text)))

    def words(self, value: int, says: int, rows: int) -> CardWords:
        """Writes the card with `rows` arguments of `value` characters each, and `says` characters of the agent's
        words.
        """
        card, request, formatter, language = self.card, self.request, self.formatter, self.formatter.language
        digest = card.kind == "digest"
        lines = () if digest else self.lines(value, rows)
        whole = digest or not (any(line.note or not line.label for line in lines))
        heading, code, effect = self.heading(), show_code(request.code), cut_visible(request.card.effect, EFFECT_CHARS)
        how = how_words(self.how if whole or self.how == "link" else "unseen", request, formatter, card.link)
        linked = self.how == "link"
        incomplete = "" if whole else text("card.incomplete", language, link=card.link)
        # The link stands in `how` already.
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

    def line(self, row: CardRow, limit: int) -> CardLine:
        value = self.formatter.card_words(row)
        shown = cut_visible(value, limit)
        cut = row.cut or len(shown) < len(value)
        # A row may come cut already; only its own `length` knows how much there was.
        length = max(row.length, len(row.value))
        note = text("card.cut", self.formatter.language, n=length) if cut else ""
        return CardLine(self.formatter.label(row.label or row.name, NAME_CHARS) if row.name else "", shown, note)

    def note(self) -> str:
        report = self.request.late_report
        late = late_report_words(self.request, self.formatter)
        said = f"{late} {cut_visible(report.text, NOTE_CHARS)}".rstrip() if report is not None else ""
        undeclared = undeclared_words(self.request, self.formatter.language)
        return " ".join(filter(None, (self.remark(), undeclared, said)))

    def remark(self) -> str:
        request = self.request
        words = cut_visible(remark_text(request.card.notes, self.formatter.language), NOTE_CHARS)
        if request.revision < 2:
            # Who runs a call that is run outside of Signoff.
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
        words = rule_words(request.rule, request.rule_text, self.formatter.language)
        return " ".join(filter(None, (words, *self.formatter.stricter_reasons(request.applied))))

    def votes(self) -> str:
        request = self.request
        if request.quorum < 2:
            return ""
        found = progress(request)
        words = self.formatter.text("card.counted", n=found.yes, of=found.needed)
        return f"{words} {self.formatter.open(found.open)}".rstrip()

    def due(self) -> str:
        request, formatter = self.request, self.formatter
        if request.expires_at is None:
            return ""
        extended = request.on_timeout == "escalate" and not request.extended
        key = "card.due.doubt" if request.kind == "in_doubt" else "card.due.extended" if extended else "card.due"
        when = formatter.time(request.expires_at)
        return text(key, formatter.language, when=when, span=formatter.until(request.expires_at))
