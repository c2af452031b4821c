"""Apprise: notifies people by any of its services, without answers.

It reports only whether the service accepted a text. Messages cannot be edited, so the end of a request is a new
message.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import quote

from pydantic import Field

from signoff.channels import (
    LEAST_CHARS,
    CardLimits,
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
    SentCard,
    card_words,
    closing_text,
)
from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import show_code
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.plugins import BasePlugin

IDENTITY: Final = "{identity}"
"""The placeholder for a person's identity in the service's address."""
SECONDS: Final = 20.0
"""The time limit of a service."""
_MOST_CHARS: Final = 20_000
_BETWEEN: Final = 2
"""Characters between title and body, for services without titles."""
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


class AppriseOptions(ChannelOptions):
    """One service of apprise's. Each person has an address there."""

    url_secret: str = Field(
        description="The service's address as apprise writes it, env:NAME; `{identity}` in it stands for the person's."
    )


class Apprise(Channel):
    """See the module."""

    kind: ClassVar[str] = "apprise"
    identity: ClassVar[str] = "apprise"
    options: ClassVar[type[ChannelOptions]] = AppriseOptions
    answers: ClassVar[bool] = False
    per_second: ClassVar[float] = 5.0

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._url = AppriseOptions.model_validate(context.options).url_secret
        # Import it here: it takes about a second, which only users of this channel should pay.
        import apprise  # noqa: PLC0415

        self._library: Any = apprise
        scheme = _SCHEME.match(self._url)
        if scheme is None:
            raise ConfigError("`url_secret` is no address such as `ntfys://ntfy.sh/{identity}`", field="url_secret")
        if IDENTITY not in self._url:
            # A reader of a card may answer from its link, in the recipient's name.
            why = "its cards would all go to one place, and each is for one person: put `{identity}` into `url_secret`"
            raise ConfigError(why, field="url_secret")
        services = self._library.NotificationManager()
        self._service = scheme[1].lower()
        if self._service not in services:
            near = did_you_mean(self._service, services.schemas())
            raise ConfigError(f"apprise has no service {quote_name(self._service)}{near}", field="url_secret")

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        formatter = self.formatter(card.person)
        place = self._place(card.address)
        max_chars = max(min(place.body_maxlen - _BETWEEN, _MOST_CHARS), LEAST_CHARS)
        words = card_words(card, formatter, how="link", limits=CardLimits(whole=max_chars))
        # The first paragraph is the title.
        title, _, body = words.text.partition("\n\n")
        await self._send(place, title, body)
        return before or SentCard(handle={"address": card.address})

    async def close(self, sent: SentCard, closed: ClosedCard) -> None:
        """Send a new message; the card stays unchanged."""
        words = closing_text(closed, self.formatter(closed.person))
        await self._send(
            self._place(str(sent.handle.get("address", closed.address))), show_code(closed.request.code), words
        )

    async def notify(self, notice: OutboundNotice) -> None:
        await self._send(self._place(notice.address), notice.title, notice.text)

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> None:
        raise NotDelivered("nobody answers by apprise", code="no_answers", again=False)

    def verify(self, raw: InboundRequest) -> None:
        raise Forged("nobody answers by apprise")

    def parse(self, raw: InboundRequest) -> InboundBatch:
        raise Malformed("nobody answers by apprise")

    async def check(self) -> list[CheckFinding]:
        """Apprise can only send."""
        return [CheckFinding(True, f"apprise has `{self._service}`; whether it takes a card, `channels test` shows")]

    def _place(self, address: str) -> Any:
        """Raises `NotDelivered`."""
        library = self._library
        # The text is a model's: fill in no templates or escapes, and store nothing on disk.
        asset = library.AppriseAsset(
            allow_templates=False, interpret_escapes=False, storage_mode="memory", service_timeout=SECONDS
        )
        # Quote everything, so that an identity cannot add a host, path or parameter to the service's address.
        url = self._url.replace(IDENTITY, quote(address, safe=""))
        place = library.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
        if place is None:
            why = f"apprise cannot send by `{self._service}` to this person; see its log, `url_secret` and the identity"
            raise NotDelivered(why, code="address", again=False)
        # Send the card in parts if the service has too little room.
        place.overflow_mode = library.OverflowMode.SPLIT
        return place

    async def _send(self, place: Any, title: str, body: str) -> None:
        sender = self._library.Apprise()
        sender.add(place)
        if not await sender.async_notify(body=body, title=title, body_format=self._library.NotifyFormat.TEXT):
            # Treat each refusal as temporary: apprise reports only whether the service accepted the message.
            why = f"`{self._service}` did not take it; the log of apprise says why"
            raise NotDelivered(why, code="refused", again=True)


class ApprisePlugin(BasePlugin):
    """Adds the channel `apprise`."""

    name: ClassVar[str] = "apprise"

    def channels(self) -> Mapping[str, type[Channel]]:
        return {Apprise.kind: Apprise}
