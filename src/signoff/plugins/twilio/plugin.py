"""Sends and receives WhatsApp or SMS through Twilio: cards as text with a code, or as a template with two buttons.

One channel uses one of the two: an SMS never counts as WhatsApp, even from the same number. Sent messages cannot be
edited: the end of a request is a separate message.
"""

import asyncio
import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Executor
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Self

import httpx2
from pydantic import Field, StringConstraints, model_validator

from signoff.channels import (
    Channel,
    ChannelContext,
    ChannelOptions,
    ChannelReply,
    CheckFinding,
    ClosedCard,
    Forged,
    InboundBatch,
    InboundRequest,
    NotDelivered,
    OutboundCard,
    OutboundNotice,
    SentCard,
    VendorHttp,
    check_same,
    time_from_date_header,
)
from signoff.channels.whatsapp import template_language
from signoff.contracts.limits import KIB
from signoff.formats.replace import replace
from signoff.formats.visible_text import one_line
from signoff.plugins import BasePlugin
from signoff.plugins.twilio.errors import ERRORS, OUTSIDE
from signoff.plugins.twilio.forms import form_fields, list_spellings, read_form, signature
from signoff.plugins.twilio.messages import (
    PREFIX,
    Fields,
    Via,
    card_fields,
    check_template,
    closed_fields,
    fields_draw_whole,
    is_address,
    template_fields,
    text_fields,
)

_SIGNATURE: Final = "x-twilio-signature"
_JSON: Final = "bodySHA256"
_ENGLISH: Final = "en"
_NAME_CHARS: Final = 80
_KEPT: Final = 10_000
"""The most answers in memory. Their authors do not get the end of the request as a second message."""
_TIME_SECONDS: Final = 5.0
"""The time limit for asking Twilio for a message's time, while Twilio waits for our response to its form."""
_log = logging.getLogger(__name__)


class TwilioOptions(ChannelOptions):
    """One sender of one account."""

    via: Via = Field(description="`whatsapp` or `sms`.")
    account_sid: str = Field(description="The account's SID, which begins with AC.", pattern=r"^AC[0-9a-fA-F]{32}$")
    # With an empty token, an attacker could sign.
    auth_token: str = Field(description="The account's auth token, env:NAME; Twilio signs with it.", min_length=1)
    sender: str = Field(
        description="Our number, such as +14155238886, a short code, or the SID of a Messaging Service.",
        pattern=r"^(\+[1-9][0-9]{4,17}|[0-9]{4,8}|MG[0-9a-fA-F]{32})$",
    )
    content_sids: dict[str, Annotated[str, StringConstraints(pattern=r"^HX[0-9a-fA-F]{32}$")]] = Field(
        default={},
        description="Approved templates for WhatsApp: a person's locale, and the SID. The first is for all others.",
    )
    api_url: str = Field("https://api.twilio.com", description="Where Twilio's API is.", pattern=r"^https?://[!-~]+$")
    content_url: str = Field(
        "https://content.twilio.com",
        description="Where Twilio's Content API is, which `channels check` asks about templates.",
        pattern=r"^https?://[!-~]+$",
    )

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if self.content_sids and self.via != "whatsapp":
            raise ValueError("`content_sids` are for `via: whatsapp`; an SMS has no buttons")
        return self


