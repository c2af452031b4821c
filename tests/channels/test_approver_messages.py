from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from mail_corpus import mail

from signoff.channels.answer_text.answer_parser import AnswerSender, ParsedAnswer, parse_answer
from signoff.channels.answer_text.footers import read_mail_answer
from signoff.channels.mail.reply_reader import read_mail

MESSAGES: Final = Path(__file__).parent / "data" / "messages.yaml"
SHARE: Final = 0.85
"""The share of plain approvals and denials that a reader must understand, in each language."""


@dataclass(frozen=True)
class Message:
    language: str
    channel: str
    meaning: str
    kind: str
    text: str
    head: str = ""

    def read(self) -> ParsedAnswer:
        sender = AnswerSender(self.language, ("Ana Sousa",), {"K7Q2FM": "Pay 300 EUR to Nordwind GmbH"})
        if self.channel == "chat":
            return parse_answer(self.text, sender)
        answer = read_mail(
            mail(self.text, sender="Ana Sousa <ana@example.org>", more=f"{self.head}\n" if self.head else "")
        )
        if answer.automatic or answer.unclear:
            return ParsedAnswer(None)
        return read_mail_answer(answer.above, answer.below, sender)


def messages() -> Iterator[Message]:
    for language, channels in yaml.safe_load(MESSAGES.read_text()).items():
        for channel, groups in channels.items():
            for group, texts in groups.items():
                meaning, kind = group.rsplit(" ", 1)
                for text in texts:
                    row: dict[str, Any] = text if isinstance(text, dict) else {"text": text}
                    yield Message(language, channel, meaning, kind, **row)


def report() -> tuple[list[str], dict[str, float], str]:
    wrong: list[str] = []
    plain: Counter[str] = Counter()
    understood: Counter[str] = Counter()
    missed: list[str] = []
    for message in messages():
        verdict = message.read().verdict
        line = f"{message.language} {message.channel} {message.meaning} {message.kind}: {message.text!r} -> {verdict}"
        wanted = {"approve": "approved", "deny": "denied"}.get(message.meaning)
        if verdict is not None and verdict != wanted:
            wrong.append(line)
        if wanted is not None and message.kind == "plain":
            plain[message.language] += 1
            understood[message.language] += verdict == wanted
        if wanted is not None and verdict != wanted:
            missed.append(line)
    shares = {language: understood[language] / count for language, count in plain.items()}
    table = "\n".join(f"{language}: {share:.0%} of {plain[language]}" for language, share in shares.items())
    return wrong, shares, "\n".join(("", *wrong, table, *missed))


def test_no_message_is_read_as_a_decision_that_its_writer_did_not_make() -> None:
    wrong, _, table = report()
    assert not wrong, table


def test_most_plain_approvals_and_denials_are_read_in_every_language() -> None:
    assert len(list(messages())) >= 400
    _, shares, table = report()
    assert sorted(shares) == ["de", "en", "es", "fr", "it", "pt"]
    assert all(share >= SHARE for share in shares.values()), table
