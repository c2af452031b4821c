"""WhatsApp, by Meta's Cloud API: cards with two buttons, answered by a press or in words.

Whoever has written within 24 hours may be sent anything; everybody else only a template that Meta approved. Nothing
that is sent can be edited: that a request is over is a message of its own, to whom one may be sent.
"""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pydantic import Field

from signoff.channels.base import Channel, ChannelContext, ChannelOptions
from signoff.channels.channel_errors import Forged, NotDelivered
from signoff.channels.envelopes import (
    ChannelReply,
    CheckFinding,
    ClosedCard,
    InboundBatch,
    InboundRequest,
    OutboundCard,
    SentCard,
)
from signoff.channels.signature_check import HmacSignature, check_same
from signoff.channels.vendor_http import VendorHttp
from signoff.channels.whatsapp.errors import ERRORS, OUTSIDE
from signoff.channels.whatsapp.messages import (
    Message,
    card_message,
    closed_message,
    draws_whole,
    recipient,
    template_message,
    text_message,
)
from signoff.channels.whatsapp.payloads import read_payload
from signoff.channels.whatsapp.templates import check_templates, template_language
from signoff.channels.whatsapp.window import ServiceWindow
from signoff.formats.visible_text import one_line
from signoff.texts.catalogue import ENGLISH

_SIGNATURE: Final = "x-hub-signature-256"
_CHALLENGE_CHARS: Final = 200
_NAME_CHARS: Final = 80
_log = logging.getLogger(__name__)


class WhatsAppOptions(ChannelOptions):
    """One number of one business account. Without a `template` only who has written within 24 hours is reached."""

    phone_number_id: str = Field(description="Meta's id of our number, in digits.", pattern=r"^[0-9]{1,30}$")
    token: str = Field(description="A system user's token, env:NAME.", min_length=1)
    # With an empty one anybody could sign.
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
    """See the module. People are known by their business-scoped id where Meta tells it, else by their number."""

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
        """See `Channel`. To whom the window may be closed the template is sent, which always may be."""
        formatter, template = self.formatter(card.person), self._options.template
        about = before.vendor_id if before is not None else ""
        sent: SentCard | None = None
        # Without a template it is tried all the same: who wrote before this process began is not known here.
        if not template or self._window.is_open(card.address, self.context.clock().timestamp()):
            sent = await self._free(card.address, card_message(card, formatter, self.assurance), about, template)
        if sent is None:
            language = template_language(self._options.languages, card.person.locale or ENGLISH)
            message = template_message(card, formatter, self.assurance, template, language)
            sent = await self._send(card.address, message, about)
        return sent

    def draws_whole(self, card: OutboundCard) -> bool:
        """See `Channel`."""
        formatter = self.formatter(card.person)
        return draws_whole(card, formatter, self.assurance)

    async def close(self, sent: SentCard, closed: ClosedCard) -> SentCard | None:
        """See `Channel`. Who decided it here has been told; who has not written lately cannot be."""
        request = closed.request
        if (request.decided_channel, request.decided_by) == (self.kind, closed.person.id):
            return None
        message = closed_message(closed, self.formatter(closed.person))
        try:
            return await self._send(str(sent.handle.get("to", closed.address)), message, sent.vendor_id)
        except NotDelivered as error:
            if error.code != str(OUTSIDE):
                raise
            _log.info("nobody is told on `%s` that `%s` is over: it is too long ago", self.name, request.id)
            return None

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard | None:
        """See `Channel`."""
        return await self._send(str(where["to"]), text_message(reply.text), str(where.get("message", "")))

    def verify(self, raw: InboundRequest) -> None:
        """See `Channel`. Meta signs what it brings, without a time; an address it tries by a word that we chose."""
        if raw.method == "GET":
            check_same(raw.query.get("hub.verify_token", ""), self._options.verify_token)
            if raw.query.get("hub.mode") != "subscribe":
                raise Forged("Meta asks nothing else")
            return
        self._signature.check(raw, self.context.clock())

    def parse(self, raw: InboundRequest) -> InboundBatch:
        """See `Channel`."""
        if raw.method == "GET":
            challenge = raw.query.get("hub.challenge", "")[:_CHALLENGE_CHARS]
            return InboundBatch(body=challenge.encode("ascii", "ignore"))
        return read_payload(raw, self._options.phone_number_id, self._window)

    async def check(self) -> list[CheckFinding]:
        """See `Channel`."""
        options, remedy = self._options, "check `token` and `phone_number_id`"
        try:
            answer = await self._call("GET", options.phone_number_id, fields="display_phone_number,verified_name")
        except NotDelivered as error:
            return [CheckFinding(False, f"Meta refuses to tell of the number: {error.message} ({error.code})", remedy)]
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
        """Sends what only an open window lets pass; None where it is closed and there is a template instead."""
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
            return [CheckFinding(False, f"Meta refuses to tell of templates: {error.message} ({error.code})", remedy)]
        return check_templates(options.template, list(options.languages.values()), answer)

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str
    ) -> Mapping[str, Any]:
        """Calls Meta and returns its answer. Raises `NotDelivered` with Meta's own code."""
        url = f"{self._options.graph_url}/{self._options.version}/{path}"
        return await self._http.call(method, url, body=body, query=query)


CHANNEL = WhatsApp
