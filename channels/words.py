"""What a written answer says: yes, no, or nothing that could be counted on.

Only the first new line decides, and only where it is wholly a word of the person's language or of English, with or
without a code. "Yes, but ..." decides nothing: whoever asks again loses a minute, whoever guesses loses money.
"""

# ruff: noqa: RUF001 (words and marks of many languages)

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from signoff.contracts.decision import Verdict
from signoff.contracts.ids import read_code

READ_CHARS: Final = 64 * 1024
"""What is longer is not read to its end."""
LINE_CHARS: Final = 200
"""No decision is longer; normalising a long run of accents takes time in its square, so longer lines are never."""

Why = Literal["", "empty", "question", "more", "two", "unknown"]
"""Why an answer decides nothing: there is nothing, it asks something, a decision has more beside it, it says yes and
no, or it is other words altogether."""
Answer = Literal["approved", "denied"]


@dataclass(frozen=True)
class Said:
    """What was made of a text. `verdict` is None where `why` says so. `code` is a short code as `read_code` gives it.

    `comment` is what stands beside a decision, or the whole text where there is none.
    """

    verdict: Verdict | None
    code: str = ""
    comment: str = ""
    why: Why = ""


# No single letters and no short forms: what is yes by them in one language is no in another (`j`, `n`, `da`).
_YES: Final[Mapping[str, str]] = {
    "en": "yes",
    "de": "ja",
    "es": "sí",
    "fr": "oui",
    "it": "sì",
    "pt": "sim",
    "nl": "ja",
    "pl": "tak",
    "sv": "ja",
    "da": "ja",
    "nb": "ja",
    "fi": "kyllä",
    "cs": "ano",
    "tr": "evet",
}
_NO: Final[Mapping[str, str]] = {
    "en": "no",
    "de": "nein",
    "es": "no",
    "fr": "non",
    "it": "no",
    "pt": "não",
    "nl": "nee, neen",
    "pl": "nie",
    "sv": "nej",
    "da": "nej",
    "nb": "nei",
    "fi": "ei",
    "cs": "ne",
    "tr": "hayır",
}
_APPROVE: Final[Mapping[str, str]] = {
    "en": "approve, approved, i approve",
    "de": "genehmigen, genehmige, genehmigt, freigeben, freigegeben, ich genehmige, ja genehmigt",
    "es": "aprobar, apruebo, aprueba, aprobado, aprobada, autorizo, autorizado, autorizada",
    "fr": "approuver, approuve, approuvé, approuvée, j'approuve, autoriser, autorisé, autorisée, valider, validé",
    "it": "approvare, approvo, approva, approvato, approvata, autorizzo, autorizzato, autorizzata",
    "pt": "aprovar, aprovo, aprova, aprovado, aprovada, autorizo, autorizado, autorizada",
    "nl": "goedkeuren, goedgekeurd, ik keur goed, akkoord",
    "pl": "zatwierdź, zatwierdzam, zatwierdzone, zatwierdzić, akceptuję, akceptuj",
    "sv": "godkänn, godkänner, godkänd, godkänt, godkänna, jag godkänner",
    "da": "godkend, godkender, godkendt, godkende, jeg godkender",
    "nb": "godkjenn, godkjenner, godkjent, godkjenne, jeg godkjenner",
    "fi": "hyväksy, hyväksyn, hyväksytty, hyväksytään",
    "cs": "schválit, schvaluji, schvaluju, schváleno, schval",
    "tr": "onayla, onaylıyorum, onaylandı, onaylı",
}
_DENY: Final[Mapping[str, str]] = {
    "en": "deny, denied, i deny, reject, rejected, i reject, decline, declined, refuse, refused",
    "de": "ablehnen, ablehne, abgelehnt, lehne ab, ich lehne ab, verweigern, verweigert, nein abgelehnt",
    "es": "rechazar, rechazo, rechaza, rechazado, rechazada, denegar, deniego, denegado, denegada",
    "fr": "refuser, refuse, refusé, refusée, je refuse, rejeter, rejeté, rejetée",
    "it": "rifiutare, rifiuto, rifiuta, rifiutato, rifiutata, respingere, respingo, respingi, respinto, respinta, nega",
    "pt": "rejeitar, rejeito, rejeita, rejeitado, rejeitada, recusar, recuso, recusa, recusado, recusada, negado",
    "nl": "afwijzen, afgewezen, afkeuren, afgekeurd, weigeren, geweigerd, ik weiger",
    "pl": "odrzuć, odrzucam, odrzucone, odrzucić, odmawiam, odmów",
    "sv": "avslå, avslår, avslag, avslaget, neka, nekar, nekad, nekat, jag avslår",
    "da": "afvis, afviser, afvist, afvise, jeg afviser",
    "nb": "avslå, avslår, avslått, avvis, avviser, avvist, jeg avslår, jeg avviser",
    "fi": "hylkää, hylkään, hylätty, hylätään",
    "cs": "zamítnout, zamítám, zamítnuto, zamítni, odmítám, odmítnout",
    "tr": "reddet, reddediyorum, reddedildi",
}
_ALIASES: Final[Mapping[str, str]] = {"no": "nb", "nn": "nb"}
_NOT_ENGLISH: Final[Mapping[str, frozenset[str]]] = {
    # There they begin a sentence with it, or even agree by it.
    "pl": frozenset(("no",)),
    "cs": frozenset(("no",)),
    "fi": frozenset(("no",)),
}
LANGUAGES: Final = tuple(_YES)
_LONGEST: Final = 3
"""Words of the longest decision."""
_PRAISE: Final = frozenset("👍✅✔☑🆗👌")
_BLAME: Final = frozenset("👎❌🚫⛔✖🛑❎🙅🤔")
_OPENING: Final = frozenset("\"'*_“”„«»‹›‘’([{¡/")
_CLOSING: Final = frozenset("\"'*_“”„«»‹›‘’)]}.!,;:…。！")
_HIDDEN: Final = frozenset(("Cf", "Cc", "Mn", "Me", "So", "Sk", "Zs", "Zl", "Zp"))
# The last is the Greek one, which NFKC makes a semicolon: what asks must not become what ends a sentence.
_QUESTION: Final = frozenset("?¿？؟;⁇⁈⁉\u037e")
# Keyboards and mail programs put one of these where a code has a hyphen.
_DASHES: Final = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-")
# What some program shows as the end of a line is one here, or the first line would be longer than what was seen.
_LINE_ENDS: Final = dict.fromkeys(map(ord, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), "\n")


