"""Interprets an email: an answer to a card, a bounced card, or nothing.

Only parts that the sender signed identify the card: an attacker with the sender's old email cannot use its approval for
another card. An email that proves too little decides nothing: its author gets a question back or a link to the inbox.
"""

import hashlib
import logging
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from signoff.channels.envelopes import DeliveryStatus, InboundAction, InboundBatch
from signoff.channels.mail.authentication.authentication_results import ResultsServer
from signoff.channels.mail.authentication.authenticity import Authenticity, AuthenticityEvidence, authenticate
from signoff.channels.mail.authentication.dns_names import KnownTxt
from signoff.channels.mail.auto_reply import answers_go_nowhere, is_no_reply
from signoff.channels.mail.body import content_type
from signoff.channels.mail.header import MailHeader, split_mail
from signoff.channels.mail.raw_mail import ArrivedMail
from signoff.channels.mail.reply_addresses import ReplyAddresses
from signoff.channels.mail.reply_reader import MAX_MAIL, MailAnswer, read_mail
from signoff.channels.vendor_time import time_from_date_header

UNNAMED: Final = "<nothing>"
"""Replaces the id of an email that replies to no card. Without a code, it is about no request, even if one is open."""
_REPORT_BYTES: Final = 64 * 1024
_FAILED: Final = re.compile(rb"^action:[ \t]{0,20}failed", re.IGNORECASE | re.MULTILINE)
_CODE: Final = re.compile(rb"^status:[ \t]{0,20}([45]\.\d{1,3}\.\d{1,3})", re.IGNORECASE | re.MULTILINE)
_WHY: Final = re.compile(rb"^diagnostic-code:[ \t]{0,20}([^\r\n]{1,200})", re.IGNORECASE | re.MULTILINE)
_KEPT_IDS: Final = 20
_KEPT_OTHERS: Final = 20
_QUOTED_CHARS: Final = 64 * 1024
"""More than our longest card: a longer quote has other people's words."""
_SUBJECT_CHARS: Final = 300
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UnprovedMail:
    """An email whose sender is not proved yet."""

    answer: MailAnswer
    evidence: AuthenticityEvidence
    claimed: tuple[str, ...]
    """The cards that it claims to answer."""
    body_hash: str
    unanswered: bool
    """Whether it never gets a reply."""
    size: int
    """The size in bytes."""


@dataclass(frozen=True)
class MailReceiver:
    """Interprets the email of one channel. `authenticate` proves the sender, by DKIM if there is no `server`.

    `own` is Signoff's sender address. `keeps_ids`: Signoff's emails reach people with the ids that it gave
    them.
    """

    replies: ReplyAddresses
    own: str
    server: ResultsServer | None
    keeps_ids: bool = True

    def examine(self, arrived: ArrivedMail) -> UnprovedMail | InboundBatch:
        """Examine an email without any lookup, with the same work for every sender. Raises `Malformed`."""
        answer, header, body = _read(arrived.raw, (self.own, self.replies.bare))
        # The recipient's address decides nothing. It only shows that the sender has seen one of our cards.
        claimed = self.replies.tokens((*arrived.recipients, *answer.recipients, *answer.delivered))
        # Check this before looking up a key: automatic email decides nothing, so it needs no proof.
        if answer.automatic:
            return self._parse_bounce(arrived.raw, claimed)
        # A forwarder or list returned our own email: a reply to it would come back here again.
        if answer.sender == self.own or self.replies.is_ours(answer.sender):
            return InboundBatch()
        evidence = authenticate(arrived.raw, provider=arrived.verdict, server=self.server)
        unanswered = answers_go_nowhere(header)
        return UnprovedMail(answer, evidence, claimed, hashlib.sha256(body).hexdigest(), unanswered, len(arrived.raw))

    def conclude(self, mail: UnprovedMail, txt: KnownTxt) -> InboundBatch:
        answer, proof = mail.answer, mail.evidence.judge(txt)
        key = _key(mail, proof)
        if proof.why:
            return InboundBatch(actions=(_make_unproved(key, mail),))
        token, ids = self._about(answer, proof)
        if not token and "message-id" not in proof.surely:
            # If it has the card's code, an attacker could send it again under another id.
            return InboundBatch(actions=(_make_unproved(key, mail),))
        action = InboundAction(
            key=key,
            identity=proof.sender,
            sender=answer.sent_by,
            token=token,
            vendor_ids=ids,
            text="\n".join(answer.above),
            below="\n".join(answer.below),
            quoted="\n".join(answer.quoted)[:_QUOTED_CHARS],
            others=self._others(answer),
            form="mail",
            unclear=answer.unclear,
            name=answer.name,
            # If the date is unsigned, an attacker who sends the email again could have written any date.
            said_at=time_from_date_header(mail.evidence.header.first("date")) if "date" in proof.surely else None,
            where={**_where(answer), "token": token},
        )
        return InboundBatch(actions=(action,))

    def _others(self, answer: MailAnswer) -> tuple[str, ...]:
        here = (answer.sender, self.own)
        others = [each for each in answer.recipients if each not in here and not self.replies.is_ours(each)]
        return tuple(others[:_KEPT_OTHERS])

    def _about(self, answer: MailAnswer, proof: Authenticity) -> tuple[str, tuple[str, ...]]:
        """Return the token of the answered card and the ids of emails it replies to.

        At least one is not empty. An email that names no card needs a code: otherwise an old approval would count for
        any open request.
        """
        newest = answer.references[:1]
        to_question = any(map(self.replies.is_question, newest))
        if self.keeps_ids and newest and not to_question and not self.replies.tokens_of_ids(newest):
            # A reply to another person's email, whatever reply address that gave.
            return "", (UNNAMED,)
        # Require both fields, even if one is missing: an attacker who sends an old email again could add the unsigned
        # one.
        replies_surely = bool(newest) and {"in-reply-to", "references"} <= proof.surely
        tokens = self.replies.tokens(proof.recipients)
        if len(tokens) == 1:
            return tokens[0], newest if replies_surely else ()
        # A plus address that names no card may belong to others, even to another deployment.
        to_us = self.replies.bare in proof.recipients
        if tokens or not to_us or not replies_surely:
            return "", (UNNAMED,)
        if to_question:
            return "", newest
        return next(iter(self.replies.tokens_of_ids(answer.references)), ""), answer.references[:_KEPT_IDS]

    def _parse_bounce(self, raw: bytes, claimed: tuple[str, ...]) -> InboundBatch:
        """Interpret automatic email: at most as the bounce of a card. Only the card's recipient knows its address."""
        header, body = split_mail(raw)
        report = body[:_REPORT_BYTES]
        if len(claimed) != 1 or content_type(header) != "multipart/report" or not _FAILED.search(report):
            return InboundBatch()
        code, why = _CODE.search(report), _WHY.search(report)
        status = DeliveryStatus(
            key=f"returned/{claimed[0]}",
            vendor_id=self.replies.message_id(claimed[0]),
            state="failed",
            code=code[1].decode("ascii") if code else "",
            message=why[1].decode("utf-8", "replace") if why else "",
        )
        return InboundBatch(statuses=(status,))


