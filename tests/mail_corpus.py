import base64
import quopri
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from signoff.channels.answer_text.answer_parser import AnswerSender, ParsedAnswer
from signoff.channels.answer_text.footers import read_mail_answer
from signoff.channels.mail.reply_reader import MailAnswer

MAILS = Path(__file__).parent / "channels" / "mails"
TO = "approvals+k7q2fmxyz0123456789abcdef@example.com"


@dataclass(frozen=True)
class Reply:
    client: str
    language: str
    body: str
    type: str = "text/plain"
    flowed: bool = False
    case: str = "a reply"
    first: str = ""
    unclear: str = ""
    comment: str | None = None
    asked: bool = False
    """Whether it is asked back although its first line decides."""

    @property
    def raw(self) -> bytes:
        more = "; format=flowed" if self.flowed else ""
        return mail(self.body, type=self.type + more)

    def __str__(self) -> str:
        return f"{self.client}, {self.language}, {self.type}, {self.case}"


def replies() -> list[Reply]:
    rows: list[dict[str, Any]] = yaml.safe_load((MAILS / "replies.yaml").read_text())
    return [Reply(**{**row, "body": row["body"].replace("␣\n", " \n")}) for row in rows]


def mail(
    body: str | bytes,
    *,
    type: str = "text/plain",
    charset: str = "utf-8",
    encoding: str = "8bit",
    sender: str = "Ana <ana@example.org>",
    more: str = "",
) -> bytes:
    """`more` are further header lines, on top."""
    encoded = body if isinstance(body, bytes) else body.encode(charset)
    if encoding == "base64":
        encoded = base64.encodebytes(encoded)
    elif encoding == "quoted-printable":
        encoded = quopri.encodestring(encoded)
    head = (
        f"{more}From: {sender}\nTo: {TO}\nSubject: Re: Pay 300 EUR [K7Q2FM]\nMessage-ID: <r1@example.org>\n"
        f"In-Reply-To: <card@example.com>\nReferences: <old@example.com> <card@example.com>\nMIME-Version: 1.0\n"
        f"Content-Type: {type}; charset={charset}\nContent-Transfer-Encoding: {encoding}\n\n"
    )
    return (head.encode() + encoded.replace(b"\r\n", b"\n")).replace(b"\n", b"\r\n")


def parted(*parts: tuple[str, str], kind: str = "alternative") -> bytes:
    inner = "".join(f"--limit\n{head}\n\n{body}\n" for head, body in parts)
    head = f'From: ana@example.org\nTo: {TO}\nContent-Type: multipart/{kind}; boundary="limit"\n\n'
    return f"{head}preamble\n{inner}--limit--\nepilogue\n".replace("\n", "\r\n").encode()


def first_line(mail_answer: MailAnswer) -> str:
    return mail_answer.above[0] if mail_answer.above and not mail_answer.unclear else ""


def comment(mail_answer: MailAnswer) -> str:
    return "\n".join((*mail_answer.above, *mail_answer.below))


def read_by(mail_answer: MailAnswer, locale: str, *names: str) -> ParsedAnswer:
    if mail_answer.unclear:
        return ParsedAnswer(None)
    return read_mail_answer(mail_answer.above, mail_answer.below, AnswerSender(locale, names))


def work(run: Callable[[], object]) -> int:
    """Count the executed Python lines, which a busy machine does not change."""
    count = 0

    def step(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        run()
    finally:
        sys.settrace(before)
    return count