class Twilio(Channel):
    """See the module. A person's identity is the address as Twilio writes it."""

    kind: ClassVar[str] = "twilio"
    identity: ClassVar[str] = "twilio"
    options: ClassVar[type[ChannelOptions]] = TwilioOptions
    # Twilio signs each field, so even a stranger's form must be parsed. A form with a message has a few KiB.
    max_bytes: int = 64 * KIB

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._options = TwilioOptions.model_validate(context.options)
        if self._options.via == "sms":
            # The sender of an SMS can be forged.
            self.assurance = "link"
        self._address = f"{context.public_url}/channels/{context.name}"
        self._answered: OrderedDict[tuple[str, str], None] = OrderedDict()
        signed_in = httpx2.BasicAuth(self._options.account_sid, self._options.auth_token)
        self._http = self.attach(VendorHttp(ERRORS, auth=signed_in))

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        """A template is always allowed. A text on WhatsApp needs a person's message within 24 hours."""
        formatter, options = self.formatter(card.person), self._options
        if options.content_sids:
            content = template_language(options.content_sids, card.person.locale or _ENGLISH)
            fields = template_fields(card, formatter, self.assurance, content)
        else:
            fields = card_fields(card, formatter, self.assurance, options.via)
        return await self._send(card.address, fields)

    def draws_whole(self, card: OutboundCard) -> bool:
        formatter = self.formatter(card.person)
        return fields_draw_whole(card, formatter, self.assurance)

    async def close(self, sent: SentCard, closed: ClosedCard) -> SentCard | None:
        """Skip the person who decided here, and a person outside of WhatsApp's 24 hours."""
        to, name = str(sent.handle.get("to", closed.address)), closed.request.id
        if (name, to) in self._answered and closed.request.decided_by == closed.person.id:
            return None
        try:
            return await self._send(to, closed_fields(closed, self.formatter(closed.person), self._options.via))
        except NotDelivered as error:
            if error.code != str(OUTSIDE):
                raise
            _log.info("no message on `%s` about the end of `%s`: the 24 hours have passed", self.name, name)
            return None

    async def notify(self, notice: OutboundNotice) -> SentCard:
        """WhatsApp takes it only within 24 hours of a person's message: the templates are for cards."""
        return await self._send(notice.address, text_fields(notice.text, self._options.via))

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard | None:
        to, receipt = str(where["to"]), reply.receipt
        sent = await self._send(to, text_fields(reply.text, self._options.via))
        if receipt is not None and receipt.status == "accepted" and receipt.state != "pending":
            self._answered[receipt.approval_id, to] = None
            while len(self._answered) > _KEPT:
                self._answered.popitem(last=False)
        return sent

    def verify(self, raw: InboundRequest) -> None:
        """Twilio signs the called address and every field of the form, without a time.

        The address is our public one, regardless of a request's host. Requests that Twilio signs as JSON are not
        messages.
        """
        query = raw.url.partition("?")[2]
        # With such an address no field is signed: an attacker who has seen one could send any form to it.
        if raw.method != "POST" or _JSON in query or _JSON in raw.query:
            raise Forged("Twilio brings messages as forms")
        try:
            fields = form_fields(raw.body)
        except ValueError:
            raise Forged("it is no form") from None
        called = list_spellings(f"{self._address}?{query}" if query else self._address)
        marks = (signature(self._options.auth_token, url, fields) for url in called)
        check_same(raw.headers.get(_SIGNATURE, ""), *marks)

    def parse(self, raw: InboundRequest) -> InboundBatch:
        return read_form(raw, self._options.sender, self._options.via)

    async def read(self, raw: InboundRequest, threads: Executor) -> InboundBatch:
        """A form has no time, so this asks Twilio when it received the words."""
        batch = await super().read(raw, threads)
        if all(each.token or not each.text for each in batch.actions):
            return batch
        actions = [replace(each, said_at=await self._said_at(each.key)) for each in batch.actions]
        return dataclasses.replace(batch, actions=tuple(actions))

    async def check(self) -> list[CheckFinding]:
        try:
            answer = await self._call("GET", self._api(".json"))
        except NotDelivered as error:
            what = f"Twilio refuses access to the account: {error.message} ({error.code})"
            return [CheckFinding(False, what, "check `account_sid` and `auth_token`")]
        status, name = (
            one_line(str(answer.get(field) or "?"), _NAME_CHARS).text for field in ("status", "friendly_name")
        )
        account = CheckFinding(status == "active", f"the account `{name}` is {status}", "see Twilio's console")
        return [account, await self._check_callback(), *await self._templates()]

    async def _check_callback(self) -> CheckFinding:
        """WhatsApp and Messaging Services are not checked."""
        sender, remedy = self._options.sender, f"set {self._address} (POST) as the webhook for incoming messages"
        if self._options.via != "sms" or not sender.startswith("+"):
            return CheckFinding(True, f"Twilio must call {self._address} (POST) for each incoming message")
        try:
            answer = await self._call("GET", self._api("/IncomingPhoneNumbers.json"), PhoneNumber=sender)
        except NotDelivered as error:
            return CheckFinding(False, f"Twilio refuses access to {sender}: {error.message} ({error.code})", remedy)
        listed = answer.get("incoming_phone_numbers")
        numbers = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        if not numbers:
            return CheckFinding(False, f"the account has no number {sender}", "check `sender`")
        url = numbers[0].get("sms_url")
        shown = one_line(str(url or "nobody"), 2 * _NAME_CHARS).text
        return CheckFinding(
            url in list_spellings(self._address), f"when {sender} is written to, Twilio calls {shown}", remedy
        )

    async def _templates(self) -> list[CheckFinding]:
        options = self._options
        if options.via == "whatsapp" and not options.content_sids:
            return [CheckFinding(True, "without `content_sids` only who has written within 24 hours is sent anything")]
        return [await self._template(content) for content in dict.fromkeys(options.content_sids.values())]

    async def _template(self, content: str) -> CheckFinding:
        url = f"{self._options.content_url}/v1/Content/{content}"
        try:
            return check_template(
                content, await self._call("GET", url), await self._call("GET", f"{url}/ApprovalRequests")
            )
        except NotDelivered as error:
            what = f"Twilio refuses access to the template {content}: {error.message} ({error.code})"
            return CheckFinding(False, what, "check `content_sids`")

    async def _said_at(self, message: str) -> datetime | None:
        """Return `None` if Twilio does not respond with a time."""
        try:
            async with asyncio.timeout(_TIME_SECONDS):
                answer = await self._call("GET", self._api(f"/Messages/{message}.json"))
        except (NotDelivered, TimeoutError) as error:
            _log.warning("Twilio did not return the time of a message on `%s`: %s", self.name, type(error).__name__)
            return None
        return time_from_date_header(answer.get("date_created"))

    async def _send(self, address: str, fields: Fields) -> SentCard:
        options = self._options
        if not is_address(address, options.via):
            example = f"{PREFIX[options.via]}+351912345678"
            why = f"an identity of Twilio is written as Twilio does, here such as {example}"
            raise NotDelivered(why, code="address", again=False)
        service = options.sender.startswith("MG")
        ours = {"MessagingServiceSid": options.sender} if service else {"From": PREFIX[options.via] + options.sender}
        # Twilio accepts most messages that it cannot deliver, and reports the failure later to this callback.
        form = {"To": address, **ours, "StatusCallback": self._address, **fields}
        answer = await self._call("POST", self._api("/Messages.json"), form)
        return SentCard(vendor_id=str(answer.get("sid") or ""), handle={"to": address})

    def _api(self, path: str) -> str:
        return f"{self._options.api_url}/2010-04-01/Accounts/{self._options.account_sid}{path}"

    async def _call(self, method: str, url: str, form: Fields | None = None, **query: str) -> Mapping[str, Any]:
        """Raises `NotDelivered` with Twilio's own code."""
        return await self._http.call(method, url, form=form, query=query)


class TwilioPlugin(BasePlugin):
    """Adds the channel `twilio`."""

    name: ClassVar[str] = "twilio"

    def channels(self) -> Mapping[str, type[Channel]]:
        return {Twilio.kind: Twilio}
