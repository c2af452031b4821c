"""Parses a written answer: an approval, a denial, a question to the agent, or neither.

An answer approves only if its new text consists of decision words, courtesies, greetings, the request's code and its
repeated effect. Any further word may be a condition: a question back costs a minute, a wrong guess costs money. A
denial needs less: one clear denial and no approval. A question needs its word and a colon, or its word and a code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, Literal

from signoff.channels.answer_text.answer_tokens import LINE_CHARS, AnswerToken, fold, tokens
from signoff.channels.answer_text.answer_vocabulary import (
    ADDRESSED,
    ALIASES,
    APPROVE,
    ASK,
    COURTESIES,
    DENY,
    FIRM,
    GREETINGS,
    JOINTS,
    NAMED_SIGNS,
    NO,
    NOT_ENGLISH,
    OBJECTS,
    ORDERS,
    OURS,
    PRAISE,
    REASONED,
    TOWARDS,
    YES,
)
from signoff.channels.answer_text.approval_remarks import RESERVE, is_remark
from signoff.channels.answer_text.asked_words import find_question
from signoff.contracts.decision import Verdict
from signoff.contracts.limits import ANSWER_LINES

READ_CHARS: Final = 64 * 1024
"""Longer texts are cut here and decide nothing."""
_LONGEST: Final = 6
"""Words of the longest phrase."""
_NAMED: Final = 2
"""The most words of a name that a greeting may contain."""
_UNFINISHED: Final = (",", ":", ";", "-", "\u2013", "\u2014", "\u3001", "\uff0c")
_AGREEING: Final = ("approved", "courtesy")
_POLITE: Final = frozenset(("please", "bitte", "favor", "favore", "piacere", "plait", "svp", "stp"))
_STOPS: Final = frozenset(".!¡。\uff01")
# Treat every character that some program shows as a line end as one. Otherwise a line would be longer than the writer
# saw.
_LINE_ENDS: Final = dict.fromkeys(map(ord, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), "\n")

Why = Literal["", "empty", "question", "more", "two", "unknown"]
"""Why an answer decides nothing.

