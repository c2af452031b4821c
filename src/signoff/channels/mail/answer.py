"""Interprets a mail: an answer to a card, a returned card, or nothing.

Which card is meant is told only by what the sender himself has signed: who has an old mail of his cannot use its `yes`
for another card. What proves too little is asked about, or sent to the inbox, and decides nothing.
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
"""Instead of the id of a mail: it surely replies to no card of ours, and so is never about the only one without its
code."""
_REPORT_BYTES: Final = 64 * 1024
_FAILED: Final = re.compile(rb"^action:[ \t]{0,20}failed", re.IGNORECASE | re.MULTILINE)
_CODE: Final = re.compile(rb"^status:[ \t]{0,20}([45]\.\d{1,3}\.\d{1,3})", re.IGNORECASE | re.MULTILINE)
_WHY: Final = re.compile(rb"^diagnostic-code:[ \t]{0,20}([^\r\n]{1,200})", re.IGNORECASE | re.MULTILINE)
_KEPT_IDS: Final = 20
_KEPT_OTHERS: Final = 20
_QUOTED_CHARS: Final = 64 * 1024
"""More than our longest card; a longer quote has other people's words."""
_SUBJECT_CHARS: Final = 300
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UnprovedMail:
    """A mail whose sender is not proved yet."""

    answer: MailAnswer
    """What the mail says."""
    evidence: AuthenticityEvidence
    """The evidence for its sender."""
    claimed: tuple[str, ...]
    """The cards that it claims to be about."""
    body_hash: str
    """The hash of its body."""
    unanswered: bool
    """Whether it never gets a reply."""
    size: int
    """Its bytes."""


@dataclass(frozen=True)
class MailReceiver:
    """Receives mail for one channel. Its sender is proved as `authenticate` does, by DKIM where there is no `server`.

    `own` is the address that our mail is from; `keeps_ids` whether it reaches people with the ids that we gave it.
    """

    replies: ReplyAddresses
    own: str
    server: ResultsServer | None
    keeps_ids: bool = True

    def examine(self, arrived: ArrivedMail) -> UnprovedMail | InboundBatch:
        """Examines a mail without asking anybody, the same work whoever sent it. Raises `Malformed`."""
        answer, header, body = _read(arrived.raw, (self.own, self.replies.bare))
        # The address that a mail came to decides nothing: it shows that whoever sent it has seen a card of ours.
        claimed = self.replies.tokens((*arrived.recipients, *answer.recipients, *answer.delivered))
        # Before any key is looked up: what a machine writes can decide nothing, so nothing has to be proved.
        if answer.automatic:
            return self._parse_bounce(arrived.raw, claimed)
        # Our own mail that a forwarder or a list brings back: an answer to it would come here again.
        if answer.sender == self.own or self.replies.is_ours(answer.sender):
            return InboundBatch()
        evidence = authenticate(arrived.raw, provider=arrived.verdict, server=self.server)
        unanswered = answers_go_nowhere(header)
        return UnprovedMail(answer, evidence, claimed, hashlib.sha256(body).hexdigest(), unanswered, len(arrived.raw))

    def conclude(self, mail: UnprovedMail, txt: KnownTxt) -> InboundBatch:
        """Interprets a mail, once the names of its evidence are looked up."""
        answer, proof = mail.answer, mail.evidence.judge(txt)
        key = _key(mail, proof)
        if proof.why:
            return InboundBatch(actions=(_make_unproved(key, mail),))
        token, ids = self._about(answer, proof)
        if not token and "message-id" not in proof.surely:
            # With the card's code in it, it could be sent again as another mail.
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
            # Unsigned, another sender of the mail could have written any date.
            said_at=time_from_date_header(mail.evidence.header.first("date")) if "date" in proof.surely else None,
            where={**_where(answer), "token": token},
        )
        return InboundBatch(actions=(action,))

    def _others(self, answer: MailAnswer) -> tuple[str, ...]:
        """Returns the recipients besides us and the sender."""
        here = (answer.sender, self.own)
        others = [each for each in answer.recipients if each not in here and not self.replies.is_ours(each)]
        return tuple(others[:_KEPT_OTHERS])

    def _about(self, answer: MailAnswer, proof: Authenticity) -> tuple[str, tuple[str, ...]]:
        """Returns the token of the one card that is meant, and ids of mails it replies to; never neither.

        A mail that names no card needs its code: an old `yes` would else count for whatever is open now.
        """
        newest = answer.references[:1]
        to_question = any(map(self.replies.is_question, newest))
        if self.keeps_ids and newest and not to_question and not self.replies.tokens_of_ids(newest):
            # A `yes` to somebody's own question, whatever address for answers that gave.
            return "", (UNNAMED,)
        # Both, also where one is missing: who sends an old mail again could add the one that is not signed.
        replies_surely = bool(newest) and {"in-reply-to", "references"} <= proof.surely
        tokens = self.replies.tokens(proof.recipients)
        if len(tokens) == 1:
            return tokens[0], newest if replies_surely else ()
        # A plus address that names no card may be anybody's, even another deployment's.
        to_us = self.replies.bare in proof.recipients
        if tokens or not to_us or not replies_surely:
            return "", (UNNAMED,)
        if to_question:
            return "", newest
        return next(iter(self.replies.tokens_of_ids(answer.references)), ""), answer.references[:_KEPT_IDS]

    def _parse_bounce(self, raw: bytes, claimed: tuple[str, ...]) -> InboundBatch:
        """Interprets a machine's mail: at most that a card did not arrive. Only its recipient knows its address."""
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
    """Parses a mail into text, header and body. Raises `Malformed` where not even the header can be read."""
    header, body = split_mail(raw)
    try:
        return read_mail(raw, own), header, body
    # Whatever a stranger wrote into it: who has a card of ours is told that it decided nothing, not left to wait.
    except Exception as error:
        if len(raw) > MAX_MAIL:
            raise
        _log.warning("the text of a mail cannot be read: %s", type(error).__name__)
    bare = b"".join(f"{name}: {value}\n".encode() for name, value in header.fields if not name.startswith("content-"))
    return replace(read_mail(bare + b"\n", own), unclear="unreadable"), header, body


