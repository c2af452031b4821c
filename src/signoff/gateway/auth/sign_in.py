"""Everything for sign-in: tokens, provider, browser sessions, and the record of refusals."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from signoff.channels.base import Channel
from signoff.contracts.errors import NotFound
from signoff.gateway.auth.browser_session import BrowserSessions
from signoff.gateway.auth.email_sign_in import EmailSignIn, check_email_sign_in
from signoff.gateway.auth.failed_sign_ins import FailedSignIns
from signoff.gateway.auth.oidc import provider_of
from signoff.gateway.auth.provider_people import ProviderPeople
from signoff.gateway.auth.visitor import Visitors
from signoff.gateway.deps import GatewayDeps
from signoff.store.tokens import Tokens

if TYPE_CHECKING:
    from signoff.gateway.auth.oidc_provider import OidcProvider


class SignIn:
    """The ways to sign in at one gateway. Raises `ConfigError` for incomplete provider settings."""

    def __init__(
        self,
        deps: GatewayDeps,
        visitors: Visitors,
        logins: ProviderPeople,
        channel: Callable[[str], Channel | None] = lambda name: None,
    ) -> None:
        check_email_sign_in(deps)
        self.email = EmailSignIn(deps, channel)
        self.tokens = Tokens(deps.store)
        self.entrance = BrowserSessions(deps, visitors)
        self.refusals = FailedSignIns(deps, "inbox")
        self.logins = logins
        self._provider = provider_of(deps.settings, deps.clock, deps.secrets)

    @property
    def provider(self) -> "OidcProvider":
        """Raises `NotFound` if the settings name no provider."""
        if self._provider is None:
            raise NotFound("this gateway has no sign-in provider")
        return self._provider

    @property
    def provider_name(self) -> str:
        return "" if self._provider is None else self._provider.name