`empty`: no text. `question`: it asks something. `more`: a decision with other text. `two`: it approves and denies.
`unknown`: other words altogether.
"""
Answer = Literal["approved", "denied"]


@dataclass(frozen=True)
class ParsedAnswer:
    """The meaning of a text.

    `verdict` is None where `why` gives a reason. `comment` is the text next to a decision, or the whole text if nothing
    was decided. `unread` is the first line of unknown meaning, if that alone prevents an approval. `effects` are the
    codes of the requests whose effect the answer repeats. `footer` is text outside the answer that was unknown, or
    known only because the answer had the code: see `channels/answer_text/footers.py`.
    """

    verdict: Verdict | None
    code: str = ""
    comment: str = ""
    why: Why = ""
    unread: str = ""
    effects: frozenset[str] = frozenset()
    footer: str = ""
    question: str = ""
    """A question to the agent. Then `verdict` is None, and `why` is ""."""


@dataclass(frozen=True)
class AnswerSender:
    """The facts about an answer's author on which its meaning depends.

    `effects` maps the codes of the author's open requests to their effects. `footers` are the digests of the blocks
    that may stand below the author's sign-off. `asked` are the digests of blocks that the author was asked about, each
    with the code of the request that the author was answering.
    """

    locale: str = "en"
    names: tuple[str, ...] = ()
    effects: Mapping[str, str] = field(default_factory=dict)
    footers: frozenset[str] = frozenset()
    asked: frozenset[tuple[str, str]] = frozenset()
    sent: tuple[str, ...] = ()
    """The words of the emails that Signoff sent about the card."""
    others: bool = False
    """Whether the message also went to other people."""


Part = Literal["approved", "denied", "courtesy", "greeting", "addressed", "joint"]


@dataclass(frozen=True)
class AnswerPhrases:
    """The phrases of one language and English, folded."""

    parts: Mapping[str, Part]
    commands: frozenset[str]
    """Denials after which a code and a reason may follow."""
    words: Mapping[str, frozenset[str]]
    """Further words by their use: see `_USES`."""


@dataclass
class _Body:
    """Collects findings while a body is read."""

    yes: list[str] = field(default_factory=list)
    no: bool = False
    no_anywhere: bool = False
    asks: bool = False
    good: bool = False
    bad: bool = False
    unread: str = ""
    codes: dict[str, None] = field(default_factory=dict)
    effects: set[str] = field(default_factory=set)
    reason: list[str] = field(default_factory=list)
    order: str = ""
    """The first line with an approval that may be an order to another person."""
    others: bool = False
    group: bool = False
    polite: bool = False
    """Whether it says please. To a group that is an order; `Hi all, approve` is an answer to Signoff."""
    explicit: bool = False
    """Whether an approval was more than a `yes`, which people also write after merely reading a message."""
    remarks: list[str] = field(default_factory=list)


_USES: Final[Mapping[str, Mapping[str, str]]] = {
    "order": ORDERS,
    "toward": TOWARDS,
    "object": OBJECTS,
    "firm": FIRM,
    "reasoned": REASONED,
    "yes": YES,
    "ask": ASK,
}


def parse_answer(text: str, sender: AnswerSender) -> ParsedAnswer:
    """Parse a text that is wholly an answer. Never raises; the work grows only with the length."""
    answer = read_lines(lines_of(text), sender, cut=len(text) > READ_CHARS)
    if answer.verdict == "approved" and is_unfinished(text):
        return ParsedAnswer(None, answer.code, text.strip(), "more", text.strip()[:LINE_CHARS], answer.effects)
    return answer


def is_unfinished(text: str) -> bool:
    """Return whether a text ends in the middle of a sentence: the missing rest may be a condition."""
    return text.rstrip().endswith(_UNFINISHED) and not text.rstrip().endswith(tuple(NAMED_SIGNS))


def lines_of(text: str) -> list[str]:
    """Split the first `READ_CHARS` of a text at every character that some program shows as a line end."""
    return text[:READ_CHARS].translate(_LINE_ENDS).strip().split("\n")


def read_lines(lines: Sequence[str], sender: AnswerSender, *, cut: bool = False) -> ParsedAnswer:
    """Lines that are `cut`, or more than `ANSWER_LINES`, decide nothing."""
    answer = _read_decision(lines, sender, cut=cut)
    if answer.verdict == "approved" or cut or len(lines) > ANSWER_LINES:
        return answer
    found = find_question(lines, phrases_of(sender.locale).words["ask"], sender.effects)
    if found is None:
        return answer
    if answer.verdict == "denied":
        # `ask: No, which invoice?` may correct an earlier question.
        denies = any(_is_only_denial(line, sender) for line in found.lines[1:])
        return answer if denies else ParsedAnswer(None, answer.code, "\n".join(lines).strip(), "two")
    # Without a code, a message to several people may ask another of them.
    if not found.clear or (sender.others and not found.code):
        return answer
    # A decision behind the word is no question.
    rest = _read_decision(found.lines, sender)
    if rest.verdict is not None or rest.why == "two":
        return replace(answer, why="two")
    return ParsedAnswer(None, found.code, answer.comment, effects=answer.effects, question=found.text)


def _is_only_denial(line: str, sender: AnswerSender) -> bool:
    # `No. 471` is a number.
    body = _Body(others=sender.others)
    if line:
        _read_line(line, phrases_of(sender.locale), sender, body)
    return body.no and not body.unread and not any(map(str.isdecimal, body.codes))


def _read_decision(lines: Sequence[str], sender: AnswerSender, *, cut: bool = False) -> ParsedAnswer:
    text = "\n".join(lines).strip()
    phrases = phrases_of(sender.locale)
    body = _Body(others=sender.others)
    for line in lines[:ANSWER_LINES]:
        if line.strip():
            _read_line(line.strip(), phrases, sender, body)
    code = next(iter(body.codes)) if len(body.codes) == 1 else ""
    effects = frozenset(body.effects)

    def unsaid(why: Why, unread: str = "") -> ParsedAnswer:
        return ParsedAnswer(None, code, text, why, unread, effects)

    if cut or len(lines) > ANSWER_LINES:
        return unsaid("more")
    if body.asks and not body.no:
        return unsaid("question")
    if body.yes and (body.no_anywhere or body.bad):
        return unsaid("two")
    if body.no and body.good:
        return unsaid("two")
    if body.no and len(body.codes) < 2:
        return ParsedAnswer("denied", code, "\n".join(body.reason).strip(), effects=effects)
    if not text:
        return unsaid("empty")
    if not body.yes:
        return unsaid("more" if body.no_anywhere else "unknown")
    if body.unread:
        return unsaid("more", body.unread)
    if len(set(body.yes)) < len(body.yes) or len(body.codes) > 1:
        # `Yes yes` is often ironic.
        return unsaid("more")
    if body.order and (body.others or (body.group and body.polite)):
        return unsaid("more", body.order)
    if body.remarks and not body.explicit:
        return unsaid("more", body.remarks[0])
    return ParsedAnswer("approved", code, "\n".join(body.remarks), effects=effects)


def decision_words(locale: str) -> dict[str, Answer]:
    """Return every phrase that decides in `locale`, folded: without case and accents."""
    parts = phrases_of(locale).parts
    return {phrase: part for phrase, part in parts.items() if part in ("approved", "denied")}


def phrases_of(locale: str) -> AnswerPhrases:
    """English counts in every locale."""
    language = locale.replace("_", "-").partition("-")[0].lower()
    return _phrases(ALIASES.get(language, language))


@cache
def reserve_words() -> frozenset[str]:
    """Return the words of all languages that may retract or limit an approval, folded."""
    return frozenset(fold(word) for words in RESERVE.values() for word in words.split())


def name_words(names: Sequence[str]) -> frozenset[str]:
    pieces = (piece.strip(".,;:()\"'") for name in names for piece in name[:LINE_CHARS].replace("-", " ").split())
    return frozenset(filter(None, map(fold, pieces)))


@cache
def _phrases(language: str) -> AnswerPhrases:
    parts: dict[str, Part] = {}
    commands: set[str] = set()
    tables: tuple[tuple[Mapping[str, str], Part], ...] = (
        (JOINTS, "joint"),
        (ADDRESSED, "addressed"),
        (COURTESIES, "courtesy"),
        (GREETINGS, "greeting"),
        (YES, "approved"),
        (NO, "denied"),
        (APPROVE, "approved"),
        (DENY, "denied"),
    )
    # Never use all languages at once: a word that approves in one denies in another. The person's own language
    # overwrites English.
    for spoken in dict.fromkeys(("en", language)):
        for table, part in tables:
            for phrase in table.get(spoken, "").split(", "):
                folded = _folded(phrase)
                if not folded or (spoken == "en" and folded in NOT_ENGLISH.get(language, ())):
                    continue
                parts[folded] = part
                if table is DENY:
                    commands.add(folded)
    words = {
        use: frozenset(_folded(each) for spoken in ("en", language) for each in table.get(spoken, "").split(", "))
        for use, table in _USES.items()
    }
    return AnswerPhrases(parts, frozenset(commands), words)


def _folded(phrase: str) -> str:
    """Fold a phrase with the tokenizer of lines, so that `s'il te plaît` becomes the same three words."""
    return " ".join(token.text for token in tokens(phrase) if token.kind == "word")


def _read_line(line: str, phrases: AnswerPhrases, sender: AnswerSender, body: _Body) -> None:
    pieces = tokens(line, sender.effects)
    asks = any(piece.kind == "ask" for piece in pieces)
    pieces, repeated = _without_effects(pieces, sender)
    body.effects |= repeated
    clean = not asks and not any(piece.kind == "odd" for piece in pieces)
    understood, denies = clean, False
    remarks = False
    for sentence in _sentences(pieces):
        clauses = _clauses(sentence)
        left: list[AnswerToken] = []
        for clause in clauses:
            read = _parts_of(clause, phrases, sender, first=clause is clauses[0])
            denies = _note_clause(line, read, phrases, body, plain=not asks and _is_plain(clause, pieces)) or denies
            if not read.whole or left:
                left += clause
        if left and body.yes and not body.unread and is_remark(_with_marks(left, sentence), sender.effects):
            remarks = True
        elif left:
            understood = False
    # All text after the command and its code is the reason, including any odd marks.
    plain = not asks and not any(piece.kind == "odd" for piece in pieces[:1])
    denies = denies or (plain and _commands(pieces, phrases))
    body.asks = body.asks or asks
    praised = any(piece.kind == "good" and piece.text in PRAISE for piece in pieces)
    body.good = body.good or (praised and (denies or not any(piece.kind == "word" for piece in pieces)))
    body.bad = body.bad or any(piece.kind == "bad" for piece in pieces)
    body.codes |= {piece.text: None for piece in pieces if piece.kind == "code"}
    if not understood and not body.unread:
        body.unread = line
    elif remarks:
        body.remarks.append(line)
    _keep_reason(line, pieces, phrases, body, denies=denies, understood=understood and not remarks)


def _note_clause(line: str, read: "_Clause", phrases: AnswerPhrases, body: _Body, *, plain: bool) -> bool:
    """Add a clause to `body`; return whether it denies."""
    approvals = [phrase for phrase, part in read.parts.items() if part == "approved"]
    denied = "denied" in read.parts.values()
    body.yes += approvals
    body.yes += [phrase for phrase in read.parts if phrase.endswith("\0")]
    body.no_anywhere = body.no_anywhere or denied
    body.others = body.others or read.others
    body.group = body.group or read.group
    body.polite = body.polite or any(_POLITE & set(phrase.split()) for phrase in read.parts)
    body.explicit = body.explicit or any(phrase not in phrases.words["yes"] for phrase in approvals)
    body.effects |= read.effects
    if not body.order and any(phrase in phrases.words["order"] for phrase in approvals):
        body.order = line
    return plain and denied and (read.whole or read.reasoned)


def _is_plain(clause: Sequence[AnswerToken], pieces: Sequence[AnswerToken]) -> bool:
    """Return whether the line has nothing odd, or a pause separates the clause from the first odd piece."""
    odd = next((at for at, piece in enumerate(pieces) if piece.kind == "odd"), len(pieces))
    ends = next(at for at, piece in enumerate(pieces) if piece is clause[-1])
    pause = any(piece.kind == "pause" for piece in pieces[ends + 1 : odd])
    return odd == len(pieces) or pause


def _sentences(pieces: Sequence[AnswerToken]) -> list[list[AnswerToken]]:
    sentences: list[list[AnswerToken]] = [[]]
    for piece in pieces:
        sentences[-1].append(piece)
        if piece.kind == "pause" and piece.text in _STOPS:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def _with_marks(words: Sequence[AnswerToken], sentence: Sequence[AnswerToken]) -> list[AnswerToken]:
    """Add the emoji and marks of a sentence to the words of its remark: they may change its meaning."""
    return [*words, *(piece for piece in sentence if piece.kind not in ("word", "code"))]


def _clauses(pieces: Sequence[AnswerToken]) -> list[list[AnswerToken]]:
    clauses: list[list[AnswerToken]] = [[]]
    for piece in pieces:
        if piece.kind == "pause":
            clauses.append([])
        elif piece.kind in ("word", "code"):
            clauses[-1].append(piece)
    return [clause for clause in clauses if clause]


@dataclass
class _Clause:
    """The meaning of one clause.

    `parts` are its phrases, each once; a repeated approval ends in a NUL. `whole`: it has nothing else. `reasoned`: it
    is a denial and its reason. `others`: it greets a third person. `group`: it greets a group. `effects` are the codes
    of the requests whose verb it repeats.
    """

    parts: dict[str, Part] = field(default_factory=dict)
    whole: bool = True
    reasoned: bool = False
    others: bool = False
    group: bool = False
    effects: frozenset[str] = frozenset()


def _parts_of(clause: Sequence[AnswerToken], phrases: AnswerPhrases, sender: AnswerSender, *, first: bool) -> _Clause:
    read = _Clause()
    parts, at = read.parts, 0
    words = [piece.text if piece.kind == "word" else "" for piece in clause]
    own = name_words(sender.names) - reserve_words()
    greeted, names = False, 0
    while at < len(words):
        phrase, part = _phrase_at(words, at, phrases.parts)
        if phrase:
            again = phrase in parts and part == "approved"
            parts[f"{phrase}\0" if again else phrase] = part or "courtesy"
            # A name counts only directly after the greeting.
            greeted = part == "greeting" or (greeted and part == "addressed")
            read.whole = read.whole and (part != "addressed" or greeted)
            read.group = read.group or (part == "addressed" and phrase not in OURS)
            at += len(phrase.split())
            # `Yes and` is unfinished.
            if part == "joint" and _phrase_at(words, at, phrases.parts)[1] not in ("approved", "denied", "courtesy"):
                read.whole = False
            continue
        # `Yes to K7Q-2FM`.
        if words[at] in phrases.words["toward"] and words[at + 1 : at + 2] == [""] and at:
            at += 1
            continue
        # `Hi Ana Sousa,` and `hi ana,` name a person; `Hi reduce it,` does not.
        named = greeted and first and words[at].isalpha() and words[at] not in reserve_words()
        named = named and names < _NAMED and (clause[at].capital or len(words) == at + 1 == 2)
        names += named
        read.others = read.others or (named and words[at] not in own)
        read.whole = read.whole and (not words[at] or words[at] in own or named)
        at += 1
    read.reasoned = _is_reasoned(words, phrases)
    if not read.whole and not read.reasoned:
        _read_verb(words, read, phrases, sender)
    return read


def _is_reasoned(words: Sequence[str], phrases: AnswerPhrases) -> bool:
    """Return whether a clause is a denial and its reason without a comma, as in `nein zu teuer`."""
    if " ".join(words[:2]) in phrases.words["reasoned"]:
        rest = words[2:]
    elif words[0] in phrases.words["firm"]:
        rest = words[1:]
    else:
        return False
    # `Nein, kein Problem` and `no wait` do not deny.
    return not any(word in reserve_words() or phrases.parts.get(word) in _AGREEING for word in rest) and "" not in rest


def _read_verb(words: list[str], read: _Clause, phrases: AnswerPhrases, sender: AnswerSender) -> None:
    """Treat `book it` as a repeated effect of the open requests that begin with that verb."""
    at = next((at for at, word in enumerate(words) if word and word not in phrases.parts), len(words))
    if words[at + 1 :] and words[at + 1] in phrases.words["object"] and len(words) == at + 2:
        verbs = {code: next((each.text for each in tokens(effect)), "") for code, effect in sender.effects.items()}
        read.effects = frozenset(code for code, verb in verbs.items() if verb == words[at])
        read.whole = bool(read.effects) and "addressed" not in read.parts.values()


def _phrase_at(words: Sequence[str], at: int, parts: Mapping[str, Part]) -> tuple[str, Part | None]:
    # Try the longest first: `not approved` is one phrase, not `approved` with a word before it.
    for length in range(_LONGEST, 0, -1):
        phrase = " ".join(words[at : at + length])
        part = parts.get(phrase)
        if part is not None:
            return phrase, part
    return "", None


def _without_effects(pieces: Sequence[AnswerToken], sender: AnswerSender) -> tuple[tuple[AnswerToken, ...], set[str]]:
    """Remove the effects of open requests that a line repeats word for word. Returns those requests' codes, too."""
    left, codes = tuple(pieces), set[str]()
    for code, effect in sender.effects.items():
        wanted = [token.text for token in tokens(effect) if token.kind != "pause"]
        at = _place_of(wanted, left)
        if at is not None:
            left, codes = left[: at[0]] + left[at[1] :], codes | {code}
    return left, codes


