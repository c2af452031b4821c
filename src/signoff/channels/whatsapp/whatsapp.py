"""WhatsApp, by Meta's Cloud API: cards with two buttons, answered by a press or in words.

A person who has written within 24 hours may get any message, others only a template that Meta approved. Sent messages
cannot be edited: the end of a request is a separate message, if the person may get one.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from signoff.channels.base import Channel, ChannelContext, ChannelOptions
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
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
from signoff.channels.signature_check import HmacSignature, check_same
from signoff.channels.vendor_http import Code, VendorAnswer, VendorErrors, VendorHttp
from signoff.channels.vendor_time import time_from_seconds
from signoff.channels.whatsapp.messages import (
    Message,
    card_message,
    closed_message,
    draws_whole,
    read_button,
    recipient,
    template_message,
    text_message,
)
from signoff.channels.whatsapp.templates import check_templates, template_language
from signoff.contracts.decision import Verdict
from signoff.formats.visible_text import one_line
from signoff.languages.catalogue import ENGLISH

OUTSIDE: Final = 131047
"""The code if the person wrote last more than 24 hours ago, so that only an approved template reaches them."""
_PAUSES: Final[Mapping[Code, float]] = {4: 60.0, 80007: 60.0, 130429: 5.0, 131056: 6.0}
"""Pauses in seconds after Meta's rate limits: of the app, the account, the number, and one pair of numbers."""
_PASSING: Final[frozenset[Code]] = frozenset((1, 2, 131000, 131016, 131057, 133004))
"""Temporary faults of Meta."""
_MEANINGS: Final[Mapping[Code, str]] = {
    0: "the token is not valid; renew `token`",
    3: "the token lacks a permission; it needs whatsapp_business_messaging",
    # Meta has a separate code for each permission.
    **dict.fromkeys((10, *range(200, 300)), "the token lacks a permission; it needs whatsapp_business_messaging"),
    33: "there is no such number; check `phone_number_id`",
    100: "Meta finds the request wrong; check `phone_number_id` and `version`",
    190: "the token has expired or is not valid; renew `token`",
    368: "Meta has blocked the account for a breach of its policy",
    131026: "it cannot be delivered: the person has no WhatsApp, an old one, or has not agreed to Meta's terms",
    131030: "the person is not on the list of numbers that a test account may write to",
    131031: "Meta has locked the account",
    131042: "the account's payment method does not work",
    OUTSIDE: "the person wrote last more than 24 hours ago; an approved `template` would reach them",
    131048: "Meta stopped the number for its quality: too many people blocked it or reported it",
    131049: "Meta keeps the message back, so that people are not sent too many",
    132000: "the template has another number of parameters than documented",
    132001: "there is no approved template of that name in that language; check `template` and `languages`",
    132005: "the template is too long once it is filled in",
    132007: "Meta refuses characters in the template's parameters",
    132012: "the template's parameters have another format than documented",
    132015: "Meta has paused the template for its quality",
    132016: "Meta has disabled the template for its quality",
}
_UNNAMED: Final = -1
"""The code for an error without Meta's code."""

WINDOW_SECONDS: Final = 24 * 3_600
_MARGIN_SECONDS: Final = 120
"""Margin for the difference between Meta's clock and ours, and for a message's transport."""
_KEPT: Final = 20_000
"""The most names in memory. For others it is unknown when they wrote, as after a start."""
_WORDLESS: Final = frozenset(
    ("audio", "contacts", "document", "image", "location", "order", "sticker", "unsupported", "video")
)
"""The types of messages without readable text. Their author gets a question back."""
_CHANGES: Final = {"edit": "edited", "revoke": "deleted"}
"""Meta reports these only for a number that a WhatsApp Business app uses, too."""
_GROUP: Final = "group"
_REACTION: Final = "reaction"
_STATES: Final[Mapping[str, Literal["sent", "delivered", "read", "failed"]]] = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "failed": "failed",
}
_CODE_CHARS: Final = 80


