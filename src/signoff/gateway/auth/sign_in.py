"""Holds what signing in needs: tokens, the provider, browsers' sessions, and the record of what was refused."""

from typing import TYPE_CHECKING

from signoff.contracts.errors import NotFound
from signoff.gateway.auth.browser_session import BrowserSessions
from signoff.gateway.auth.failed_sign_ins import FailedSignIns
from signoff.gateway.auth.oidc import provider_of
from signoff.gateway.auth.provider_people import ProviderPeople
from signoff.gateway.auth.visitor import Visitors
from signoff.gateway.deps import GatewayDeps
from signoff.store.tokens import Tokens

if TYPE_CHECKING:
    from signoff.gateway.auth.oidc_provider import OidcProvider


class SignIn:
    """Holds the ways in of one gateway. Raises `ConfigError` for half a provider."""

    def __init__(self, deps: GatewayDeps, visitors: Visitors, logins: ProviderPeople) -> None:
        self.tokens = Tokens(deps.store)
        self.entrance = BrowserSessions(deps, visitors)
        self.refusals = FailedSignIns(deps, "inbox")
        self.logins = logins
        self._provider = provider_of(deps.settings, deps.clock, deps.secrets)

    @property
    def provider(self) -> "OidcProvider":
        """The provider of the settings. Raises `NotFound` where they name none."""
        if self._provider is None:
            raise NotFound("nobody signs in with a provider here")
        return self._provider

    @property
    def provider_name(self) -> str:
        """The provider's name; "" without one."""
        return "" if self._provider is None else self._provider.name