def _place_of(wanted: Sequence[str], pieces: Sequence[AnswerToken]) -> tuple[int, int] | None:
    """Find the words of an effect, in order and with only pauses between them."""
    solid = [at for at, piece in enumerate(pieces) if piece.kind != "pause"]
    texts = [pieces[at].text for at in solid]
    # A single word may have another meaning.
    if len(wanted) < 2:
        return None
    for start in range(len(texts)):
        if texts[start : start + len(wanted)] == list(wanted):
            return solid[start], solid[start + len(wanted) - 1] + 1
    return None


def _commands(pieces: Sequence[AnswerToken], phrases: AnswerPhrases) -> bool:
    """Recognise a line that begins with a denial and its code. Any reason may follow."""
    words = [piece for piece in pieces if piece.kind in ("word", "code")]
    texts = [piece.text for piece in words]
    for length in range(min(len(texts) - 1, _LONGEST), 0, -1):
        if " ".join(texts[:length]) in phrases.commands:
            return words[length].kind == "code"
    return False


def _keep_reason(
    line: str, pieces: Sequence[AnswerToken], phrases: AnswerPhrases, body: _Body, *, denies: bool, understood: bool
) -> None:
    """Keep all of a line except the denial itself as a possible reason."""
    body.no = body.no or denies
    if denies and understood:
        return
    chunks = line.split()
    if denies and _commands(pieces, phrases):
        # The reason follows the chunk with the code.
        coded = next(at for at, chunk in enumerate(chunks) if any(t.kind == "code" for t in tokens(chunk)))
        body.reason.append(" ".join(chunks[coded + 1 :]))
    else:
        body.reason.append(line)