class ServiceWindow:
    """Remembers when people wrote last, by each of their ids. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, float] = OrderedDict()

    def note_message(self, name: str, at: float) -> None:
        """Open the window of a person who wrote at `at`. A repeated or late message does not extend it."""
        # Remove and insert again, so that the first entry, which is dropped when it is full, is the least recent.
        self._last[name] = max(at, self._last.pop(name, 0.0))
        while len(self._last) > _KEPT:
            self._last.popitem(last=False)

    def is_open(self, name: str, now: float) -> bool:
        return now - self._last.get(name, 0.0) < WINDOW_SECONDS - _MARGIN_SECONDS

    def shut(self, name: str) -> None:
        """Meta reports the window as closed."""
        self._last.pop(name, None)


def _code(answer: VendorAnswer) -> int | None:
    fault = answer.body.get("error")
    code = fault.get("code") if isinstance(fault, dict) else None
    return code if isinstance(code, int) else None if fault is None else _UNNAMED


ERRORS: Final = VendorErrors("Meta", _code, meanings=_MEANINGS, pauses=_PAUSES, passing=_PASSING)


def read_payload(raw: InboundRequest, number: str, window: ServiceWindow) -> InboundBatch:
    """Parse a verified message for the number with the id `number`; note its authors in `window`.

    Raises `Malformed`. Unknown contents only become an unknown status.
    """
    if raw.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Malformed("the content type is not application/json")
    body = read_object(raw.body)
    actions: list[InboundAction] = []
    statuses: list[DeliveryStatus] = []
    for value in _values(body, number):
        for error in _maps(value, "errors"):
            _log.warning("WhatsApp reports an error: %s", ERRORS.meaning(_number(error, "code")))
        messages, contacts = _maps(value, "messages"), _maps(value, "contacts")
        # The first of several contacts with one number wins. A table, as a body may have 3 MB: searching the contacts
        # for each message would take quadratic time.
        by_number = {_text(each, "wa_id"): each for each in reversed(contacts)}
        lone = contacts[0] if len(messages) == len(contacts) == 1 else {}
        for message in messages:
            made = _message(message, _sender(message, by_number, lone), window)
            actions += [made] if isinstance(made, InboundAction) else []
            statuses += [made] if isinstance(made, DeliveryStatus) else []
        statuses += [status for each in _maps(value, "statuses") if (status := _status(each, window)) is not None]
    return InboundBatch(actions=tuple(actions), statuses=tuple(statuses))


def _values(body: Mapping[str, Any], number: str) -> Iterator[Mapping[str, Any]]:
    if body.get("object") != "whatsapp_business_account":
        return
    for entry in _maps(body, "entry"):
        for change in _maps(entry, "changes"):
            value = _map(change, "value")
            # An app may have several numbers; Meta posts the messages of all of them to one address.
            if change.get("field") == "messages" and _text(_map(value, "metadata"), "phone_number_id") == number:
                yield value


def _message(
    message: Mapping[str, Any], sender: tuple[str, str], window: ServiceWindow
) -> InboundAction | DeliveryStatus | None:
    """Return the action of one message, or the status of a message to record. None without an id or sender."""
    key, kind, (scoped, phone) = _text(message, "id"), _text(message, "type"), sender
    # Prefer the scoped id: a number may be hidden, and a released number may go to another person.
    identity = scoped or phone
    if not key or not identity:
        return None
    # Every message opens the window, even if it is not understood here.
    for name in filter(None, sender):
        window.note_message(name, float(_number(message, "timestamp")))
    original = _text(_map(message, kind), "original_message_id") if kind in _CHANGES else ""
    if original:
        return InboundAction(
            key=key,
            identity=identity,
            changes=original,
            unclear=_CHANGES[kind],
            text=_text(_map(_map(_map(message, kind), "message"), "text"), "body"),
            said_at=time_from_seconds(message.get("timestamp")),
            where={"to": phone or scoped},
        )
    content = _parse_content(message, kind)
    if content is None:
        return DeliveryStatus(key=key, vendor_id=key, state="unknown", code=_unknown_code(message, kind))
    verdict, token, text = content
    context = _map(message, "context")
    about = _text(context, "id")
    unclear, where = "", {"to": phone or scoped, "message": key}
    if context.get("forwarded") or context.get("frequently_forwarded"):
        # Forwarded words or buttons are another person's, and never an answer.
        verdict, token, text = None, "", ""
    if kind == _REACTION:
        unclear, about = _REACTION, _text(_map(message, _REACTION), "message_id")
    if "group_id" in message:
        # In a group, the words also address others. Reply only to the author.
        verdict, token, unclear, where = None, "", _GROUP, {"to": phone or scoped}
    return InboundAction(
        key=key,
        identity=identity,
        token=token,
        vendor_ids=(about,) if about else (),
        verdict=verdict,
        text=text,
        unclear=unclear,
        said_at=time_from_seconds(message.get("timestamp")),
        where=where,
    )


def _parse_content(message: Mapping[str, Any], kind: str) -> tuple[Verdict | None, str, str] | None:
    """Return verdict, token and words, None for an unknown type."""
    if kind == "text":
        return None, "", _text(_map(message, "text"), "body")
    if kind in _WORDLESS:
        return None, "", ""
    if kind == _REACTION:
        emoji = _text(_map(message, _REACTION), "emoji")
        # Without an emoji, the person removed a reaction.
        return (None, "", emoji) if emoji else None
    payload = ""
    if kind == "interactive":
        payload = _text(_map(_map(message, "interactive"), "button_reply"), "id")
    elif kind == "button":
        payload = _text(_map(message, "button"), "payload")
    else:
        return None
    # Other programs' buttons and forms have no meaning here.
    return (*(read_button(payload) or (None, "")), "")


def _unknown_code(message: Mapping[str, Any], kind: str) -> str:
    """Return the code to record for an unknown message, such as `system user_id_update` or `reaction`."""
    more = _text(_map(message, "system"), "type")
    return one_line(f"{kind or 'message'} {more}".strip(), _CODE_CHARS).text


def _sender(
    message: Mapping[str, Any], contacts: Mapping[str, Mapping[str, Any]], lone: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the business-scoped id and the number of a message's sender; either may be missing.

    `contacts` are by number. `lone` is the only contact with the only message: it is the sender unless the two have
    different numbers.
    """
    phone = _text(message, "from")
    fits = not phone or not _text(lone, "wa_id")
    contact = (contacts.get(phone) if phone else None) or (lone if fits else {})
    return _text(message, "from_user_id") or _text(contact, "user_id"), phone or _text(contact, "wa_id")