def _read(raw: bytes, own: tuple[str, ...]) -> tuple[MailAnswer, MailHeader, bytes]:
    """Raises `Malformed` if not even the header can be parsed."""
    header, body = split_mail(raw)
    try:
        return read_mail(raw, own), header, body
    # For any content: a person with a card must get the reply that nothing was decided, rather than wait.
    except Exception as error:
        if len(raw) > MAX_MAIL:
            raise
        _log.warning("the text of an email cannot be read: %s", type(error).__name__)
    bare = b"".join(f"{name}: {value}\n".encode() for name, value in header.fields if not name.startswith("content-"))
    return replace(read_mail(bare + b"\n", own), unclear="unreadable"), header, body


def _key(mail: UnprovedMail, proof: Authenticity) -> str:
    """Return the key of an email, the same for each copy and with any fields added in transit.

    Only the sender determines it: an attacker cannot use up the key of another person's email. If the id is not sure,
    copies may have different keys. The email then only counts if its sure fields name its one card.
    """
    answer, header = mail.answer, mail.evidence.header
    if "message-id" in proof.surely and answer.message_id:
        own = [answer.message_id]
    else:
        names = sorted(proof.surely & {"date", "subject", "to", "cc", "in-reply-to", "references"})
        own = [*(f"{name}:{value}" for name in names for value in header.all(name)), mail.body_hash]
    # Keep it apart from proved email: otherwise a forgery could use up the key of the true email that is still in
    # transit.
    sure = "proved" if not proof.why else f"claimed/{answer.message_id}"
    content = "\0".join((sure, answer.sender, *own))
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _make_unproved(key: str, mail: UnprovedMail) -> InboundAction:
    """Return an action with an identity that no person can have. Only a sender who has seen a card gets a reply."""
    answer = mail.answer
    where: dict[str, Any] = {"unproved": True}
    # Otherwise we would send email to the person that a forgery names as its sender.
    if mail.claimed and answer.sender and not mail.unanswered:
        where = {**_where(answer), "unproved": True}
    return InboundAction(key=key, identity=f"{answer.sender or '?'} (not proved)", vendor_ids=(UNNAMED,), where=where)


def _where(answer: MailAnswer) -> dict[str, Any]:
    return {
        # Never reply to a no-reply address: two machines could answer each other without end.
        "to": "" if is_no_reply(answer.sender) else answer.sender,
        "subject": answer.subject[:_SUBJECT_CHARS],
        "message_id": answer.message_id,
        "references": list(reversed(answer.references))[-_KEPT_IDS:],
    }
