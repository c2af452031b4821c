"""Parses a written answer: yes, no, or nothing that could be counted on.

A yes is one only if everything that was written anew says so: words of decision, courtesies, greetings, the request's
code and its effect repeated, and nothing else. One word more may be a condition, and whoever asks again loses a minute
where whoever guesses loses money. A no needs less: one clear no, and no yes beside it.

Pure: it knows neither the store nor any channel. What a mail has besides its body is read by
`channels/answer_text/footers.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal

from signoff.channels.answer_text.answer_tokens import LINE_CHARS, AnswerToken, fold, tokens
from signoff.channels.answer_text.answer_vocabulary import (
    ADDRESSED,
    ALIASES,
    APPROVE,
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
from signoff.contracts.decision import Verdict
from signoff.contracts.limits import ANSWER_LINES

READ_CHARS: Final = 64 * 1024
"""What is longer is not read to its end."""
_LONGEST: Final = 6
"""Words of the longest phrase."""
_NAMED: Final = 2
"""Words that a greeting may say to name somebody."""
_UNFINISHED: Final = (",", ":", ";", "-", "\u2013", "\u2014", "\u3001", "\uff0c")
# What some program shows as the end of a line is one here, or a line would be longer than what was seen.
_AGREEING: Final = ("approved", "courtesy")
_POLITE: Final = frozenset(("please", "bitte", "favor", "favore", "piacere", "plait", "svp", "stp"))
_STOPS: Final = frozenset(".!¡。\uff01")
_LINE_ENDS: Final = dict.fromkeys(map(ord, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), "\n")

Why = Literal["", "empty", "question", "more", "two", "unknown"]
"""Why an answer decides nothing: there is nothing, it asks something, a decision has more beside it, it says yes and
no, or it is other words altogether."""
Answer = Literal["approved", "denied"]


@dataclass(frozen=True)
class ParsedAnswer:
    """What was made of a text. `verdict` is None where `why` says so. `code` is a short code as `read_code` gives it.

    `comment` is what stands beside a denial, or the whole text where nothing was decided. `unread` is the first line
    that could be anything, where it alone stands in the way of a yes. `effects` are the codes of the requests whose
    effect was repeated. `footer` is what stood below a sign-off and was not known, or was known only because the code
    was given: see `channels/answer_text/footers.py`.
    """

    verdict: Verdict | None
    code: str = ""
    comment: str = ""
    why: Why = ""
    unread: str = ""
    effects: frozenset[str] = frozenset()
    footer: str = ""


@dataclass(frozen=True)
class AnswerSender:
    """Who wrote an answer, as far as reading it depends on that.

    `names` are what they are called. `effects` are the effects of the requests that are open for them, by code.
    `footers` are the digests of what may stand below their sign-off; `asked` those that they were asked about, each
    with the code of the request that they were answering.
    """

    locale: str = "en"
    names: tuple[str, ...] = ()
    effects: Mapping[str, str] = field(default_factory=dict)
    footers: frozenset[str] = frozenset()
    asked: frozenset[tuple[str, str]] = frozenset()
    sent: tuple[str, ...] = ()
    """The words of the mails that we sent about the card."""
    others: bool = False
    """Whether the message went to other people, too."""


Part = Literal["approved", "denied", "courtesy", "greeting", "addressed", "joint"]


@dataclass(frozen=True)
class AnswerPhrases:
    """The phrases of one language and English, folded."""

    parts: Mapping[str, Part]
    """What each phrase means."""
    commands: frozenset[str]
    """Denials that a reason may follow."""
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
    """The first line with an approval that may be an order to somebody else."""
    others: bool = False
    group: bool = False
    polite: bool = False
    """Whether it says please: to a group that is an order, while `Hi all, approve` answers us."""
    explicit: bool = False
    """Whether an approval was more than a `yes`, which people also say to what they have read."""
    remarks: list[str] = field(default_factory=list)


_USES: Final[Mapping[str, Mapping[str, str]]] = {
    "order": ORDERS,
    "toward": TOWARDS,
    "object": OBJECTS,
    "firm": FIRM,
    "reasoned": REASONED,
    "yes": YES,
}


def parse_answer(text: str, sender: AnswerSender) -> ParsedAnswer:
    """Parses a text that is wholly an answer. Never raises; the work grows with its length alone."""
    answer = read_lines(lines_of(text), sender, cut=len(text) > READ_CHARS)
    if answer.verdict == "approved" and is_unfinished(text):
        return ParsedAnswer(None, answer.code, text.strip(), "more", text.strip()[:LINE_CHARS], answer.effects)
    return answer


def is_unfinished(text: str) -> bool:
    """Returns whether a text ends where its sentence does not: what is still to come may be a condition."""
    return text.rstrip().endswith(_UNFINISHED) and not text.rstrip().endswith(tuple(NAMED_SIGNS))


def lines_of(text: str) -> list[str]:
    """Splits a text into lines, as every program shows them."""
    return text[:READ_CHARS].translate(_LINE_ENDS).strip().split("\n")


def read_lines(lines: Sequence[str], sender: AnswerSender, *, cut: bool = False) -> ParsedAnswer:
    """Parses lines of an answer; where there are more than it reads, nothing decides."""
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
        # `Yes yes` is what people say who do not mean it.
        return unsaid("more")
    if body.order and (body.others or (body.group and body.polite)):
        return unsaid("more", body.order)
    if body.remarks and not body.explicit:
        return unsaid("more", body.remarks[0])
    return ParsedAnswer("approved", code, "\n".join(body.remarks), effects=effects)


def decision_words(locale: str) -> dict[str, Answer]:
    """Returns every phrase that decides for somebody of `locale`, folded: without case and accents."""
    parts = phrases_of(locale).parts
    return {phrase: part for phrase, part in parts.items() if part in ("approved", "denied")}


def phrases_of(locale: str) -> AnswerPhrases:
    """Returns the phrases that somebody of `locale` may use: those of their language, and English."""
    language = locale.replace("_", "-").partition("-")[0].lower()
    return _phrases(ALIASES.get(language, language))


@cache
def reserve_words() -> frozenset[str]:
    """Returns the words of every language by which something may be taken back or limited, folded."""
    return frozenset(fold(word) for words in RESERVE.values() for word in words.split())


def name_words(names: Sequence[str]) -> frozenset[str]:
    """Returns the words of which somebody's names are made, folded."""
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
    # Never all languages at once: what agrees in one denies in another. Their own comes last, so that it wins.
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
    """Folds a phrase as a line with it is read: `s'il te plaît` is three words there too."""
    return " ".join(token.text for token in tokens(phrase) if token.kind == "word")