@dataclass(frozen=True)
class _Words:
    """The words of one language and English, folded. `commands` may be followed by a code and then a reason."""

    verdicts: Mapping[str, Answer]
    commands: frozenset[str]


def read(text: str, locale: str) -> Said:
    """What `text`, newly written by somebody of `locale`, says. Never raises; the work grows with its length alone."""
    text = text[:READ_CHARS].translate(_LINE_ENDS).strip()
    words = _words(_language(locale))
    # What stands further down may be a quotation, or somebody's signature: it can only take a decision back.
    first, _, rest = text.partition("\n")
    said = _of_line(first.strip(), words)
    if said.verdict is None:
        return Said(None, said.code, text, said.why)
    if _goes_on(first, rest):
        return Said(None, said.code, text, "more")
    if _contradicted(rest, said.verdict, words):
        return Said(None, said.code, text, "two")
    return Said(said.verdict, said.code, f"{said.comment}\n{rest}".strip())


def decision_words(locale: str) -> dict[str, Answer]:
    """Every word that decides for somebody of `locale`, as it is compared: without case and accents."""
    return dict(_words(_language(locale)).verdicts)


def readable(line: str) -> bool:
    """Whether a line is short enough to be looked at closely."""
    return len(line) <= LINE_CHARS


def _of_line(line: str, words: _Words) -> Said:
    """What one line says by itself; `comment` is what follows a command and its code."""
    if not line:
        return Said(None, why="empty")
    tokens = line[:LINE_CHARS].split()
    # The longest first: `nein abgelehnt` is one decision, and no `nein` with something beside it.
    for length in range(min(len(tokens), _LONGEST + 1), 0, -1):
        head = _bare(" ".join(tokens[:length]))
        verdict = words.verdicts.get(head)
        if verdict is not None:
            return _with_rest(line, tokens, length, verdict, head in words.commands, words)
    code = _code(tokens[0])
    if code and 1 < len(tokens) <= _LONGEST + 1 and readable(line):
        verdict = words.verdicts.get(_bare(" ".join(tokens[1:])))
        if verdict is not None:
            return _agreeing(line, Said(verdict, code))
    if readable(line) and not _QUESTION.isdisjoint(line):
        return Said(None, _code_in(tokens), why="question")
    return Said(None, _code_in(tokens), why="unknown")


