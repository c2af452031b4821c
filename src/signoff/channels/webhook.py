"""Sends requests to another system and takes its answers, signed both ways as Standard Webhooks.

It sends `{"type", "timestamp", "data"}` with the types `approval.asked`, `approval.reminded`, `approval.digest`,
`approval.closed` and `answer.receipt`. It accepts `decision` (with a verdict), `message` (free text) and `status`.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, ValidationError, field_validator

from signoff.approvals.quorum import progress
from signoff.approvals.request_part import part_from_request
from signoff.channels.base import Channel, ChannelContext, ChannelOptions
from signoff.channels.card_text import card_words
from signoff.channels.channel_errors import Malformed, NotDelivered
from signoff.channels.envelopes import (
    ChannelReply,
    CheckFinding,
    ClosedCard,
    DeliveryStatus,
    InboundAction,
    InboundBatch,
    InboundRequest,
    OutboundCard,
    OutboundNotice,
    SentCard,
)
from signoff.channels.json_body import read_object
from signoff.channels.outbound_http import GuardedHttp, ServerAnswer, read_networks
from signoff.channels.signature_check import REPLAY_SECONDS
from signoff.channels.standard_webhooks import read_secret, signed_headers, verify_id
from signoff.channels.vendor_time import time_from_iso
from signoff.contracts.errors import ConfigError
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.responses import AnswerLinks
from signoff.languages.catalogue import ENGLISH
from signoff.texts.endings import closing_words
from signoff.texts.formatter import formatter_for

_TOO_MANY, _GONE, _BUSY = 429, 410, 503
_KINDS: Final[Mapping[str, str]] = {
    "ask": "approval.asked",
    "remind": "approval.reminded",
    "digest": "approval.digest",
}


class WebhookOptions(ChannelOptions):
    """The options of a webhook. `secret` signs both ways, with `previous_secret` while it is being replaced.

    `allow_networks` are private networks that may be called, also without TLS.
    """

    url: str = Field(description="The address that receives the messages, such as https://desk.example.com/approvals.")
    secret: str = Field(description="The signing secret, env:NAME; its value is whsec_ and base64.")
    previous_secret: str = Field("", description="The secret before this one, while both are in use.")
    allow_networks: tuple[str, ...] = Field((), description="Private networks that may be called, such as 10.0.0.0/8.")
    # Less than the dispatcher's limit for one card (`SEND_SECONDS`), so that this channel's own error is reported.
    timeout_seconds: float = Field(10.0, gt=0, le=25, description="How long an answer is waited for.")

    @field_validator("url")
    @classmethod
    def _web_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.username or not url.isascii():
            raise ValueError("a web address looks like https://desk.example.com/approvals")
        return url

    @field_validator("allow_networks")
    @classmethod
    def _networks(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        read_networks(written)
        return written


class _Decision(FrozenModel):
    """The `data` of a `decision`. `token` or `in_reply_to` (the id of our message) names the request.

    Other fields are rejected. If ignored, a decision that names one request in such a field would decide another.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity: str = Field(min_length=1, max_length=320)
    verdict: Literal["approved", "denied"]
    reason: str = ""
    token: str = ""
    in_reply_to: str = ""


class _Message(FrozenModel):
    """The `data` of a `message`: a person's text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity: str = Field(min_length=1, max_length=320)
    text: str
    token: str = ""
    in_reply_to: str = ""


class _Report(FrozenModel):
    """The `data` of a `status`: the state of our message `id`."""

    id: str = Field(min_length=1, max_length=200)
    state: str
    code: str = ""
    message: str = ""


class WebhookTransport(Protocol):
    """Sends messages."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> ServerAnswer:
        """Raises `NotDelivered` if there is no response."""
        ...

    async def close(self) -> None: ...


