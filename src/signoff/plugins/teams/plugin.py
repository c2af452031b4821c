"""Sends cards by a bot of Microsoft Teams to people's own conversations with it. People answer by buttons or in words.

The Bot Framework posts activities to `/channels/<name>`. A bot can write only into a conversation that it knows: its
place is stored from a verified activity, such as the installation of the bot.
"""

import json
import re
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace as with_fields
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

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
    Malformed,
    NotDelivered,
    OutboundCard,
    OutboundNotice,
    RoomCard,
    SentCard,
    read_object,
)
from signoff.contracts.limits import KIB
from signoff.contracts.person import Person
from signoff.plugins import BasePlugin
from signoff.plugins.teams.activities import CHANNEL, read_activity, room_contact, tenants_of, vendor_id
from signoff.plugins.teams.cards import (
    CARD_TYPE,
    Part,
    card_content,
    closed_content,
    draws_whole,
    room_content,
    text_content,
)
from signoff.plugins.teams.clouds import CLOUDS, Cloud, is_foreign
from signoff.plugins.teams.connector import GONE, Connector

REPLY_SECONDS: Final = 5.0
"""How long a press waits for its reply. Teams shows an error after some 15 seconds."""
MESSAGE_TYPE: Final = "application/vnd.microsoft.activity.message"
_GUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_IDENTITY: Final = re.compile(rf"{_GUID}:{_GUID}\Z")
_LOCAL: Final = ("127.0.0.1", "localhost")