def _status(report: Mapping[str, Any], window: ServiceWindow) -> DeliveryStatus | None:
    name, state = _text(report, "id"), _text(report, "status")
    if not name:
        return None
    errors = [_number(each, "code") for each in _maps(report, "errors")]
    if OUTSIDE in errors:
        for to in ("recipient_id", "recipient_user_id"):
            window.shut(_text(report, to))
    known = _STATES.get(state)
    new = one_line(state, _CODE_CHARS).text
    return DeliveryStatus(
        # Meta repeats these for up to 7 days, and not in order.
        key=f"{name}:{new}",
        vendor_id=name,
        state=known or "unknown",
        code=str(errors[0]) if errors else "" if known else new,
        message=ERRORS.meaning(errors[0]) if errors else "",
    )


def _map(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def _maps(of: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    values = of.get(name)
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


def _text(of: Mapping[str, Any], name: str) -> str:
    """Half of a surrogate pair is replaced."""
    value = of.get(name)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _number(of: Mapping[str, Any], name: str) -> int:
    """Also accepts digits. 0 for anything else."""
    value = of.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        return int(value)
    return value if isinstance(value, int) and abs(value) < 10**12 else 0


_SIGNATURE: Final = "x-hub-signature-256"
_CHALLENGE_CHARS: Final = 200
_NAME_CHARS: Final = 80
_log = logging.getLogger(__name__)


class WhatsAppOptions(ChannelOptions):
    """One number of one business account. Without a `template` only who has written within 24 hours is reached."""

    phone_number_id: str = Field(description="Meta's id of our number, in digits.", pattern=r"^[0-9]{1,30}$")
    token: str = Field(description="A system user's token, env:NAME.", min_length=1)
    # With an empty secret, an attacker could sign.
    app_secret: str = Field(description="The app's secret, env:NAME; Meta signs with it.", min_length=1)
    verify_token: str = Field(
        description="Any secret of your own, env:NAME, that Meta is given with the address.", min_length=8
    )
    template: str = Field("", description="The name of an approved template, as docs/channels.md has it.")
    languages: dict[str, str] = Field(
        default={"en": "en"},
        description="The template's languages: a person's locale, and Meta's code for it. The first is for all others.",
        min_length=1,
    )
    business_account_id: str = Field(
        "", description="Meta's id of the business account; with it, `channels check` looks at the template."
    )
    version: str = Field("v24.0", description="The version of the Graph API.", pattern=r"^v[0-9]+\.[0-9]+$")
    graph_url: str = Field("https://graph.facebook.com", description="Where the Graph API is.")


class WhatsApp(Channel):
    """See the module. A person's identity is the business-scoped id if Meta sends it, else the number."""

    kind: ClassVar[str] = "whatsapp"
    identity: ClassVar[str] = "whatsapp"
    options: ClassVar[type[ChannelOptions]] = WhatsAppOptions
    per_second: ClassVar[float] = 20.0

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._options = WhatsAppOptions.model_validate(context.options)
        self._window = ServiceWindow()
        bearer = {"authorization": f"Bearer {self._options.token}"}
        self._http = self.attach(VendorHttp(ERRORS, headers=bearer))
        self._signature = HmacSignature(_SIGNATURE, (self._options.app_secret.encode(),), "sha256=")

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        """If the window may be closed, sends the template, which is always allowed."""
        formatter, template = self.formatter(card.person), self._options.template
        about = before.vendor_id if before is not None else ""
        sent: SentCard | None = None
        # Without a template, try anyway: the person may have written before this process started.
        if not template or self._window.is_open(card.address, self.context.clock().timestamp()):
            sent = await self._free(card.address, card_message(card, formatter, self.assurance), about, template)
        if sent is None:
            language = template_language(self._options.languages, card.person.locale or ENGLISH)
            message = template_message(card, formatter, self.assurance, template, language)
            sent = await self._send(card.address, message, about)
        return sent

    def draws_whole(self, card: OutboundCard) -> bool:
        formatter = self.formatter(card.person)
        return draws_whole(card, formatter, self.assurance)

    async def close(self, sent: SentCard, closed: ClosedCard) -> SentCard | None:
        """Sends nothing to the person who decided here, or who has not written lately."""
        request = closed.request
        if (request.decided_channel, request.decided_by) == (self.kind, closed.person.id):
            return None
        message = closed_message(closed, self.formatter(closed.person))
        try:
            return await self._send(str(sent.handle.get("to", closed.address)), message, sent.vendor_id)
        except NotDelivered as error:
            if error.code != str(OUTSIDE):
                raise
            _log.info(
                "no notice on `%s` that `%s` has ended: the person's last message is too old", self.name, request.id
            )
            return None

    async def notify(self, notice: OutboundNotice) -> SentCard:
        """Reaches only a person who wrote within 24 hours: the template is for cards."""
        return await self._send(notice.address, text_message(notice.text), "")

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard | None:
        return await self._send(str(where["to"]), text_message(reply.text), str(where.get("message", "")))

    def verify(self, raw: InboundRequest) -> None:
        """Meta signs its posts, without a time. It verifies an address by a token that we chose."""
        if raw.method == "GET":
            check_same(raw.query.get("hub.verify_token", ""), self._options.verify_token)
            if raw.query.get("hub.mode") != "subscribe":
                raise Forged("Meta asks nothing else")
            return
        self._signature.check(raw, self.context.clock())

    def parse(self, raw: InboundRequest) -> InboundBatch:
        if raw.method == "GET":
            challenge = raw.query.get("hub.challenge", "")[:_CHALLENGE_CHARS]
            return InboundBatch(body=challenge.encode("ascii", "ignore"))
        return read_payload(raw, self._options.phone_number_id, self._window)

    async def check(self) -> list[CheckFinding]:
        options, remedy = self._options, "check `token` and `phone_number_id`"
        try:
            answer = await self._call("GET", options.phone_number_id, fields="display_phone_number,verified_name")
        except NotDelivered as error:
            return [CheckFinding(False, f"Meta refuses access to the number: {error.message} ({error.code})", remedy)]
        number, name = (
            one_line(str(answer.get(field) or "?"), _NAME_CHARS).text
            for field in ("display_phone_number", "verified_name")
        )
        address = f"{self.context.public_url}/channels/{self.name}"
        findings = [
            CheckFinding(True, f"the number is {number} of `{name}`"),
            CheckFinding(True, f"Meta is to call {address} (the webhook field `messages`)"),
        ]
        return findings + await self._templates()

    async def _free(self, address: str, message: Message, about: str, template: str) -> SentCard | None:
        """Send a message that needs an open window. None if the window is closed and there is a template instead."""
        try:
            return await self._send(address, message, about)
        except NotDelivered as error:
            if error.code != str(OUTSIDE) or not template:
                raise
            self._window.shut(address)
            return None

    async def _send(self, address: str, message: Message, about: str) -> SentCard:
        to = recipient(address)
        if to is None:
            why = "an identity of WhatsApp is a number in digits alone, or a business-scoped id such as US.1349"
            raise NotDelivered(why, code="address", again=False)
        body = {"messaging_product": "whatsapp", "recipient_type": "individual", **to, **message}
        if about:
            body["context"] = {"message_id": about}
        answer = await self._call("POST", f"{self._options.phone_number_id}/messages", body)
        messages = answer.get("messages")
        first = messages[0] if isinstance(messages, list) and messages else {}
        name = first.get("id") if isinstance(first, dict) else ""
        return SentCard(vendor_id=str(name or ""), handle={"to": address})

    async def _templates(self) -> list[CheckFinding]:
        options = self._options
        if not options.template:
            return [CheckFinding(True, "without a `template` only who has written within 24 hours is sent anything")]
        if not options.business_account_id:
            remedy = "give `business_account_id`"
            return [CheckFinding(False, f"whether the template `{options.template}` is approved is not known", remedy)]
        path = f"{options.business_account_id}/message_templates"
        try:
            answer = await self._call(
                "GET", path, name=options.template, fields="name,language,status,components", limit="200"
            )
        except NotDelivered as error:
            remedy = "check `business_account_id`, and that the token has whatsapp_business_management"
            return [
                CheckFinding(False, f"Meta refuses access to the templates: {error.message} ({error.code})", remedy)
            ]
        return check_templates(options.template, list(options.languages.values()), answer)

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str
    ) -> Mapping[str, Any]:
        """Raises `NotDelivered` with Meta's own code."""
        url = f"{self._options.graph_url}/{self._options.version}/{path}"
        return await self._http.call(method, url, body=body, query=query)


CHANNEL = WhatsApp