class Webhook(Channel):
    """See the module."""

    kind: ClassVar[str] = "webhook"
    identity: ClassVar[str] = "webhook"
    options: ClassVar[type[ChannelOptions]] = WebhookOptions

    def __init__(self, context: ChannelContext, outward: WebhookTransport | None = None) -> None:
        super().__init__(context)
        self._options = WebhookOptions.model_validate(context.options)
        written = (self._options.secret, self._options.previous_secret)
        self._secrets = [read_secret(each) for each in written if each]
        if not self._secrets:
            raise ConfigError("it needs a `secret`", field="secret")
        allowed = read_networks(self._options.allow_networks)
        self._outward: WebhookTransport = self.attach(outward or GuardedHttp(allowed, self._options.timeout_seconds))

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        number = f".{card.request.reminded}" if card.kind == "remind" else ""
        # Use the same id for each attempt, so that the receiver recognises repeats. Each reminder is a new message.
        message = f"{card.token}.{card.kind}{number}"
        await self._post(message, _KINDS[card.kind], _card_data(card, voice_now=self.context.clock()))
        return SentCard(vendor_id=message if before is None else before.vendor_id)

    async def close(self, sent: SentCard, closed: ClosedCard) -> None:
        request = closed.request
        data = {
            "token": closed.token,
            "approval": request.id,
            "revision": request.revision,
            "code": request.code,
            "state": request.state,
            "decided_by": request.decided_by,
            "decided_name": request.decided_name,
            "decided_at": _time(request.decided_at),
            "channel": request.decided_channel,
            "reason": request.reason,
            "link": closed.link,
            "text": closing_words(request, self.formatter(closed.person)),
        }
        await self._post(f"{closed.token}.closed", "approval.closed", data)

    async def notify(self, notice: OutboundNotice) -> SentCard:
        # The same id for each attempt. It names no card, so an answer to it has no request.
        message = f"{notice.token}.notice"
        data = {
            "to": notice.address,
            "person": {"id": notice.person.id, "name": notice.person.name, "locale": notice.language},
            "event": notice.kind,
            "approval": notice.approval,
            "state": notice.state,
            "title": notice.title,
            "text": notice.text,
        }
        await self._post(message, "notice", data)
        return SentCard(vendor_id=message)

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> None:
        receipt = reply.receipt
        data = {
            **where,
            "text": reply.text,
            "status": receipt.status if receipt else "",
            "code": receipt.code if receipt else "",
            "approval": receipt.approval_id if receipt else "",
            "state": receipt.state if receipt else "",
            "choices": list(reply.choices),
        }
        await self._post(f"answer.{reply.id}", "answer.receipt", data)

    def verify(self, raw: InboundRequest) -> None:
        verify_id(self._secrets, raw.headers, raw.body, self.context.clock())

    def parse(self, raw: InboundRequest) -> InboundBatch:
        if raw.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Malformed("the content type is not application/json")
        key = raw.headers["webhook-id"]
        body = read_object(raw.body)
        try:
            return _parse_message(key, body.get("type"), body.get("data"), time_from_iso(body.get("timestamp")))
        except ValidationError as error:
            where = ", ".join(".".join(map(str, each["loc"])) for each in error.errors(include_url=False)[:5])
            raise Malformed(f"`data` does not fit its type: {where or 'it is no object'}") from None

    async def check(self) -> list[CheckFinding]:
        """Check that the receiver acknowledges a message of the type `ping`, and that its clock agrees with ours."""
        target, now = self._options.url, self.context.clock()
        try:
            answer = await self._post(f"ping.{int(now.timestamp())}", "ping", {})
        except NotDelivered as error:
            return [
                CheckFinding(False, f"{target} does not acknowledge: {error.message}", "check `url`, and the receiver")
            ]
        findings = [CheckFinding(True, f"{target} acknowledges what is signed")]
        apart = 0.0 if answer.at is None else abs((answer.at - now).total_seconds())
        if apart > REPLAY_SECONDS / 2:
            remedy = f"set the clocks: a message that is {REPLAY_SECONDS:.0f} s old counts as forged"
            findings.append(CheckFinding(False, f"its clock is {apart:.0f} s from ours", remedy))
        return findings

    async def _post(self, message: str, kind: str, data: Mapping[str, Any]) -> ServerAnswer:
        now = self.context.clock()
        body = json.dumps({"type": kind, "timestamp": _time(now), "data": data}).encode()
        headers = signed_headers(self._secrets, message, now, body) | {"content-type": "application/json"}
        return _check_receipt(await self._outward.post(self._options.url, body, headers))