def _key(mail: UnprovedMail, proof: Authenticity) -> str:
    """Computes one key for a mail however often it comes and whatever is added on the way; by its sender alone.

    Nobody can use up the key of a mail of somebody else's. Where its id is not sure it may get others, and is then only
    heard if what is sure names its one card.
    """
    answer, header = mail.answer, mail.evidence.header
    if "message-id" in proof.surely and answer.message_id:
        own = [answer.message_id]
    else:
        names = sorted(proof.surely & {"date", "subject", "to", "cc", "in-reply-to", "references"})
        own = [*(f"{name}:{value}" for name in names for value in header.all(name)), mail.body_hash]
    # Apart from what is proved: who forges a mail could else use up the key of the true one that is still on its way.
    sure = "proved" if not proof.why else f"claimed/{answer.message_id}"
    content = "\0".join((sure, answer.sender, *own))
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _make_unproved(key: str, mail: UnprovedMail) -> InboundAction:
    """Makes an action of nobody: its identity is none that a person can have. Who has a card of ours is told so, others
    nothing.
    """
    answer = mail.answer
    where: dict[str, Any] = {"unproved": True}
    # Else whoever is named as the sender of a forged mail would be sent one by us.
    if mail.claimed and answer.sender and not mail.unanswered:
        where = {**_where(answer), "unproved": True}
    return InboundAction(key=key, identity=f"{answer.sender or '?'} (not proved)", vendor_ids=(UNNAMED,), where=where)


def _where(answer: MailAnswer) -> dict[str, Any]:
    return {
        # Nobody reads what is sent there, and where a machine does, two of them write for ever.
        "to": "" if is_no_reply(answer.sender) else answer.sender,
        "subject": answer.subject[:_SUBJECT_CHARS],
        "message_id": answer.message_id,
        "references": list(reversed(answer.references))[-_KEPT_IDS:],
    }