def _with_rest(line: str, tokens: list[str], length: int, verdict: Answer, command: bool, words: _Words) -> Said:
    """A line that begins with a decision word of `length` tokens."""
    code = _code(tokens[length]) if length < len(tokens) else ""
    reason = " ".join(line.split()[length + bool(code) :])
    if not reason:
        return _agreeing(line, Said(verdict, code)) if readable(line) else Said(None, code, why="more")
    bare = [_bare(token) for token in tokens]
    others = {words.verdicts.get(word) for word in bare} - {None, verdict}
    if others:
        return Said(None, code, why="two")
    certain = _QUESTION.isdisjoint(" ".join(tokens[: length + 1]))
    if code and command and certain and verdict == "denied" and not _code_in(tokens[length + 1 :], sure=True):
        # To deny is safe and wants a reason; what follows an approval could be a condition.
        return Said(verdict, code, reason)
    if readable(line) and not any(_bare(token) for token in tokens[length + bool(code) :]):
        return _agreeing(line, Said(verdict, code))
    asks = readable(line) and not _QUESTION.isdisjoint(line)
    return Said(None, code, why="question" if asks else "more")


def _agreeing(line: str, said: Said) -> Said:
    """`said`, unless its line asks, or shows a sign that says the opposite."""
    if not _QUESTION.isdisjoint(line):
        return Said(None, said.code, why="question")
    against = _BLAME if said.verdict == "approved" else _PRAISE
    return said if against.isdisjoint(line) else Said(None, said.code, why="two")


def _goes_on(first: str, rest: str) -> bool:
    """Whether the next line goes on with the sentence: `yes,` and below it `but only today`."""
    return first.rstrip().endswith((",", ":", ";", "-", "–", "—", "...", "…")) and rest[:1].islower()


def _contradicted(rest: str, verdict: Verdict, words: _Words) -> bool:
    """Whether another line, by itself, says the opposite."""
    for line in rest.split("\n"):
        if line and readable(line) and not line.isspace():
            other = words.verdicts.get(_bare(line))
            if other not in (None, verdict):
                return True
    return False


def _code(token: str) -> str:
    """The short code that a token is, in any spelling; else nothing."""
    plain = unicodedata.normalize("NFKC", token).translate(_DASHES).strip("#()[]{}<>\"'*_.,:;!?“”„«»‘’")
    return (read_code(plain) or "") if len(plain) in (6, 7) and plain.isascii() else ""


def _code_in(tokens: list[str], *, sure: bool = False) -> str:
    """The one code among `tokens`; `sure` counts only those with a hyphen or a digit, which no word has."""
    found = {code for token in tokens if (code := _code(token)) and _looks_like_one(token)}
    return found.pop() if len(found) == 1 or (sure and found) else ""


def _looks_like_one(token: str) -> bool:
    return any(char.isdigit() for char in token) or "-" in token.translate(_DASHES)[1:-1]


@cache
def _words(language: str) -> _Words:
    verdicts: dict[str, Answer] = {}
    commands: set[str] = set()
    tables: tuple[tuple[Mapping[str, str], Answer, bool], ...] = (
        (_YES, "approved", False),
        (_NO, "denied", False),
        (_APPROVE, "approved", True),
        (_DENY, "denied", True),
    )
    # Never all languages at once: what agrees in one denies in another. Their own comes last, so that it wins.
    for spoken in dict.fromkeys(("en", language)):
        for table, verdict, command in tables:
            for word in table.get(spoken, "").split(", "):
                folded = _bare(word)
                if not folded or (spoken == "en" and folded in _NOT_ENGLISH.get(language, ())):
                    continue
                verdicts[folded] = verdict
                if command:
                    commands.add(folded)
    return _Words(verdicts, frozenset(commands))


def _language(locale: str) -> str:
    language = locale.replace("_", "-").partition("-")[0].lower()
    return _ALIASES.get(language, language)


def _bare(line: str) -> str:
    """A short line as words are compared: one case, no accents, and without what stands around it.

    `~`, `>` and a leading `-` or `!` stay: what is struck out, quoted or negated is no decision.
    """
    # Folding case may leave what is not in normal form any more (Unicode, section 3.13), so that is done again.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", line).casefold())
    start, end = 0, len(folded)
    while start < end and (folded[start] in _OPENING or unicodedata.category(folded[start]) in _HIDDEN):
        start += 1
    while end > start and (folded[end - 1] in _CLOSING or unicodedata.category(folded[end - 1]) in _HIDDEN):
        end -= 1
    # Python folds by no language: Turkish `HAYIR` becomes `hayir`, while its small letter without a dot stays.
    plain = unicodedata.normalize("NFD", folded[start:end].replace("ı", "i").replace("’", "'"))
    return " ".join("".join(char for char in plain if unicodedata.category(char) != "Mn").split())