def _read_line(line: str, phrases: AnswerPhrases, sender: AnswerSender, body: _Body) -> None:
    """Reads one line into `body`."""
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
    # What follows the command and its code is the reason, whatever marks stand in it.
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
    """Adds what a clause says to `body`; returns whether it denies."""
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
    """Returns whether nothing odd stands before the end of a clause, or anywhere if it is not the first."""
    odd = next((at for at, piece in enumerate(pieces) if piece.kind == "odd"), len(pieces))
    ends = next(at for at, piece in enumerate(pieces) if piece is clause[-1])
    pause = any(piece.kind == "pause" for piece in pieces[ends + 1 : odd])
    return odd == len(pieces) or pause


def _sentences(pieces: Sequence[AnswerToken]) -> list[list[AnswerToken]]:
    """Splits a line into sentences, each with the mark at its end."""
    found: list[list[AnswerToken]] = [[]]
    for piece in pieces:
        found[-1].append(piece)
        if piece.kind == "pause" and piece.text in _STOPS:
            found.append([])
    return [sentence for sentence in found if sentence]


def _with_marks(words: Sequence[AnswerToken], sentence: Sequence[AnswerToken]) -> list[AnswerToken]:
    """Adds to the words of a remark the pictures and marks of its sentence, which may say more than they do."""
    return [*words, *(piece for piece in sentence if piece.kind not in ("word", "code"))]


def _clauses(pieces: Sequence[AnswerToken]) -> list[list[AnswerToken]]:
    """Splits the words and codes of a line where it pauses."""
    clauses: list[list[AnswerToken]] = [[]]
    for piece in pieces:
        if piece.kind == "pause":
            clauses.append([])
        elif piece.kind in ("word", "code"):
            clauses[-1].append(piece)
    return [clause for clause in clauses if clause]


@dataclass
class _Clause:
    """What is read of one clause.

    `parts` are its phrases, each once; a second approval ends in a NUL. `whole`: it is made of nothing else.
    `reasoned`: it is a denial and its reason. `others`: it greets a third person, `group`: several. `effects` are the
    codes of the requests whose verb it repeats.
    """

    parts: dict[str, Part] = field(default_factory=dict)
    whole: bool = True
    reasoned: bool = False
    others: bool = False
    group: bool = False
    effects: frozenset[str] = frozenset()


