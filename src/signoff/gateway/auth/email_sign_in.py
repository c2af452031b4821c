"""Sends links for the sign-in by email.

Known and unknown addresses get the same answer at the same time: the search and the email come after it.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final

from signoff.channels.base import Channel
from signoff.channels.envelopes import OutboundNotice
from signoff.contracts.errors import ConfigError, SignoffError
from signoff.contracts.person import Person
from signoff.gateway.deps import GatewayDeps
from signoff.languages.catalogue import text
from signoff.people.directory import EMAIL, declared_people, normalise_identity
from signoff.store.messages.sign_in_links import SignInLink, SignInLinks
from signoff.texts.formatter import formatter_for

PATH: Final = "/login/email"
AT_ONCE: Final = 20
"""Addresses that one gateway searches and writes to at once. It ignores more, as floods."""
_log = logging.getLogger(__name__)


class EmailSignIn:
    """Signs people in by a link to their declared address. `channel` finds a running channel by its name."""

    def __init__(self, deps: GatewayDeps, channel: Callable[[str], Channel | None]) -> None:
        self._deps = deps
        self._channel = channel
        self._sending: set[asyncio.Task[None]] = set()
        self.links = SignInLinks(deps.store)

    @property
    def is_on(self) -> bool:
        return self._deps.settings.email_sign_in != ""

    def ask(self, address: str, browser: str, then: str) -> None:
        """Send a link to the person of an address in the background, if there is exactly one.

        `browser` is the secret of the asking browser.
        """
        if len(self._sending) >= AT_ONCE:
            self._deps.store.count_refusal("sign_in")
            return
        task = asyncio.create_task(self._send(address, browser, then))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def settle(self) -> None:
        """Wait until no email is on its way."""
        await asyncio.gather(*self._sending)

    def person(self, link: SignInLink | None) -> Person | None:
        """Return the active person of a link."""
        person = None if link is None else self._deps.people.find(link.person, link.tenant)
        return person if person is not None and person.active else None

    async def _send(self, address: str, browser: str, then: str) -> None:
        name = self._deps.settings.email_sign_in
        channel, to = self._channel(name), normalise_identity(EMAIL, address)
        if channel is None or channel.kind != EMAIL:
            _log.warning("channel `%s` sends no sign-in links: it does not run", name)
            return
        everybody = declared_people(self._deps.people).all() if to else ()
        found = [each for each in everybody if each.active and to in each.identities.get(EMAIL, ())]
        if len(found) != 1:
            self._deps.store.count_refusal("sign_in")
            return
        person = found[0]
        try:
            link = await self.links.make(SignInLink(person.tenant, person.id, then), browser)
            if link is None:
                return
            language = formatter_for(person, self._deps.clock()).language
            words = text("login.mail.text", language, link=f"{self._deps.settings.public_url}{PATH}/{link}")
            title = text("login.mail.subject", language)
            token = secrets.token_hex(16)
            await channel.notify(
                OutboundNotice(
                    token=token, kind="sign_in", title=title, text=words, language=language, person=person, address=to
                )
            )
        except SignoffError as error:
            _log.warning("no sign-in link was sent to %r: %s", person.id, error.message)


def check_email_sign_in(deps: GatewayDeps) -> None:
    """Raise `ConfigError` for a channel without links, and if a provider is set, which proves more."""
    name = deps.settings.email_sign_in
    if not name:
        return
    declared = deps.catalog.channels.declared.get(name)
    if declared is None or declared.kind != EMAIL:
        why = f"the manifest has no channel `{name}` of kind `email`"
        raise ConfigError(f"SIGNOFF_EMAIL_SIGN_IN: {why}", field="email_sign_in", value=name)
    if deps.settings.oidc_issuer is not None:
        raise ConfigError(
            "SIGNOFF_EMAIL_SIGN_IN and SIGNOFF_OIDC_ISSUER exclude each other: a mailbox proves less than the provider",
            field="email_sign_in",
            value=name,
        )