def _check_receipt(answer: ServerAnswer) -> ServerAnswer:
    if 200 <= answer.status < 300:
        return answer
    code = str(answer.status)
    if answer.status in (_TOO_MANY, _BUSY):
        raise NotDelivered("the receiver is busy", code=code, again=True, after=answer.retry_after)
    if 300 <= answer.status < 400:
        raise NotDelivered("the receiver redirects, which is not followed: correct `url`", code=code, again=False)
    if answer.status == _GONE:
        raise NotDelivered("the receiver reports that it no longer exists", code=code, again=False)
    raise NotDelivered(f"the receiver answered {code}", code=code, again=True)


def _card_data(card: OutboundCard, voice_now: datetime) -> dict[str, Any]:
    request = card.request
    words = card_words(card, formatter_for(card.person, voice_now), how="buttons", assurance=Webhook.assurance)
    where = AnswerLinks(api=f"/v1/approvals/{request.id}/decide", page=card.link, channels=request.notify)
    return {
        # A digest has no token: an answer to the whole list must not decide its first request.
        "token": "" if card.kind == "digest" else card.token,
        "to": card.address,
        "person": {"id": card.person.id, "name": card.person.name, "locale": card.person.locale or ENGLISH},
        "approval": request.id,
        "revision": request.revision,
        "code": request.code,
        "kind": request.kind,
        "tool": request.tool,
        "actor": request.actor,
        "requester": {"id": request.requester.user, "name": request.requester.name},
        "effect": words.effect,
        "rows": [row.model_dump() for row in request.card.rows],
        "messages": [{"by": each.by, "name": each.name, "text": each.text} for each in request.messages],
        "agent_says": request.card.agent_says,
        "rule": None if request.rule is None else request.rule.model_dump(mode="json"),
        "expires_at": _time(request.expires_at),
        "quorum": request.quorum,
        "open": [group.model_dump() for group in progress(request).open],
        "more": card.more,
        "whole": words.whole,
        "decides": words.decides,
        "approves": words.approves,
        "link": card.link,
        "part": part_from_request(request, where).model_dump(mode="json"),
        "text": words.text,
    }


def _parse_message(key: str, kind: Any, data: Any, said_at: datetime | None) -> InboundBatch:
    if kind == "decision":
        decision = _Decision.model_validate(data)
        if not decision.token and not decision.in_reply_to:
            raise Malformed("`data` names no request: it needs `token` or `in_reply_to`")
        facts = {"verdict": decision.verdict, "reason": decision.reason, "said_at": said_at}
        return InboundBatch(actions=(_make_action(key, decision, **facts),))
    if kind == "message":
        message = _Message.model_validate(data)
        return InboundBatch(actions=(_make_action(key, message, text=message.text, said_at=said_at),))
    if kind == "status":
        report = _Report.model_validate(data)
        known: dict[str, Literal["delivered", "read", "failed", "unknown"]] = {
            "delivered": "delivered",
            "read": "read",
            "failed": "failed",
        }
        state = known.get(report.state, "unknown")
        token = _token(report.id)
        card = f"{token}.ask" if token else report.id
        if state == "failed" and token and report.id != card:
            # A reminder or the closing failed, but the card itself was sent.
            state = "unknown"
        return InboundBatch(
            statuses=(DeliveryStatus(key=key, vendor_id=card, state=state, code=report.code, message=report.message),)
        )
    # This also skips our own messages if an attacker sends them back: one secret signs both ways, and only the types
    # differ.
    return InboundBatch()


def _make_action(key: str, answer: _Decision | _Message, **more: Any) -> InboundAction:
    token = answer.token or _token(answer.in_reply_to)
    return InboundAction(
        key=key,
        identity=answer.identity,
        token=token,
        vendor_ids=(answer.in_reply_to,) if answer.in_reply_to and not token else (),
        where={"to": answer.identity, "in_reply_to": key},
        **more,
    )


def _token(message: str) -> str:
    """Return the card of one of our messages, "" for a digest, which is about several."""
    token, _, kind = message.partition(".")
    return token if kind.partition(".")[0] in ("ask", "remind", "closed") else ""


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


CHANNEL = Webhook