def _parts_of(clause: Sequence[AnswerToken], phrases: AnswerPhrases, sender: AnswerSender, *, first: bool) -> _Clause:
    """Finds the phrases of a clause."""
    read = _Clause()
    found, at = read.parts, 0
    words = [piece.text if piece.kind == "word" else "" for piece in clause]
    own = name_words(sender.names) - reserve_words()
    greeted, names = False, 0
    while at < len(words):
        phrase, part = _phrase_at(words, at, phrases.parts)
        if phrase:
            again = phrase in found and part == "approved"
            found[f"{phrase}\0" if again else phrase] = part or "courtesy"
            # Whom one greets is named only right behind the greeting.
            greeted = part == "greeting" or (greeted and part == "addressed")
            read.whole = read.whole and (part != "addressed" or greeted)
            read.group = read.group or (part == "addressed" and phrase not in OURS)
            at += len(phrase.split())
            # `Yes and` has not been said to its end.
            if part == "joint" and _phrase_at(words, at, phrases.parts)[1] not in ("approved", "denied", "courtesy"):
                read.whole = False
            continue
        # `Yes to K7Q-2FM`.
        if words[at] in phrases.words["toward"] and words[at + 1 : at + 2] == [""] and at:
            at += 1
            continue
        # `Hi Ana Sousa,` names somebody, and so does `hi ana,`; `Hi reduce it,` does not.
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
    """Returns whether a clause is a denial and its reason without a comma, as in `nein zu teuer`."""
    if " ".join(words[:2]) in phrases.words["reasoned"]:
        rest = words[2:]
    elif words[0] in phrases.words["firm"]:
        rest = words[1:]
    else:
        return False
    # `Nein, kein Problem` and `no wait` are no denials.
    return not any(word in reserve_words() or phrases.parts.get(word) in _AGREEING for word in rest) and "" not in rest


def _read_verb(words: list[str], read: _Clause, phrases: AnswerPhrases, sender: AnswerSender) -> None:
    """Takes `book it` for a repeated effect where open requests begin with that verb."""
    at = next((at for at, word in enumerate(words) if word and word not in phrases.parts), len(words))
    if words[at + 1 :] and words[at + 1] in phrases.words["object"] and len(words) == at + 2:
        verbs = {code: next((each.text for each in tokens(effect)), "") for code, effect in sender.effects.items()}
        read.effects = frozenset(code for code, verb in verbs.items() if verb == words[at])
        read.whole = bool(read.effects) and "addressed" not in read.parts.values()


def _phrase_at(words: Sequence[str], at: int, parts: Mapping[str, Part]) -> tuple[str, Part | None]:
    # The longest first: `not approved` is one decision, and no `approved` with something before it.
    for length in range(_LONGEST, 0, -1):
        phrase = " ".join(words[at : at + length])
        part = parts.get(phrase)
        if part is not None:
            return phrase, part
    return "", None


def _without_effects(pieces: Sequence[AnswerToken], sender: AnswerSender) -> tuple[tuple[AnswerToken, ...], set[str]]:
    """Removes from a line the effects of open requests that it repeats word for word; returns whose they are, too."""
    left, found = tuple(pieces), set[str]()
    for code, effect in sender.effects.items():
        wanted = [token.text for token in tokens(effect) if token.kind != "pause"]
        at = _place_of(wanted, left)
        if at is not None:
            left, found = left[: at[0]] + left[at[1] :], found | {code}
    return left, found


def _place_of(wanted: Sequence[str], pieces: Sequence[AnswerToken]) -> tuple[int, int] | None:
    """Finds the words of an effect in a line, in their order and with nothing but pauses between them."""
    solid = [at for at, piece in enumerate(pieces) if piece.kind != "pause"]
    texts = [pieces[at].text for at in solid]
    # One word is no effect repeated: it may be any word.
    if len(wanted) < 2:
        return None
    for start in range(len(texts)):
        if texts[start : start + len(wanted)] == list(wanted):
            return solid[start], solid[start + len(wanted) - 1] + 1
    return None


def _commands(pieces: Sequence[AnswerToken], phrases: AnswerPhrases) -> bool:
    """Returns whether a line begins with a denial and its code, whatever reason follows."""
    words = [piece for piece in pieces if piece.kind in ("word", "code")]
    texts = [piece.text for piece in words]
    for length in range(min(len(texts) - 1, _LONGEST), 0, -1):
        if " ".join(texts[:length]) in phrases.commands:
            return words[length].kind == "code"
    return False


def _keep_reason(
    line: str, pieces: Sequence[AnswerToken], phrases: AnswerPhrases, body: _Body, *, denies: bool, understood: bool
) -> None:
    """Keeps what of a line may be the reason of a denial: all that is not the denial itself."""
    body.no = body.no or denies
    if denies and understood:
        return
    chunks = line.split()
    if denies and _commands(pieces, phrases):
        # As many chunks as the command has words, and its code.
        coded = next(at for at, chunk in enumerate(chunks) if any(t.kind == "code" for t in tokens(chunk)))
        body.reason.append(" ".join(chunks[coded + 1 :]))
    else:
        body.reason.append(line)