def _check_safe(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
        raise ValueError("an address that gets a secret or decides on keys needs https")
    return url


def _check_origin(url: str) -> str:
    parts = urlsplit(_check_safe(url))
    if url != f"{parts.scheme}://{parts.netloc}" or "@" in parts.netloc:
        raise ValueError("it is no origin such as https://smba.trafficmanager.net")
    return url


SafeUrl = Annotated[str, AfterValidator(_check_safe)]
Origin = Annotated[str, AfterValidator(_check_origin)]


class TeamsOptions(ChannelOptions):
    """One bot, for people of one tenant."""

    app_id: str = Field(description="The bot's app id, a GUID in lower case.", pattern=rf"^{_GUID}$")
    app_secret: str = Field(description="The bot's client secret, env:NAME.", min_length=1)
    tenant_id: str = Field(
        description="The tenant of the bot and its people, a GUID in lower case.", pattern=rf"^{_GUID}$"
    )
    cloud: Cloud = Field("public", description="Microsoft's cloud of the tenant: public, gcc_high or dod.")
    service_urls: tuple[Origin, ...] | None = Field(
        None, description="The allowed origins of the connector, which gets the bot's token. By default the cloud's."
    )
    login_url: SafeUrl | None = Field(None, description="Microsoft's sign-in. By default the cloud's.")
    metadata_url: SafeUrl | None = Field(
        None, description="The OpenID document of the Bot Framework's keys. By default the cloud's."
    )

    @field_validator("service_urls", "login_url", "metadata_url")
    @classmethod
    def _check_cloud(cls, value: tuple[str, ...] | str | None, info: ValidationInfo) -> tuple[str, ...] | str | None:
        cloud = info.data.get("cloud")
        named = (value,) if isinstance(value, str) else value or ()
        if cloud is not None and any(is_foreign(cloud, each) for each in named):
            raise ValueError(f"it is an address of another cloud than `{cloud}`")
        return value


class Teams(Channel):
    """See the module. A person's identity is `TENANT:OBJECT`, both GUIDs of Entra ID in lower case."""

    kind: ClassVar[str] = "teams"
    identity: ClassVar[str] = "teams"
    options: ClassVar[type[ChannelOptions]] = TeamsOptions
    max_bytes: int = 256 * KIB
    rooms: ClassVar[bool] = True

    def __init__(self, context: ChannelContext) -> None:
        # Import late: the library is an extra.
        from signoff.plugins.teams.signing_keys import SigningKeys  # noqa: PLC0415

        super().__init__(context)
        options = self._options = TeamsOptions.model_validate(context.options)
        cloud = CLOUDS[options.cloud]
        login_url = f"{(options.login_url or cloud.login_url).rstrip('/')}/{options.tenant_id}/oauth2/v2.0/token"
        services = frozenset(cloud.services if options.service_urls is None else options.service_urls)
        connector = Connector(options.app_id, options.app_secret, login_url, cloud.scope, services, context.clock)
        self._connector = self.attach(connector)
        metadata_url = options.metadata_url or cloud.metadata_url
        self._keys = self.attach(SigningKeys(metadata_url, cloud.issuer, options.app_id, context.clock))

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        summary, content = card_content(card, self.formatter(card.person), self.assurance, self.context.public_url)
        return await self._post(await self._place(card.address), content, summary)

    def draws_whole(self, card: OutboundCard) -> bool:
        return draws_whole(card, self.formatter(card.person), self.assurance, self.context.public_url)

    async def close(self, sent: SentCard, closed: ClosedCard) -> SentCard | None:
        """Replace the card by the result, without buttons that decide."""
        summary, content = closed_content(closed, self.formatter(closed.person))
        name = sent.handle.get("activity")
        if not name:
            # Teams never acknowledged the card. Without its id it cannot be edited, so send a new message.
            return await self._post(await self._place(closed.address), content, summary)
        await self._connector.update(sent.handle, str(name), self._activity(sent.handle, content, summary))
        return None

    async def deliver_room(self, card: RoomCard, before: SentCard | None) -> SentCard:
        """A room is a channel of a team that has installed the bot."""
        content = room_content(card)
        if before is not None and before.handle.get("activity"):
            activity = self._activity(before.handle, content, card.heading)
            await self._connector.update(before.handle, str(before.handle["activity"]), activity)
            return before
        place = await self.context.contacts.find(room_contact(card.address))
        if place is None:
            why = "the bot knows no such channel: its team must install it, and mention it in the channel once"
            raise NotDelivered(why, code="no_conversation", again=False)
        return await self._post(place, content, card.heading)

    async def notify(self, notice: OutboundNotice) -> SentCard:
        place = await self._place(notice.address)
        activity = {**self._address(place), "text": notice.text, "textFormat": "plain"}
        return self._sent(place, await self._connector.post(place, activity))

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard | None:
        if "identity" in where:
            # The press was in a room. The reply is for that person alone.
            where = await self._place(str(where["identity"]))
        activity = {**self._address(where), "text": reply.text, "textFormat": "plain"}
        return self._sent(where, await self._connector.post(where, activity))

    async def read(self, raw: InboundRequest, threads: Executor) -> InboundBatch:
        """Fetches Microsoft's keys if they are old or lack the token's."""
        await self._keys.prepare(raw.headers.get("authorization", ""))
        return await super().read(raw, threads)

    def verify(self, raw: InboundRequest) -> None:
        """The Bot Framework signs no body, only a token: for this bot, this service and a short time.

        The service must also be on the list, since the bot's own token is sent to it.
        """
        service = self._keys.check(raw.headers.get("authorization", ""), CHANNEL)
        try:
            activity = read_object(raw.body)
        except Malformed:
            raise Forged("it is no activity") from None
        if str(activity.get("serviceUrl")).rstrip("/") != service.rstrip("/"):
            raise Forged("its token is for another service")
        if not self._connector.trusts(service):
            raise Forged("its service is not on the list")
        if activity.get("channelId") != CHANNEL:
            raise Forged("it comes from another channel of the Bot Framework")
        if tenants_of(activity) != {self._options.tenant_id}:
            raise Forged("it comes from another tenant")

    def parse(self, raw: InboundRequest) -> InboundBatch:
        activity = read_object(raw.body)
        batch = read_activity(activity, self._options.tenant_id)
        if activity.get("type") != "invoke" or not batch.actions:
            return batch
        # Teams shows an error for a response without these words.
        person = Person(id="", locale=batch.actions[0].where["locale"])
        pending = self.formatter(person).text("receipt.pending")
        return with_fields(_responding(batch, MESSAGE_TYPE, pending), reply_seconds=REPLY_SECONDS)

    def respond(self, received: InboundBatch, reply: ChannelReply) -> InboundBatch:
        """A decided request's card has no further use, so the reply replaces it until `close` updates it."""
        receipt = reply.receipt
        if receipt is not None and receipt.status == "accepted" and receipt.state != "pending":
            return _responding(received, CARD_TYPE, text_content(reply.text))
        return _responding(received, MESSAGE_TYPE, reply.text)

    async def check(self) -> list[CheckFinding]:
        address = f"{self.context.public_url}/channels/{self.name}"
        findings = [CheckFinding(True, f"the bot's messaging endpoint must be {address}")]
        if not address.startswith("https://"):
            remedy = "give the gateway an https address"
            findings = [CheckFinding(False, f"Teams calls no address without TLS, such as {address}", remedy)]
        try:
            await self._connector.sign_in()
            findings.append(CheckFinding(True, "Microsoft accepts `app_id` and `app_secret`"))
        except NotDelivered as error:
            remedy = "check `app_id`, `app_secret` and `tenant_id`"
            findings.append(CheckFinding(False, f"the bot cannot sign in: {error.message}", remedy))
        try:
            await self._keys.check_access()
            findings.append(CheckFinding(True, "Microsoft's keys can be fetched"))
        except NotDelivered as error:
            remedy = "allow requests to `metadata_url`"
            findings.append(CheckFinding(False, f"Microsoft's keys cannot be fetched: {error.message}", remedy))
        return findings

    async def check_room(self, room: str) -> CheckFinding:
        remedy = "add the bot's app to the team, and mention it in the channel once"
        place = await self.context.contacts.find(room_contact(room))
        if place is None:
            return CheckFinding(False, f"room {room}: the bot does not know this channel", remedy)
        try:
            await self._connector.read_roster(place)
        except NotDelivered as error:
            if error.code in GONE:
                return CheckFinding(False, f"room {room}: the team no longer has the bot's app", remedy)
            return CheckFinding(False, f"room {room}: {error.message}", "try again" if error.again else "")
        return CheckFinding(True, f"room {room}: the team has the bot's app")

    async def _place(self, identity: str) -> Mapping[str, Any]:
        if not _IDENTITY.match(identity):
            why = "an identity of Teams is TENANT:OBJECT, two ids of Entra ID in lower case"
            raise NotDelivered(why, code="address", again=False)
        place = await self.context.contacts.find(identity)
        if place is None:
            why = "the bot knows no conversation with this person: they must install it or write to it"
            raise NotDelivered(why, code="no_conversation", again=False)
        return place

    async def _post(self, place: Mapping[str, Any], content: Part, summary: str) -> SentCard:
        return self._sent(place, await self._connector.post(place, self._activity(place, content, summary)))

    def _sent(self, place: Mapping[str, Any], name: str) -> SentCard:
        if not name:
            raise NotDelivered("Teams named no message", code="no_answer", again=True)
        kept = {key: place[key] for key in ("service", "conversation", "user")}
        return SentCard(vendor_id=vendor_id(str(place["conversation"]), name), handle={**kept, "activity": name})

    def _activity(self, place: Mapping[str, Any], content: Part, summary: str) -> dict[str, Any]:
        """`summary` is the text of the notification."""
        attachment = {"contentType": CARD_TYPE, "content": content}
        return {**self._address(place), "summary": summary, "attachments": [attachment]}

    def _address(self, place: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "type": "message",
            "from": {"id": f"28:{self._options.app_id}"},
            **({"recipient": {"id": place["user"]}} if place["user"] else {}),
            "conversation": {"id": place["conversation"], "tenantId": self._options.tenant_id},
            "channelData": {"tenant": {"id": self._options.tenant_id}},
        }


def _responding(batch: InboundBatch, kind: str, value: Any) -> InboundBatch:
    """The HTTP status is that of the exchange; the body has the status of the action."""
    body = json.dumps({"statusCode": 200, "type": kind, "value": value}).encode()
    return with_fields(batch, status=200, body=body, media_type="application/json")


class TeamsPlugin(BasePlugin):
    """Adds the channel `teams`."""

    name: ClassVar[str] = "teams"

    def channels(self) -> Mapping[str, type[Channel]]:
        return {Teams.kind: Teams}
