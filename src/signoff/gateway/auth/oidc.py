"""Makes the OpenID Connect provider of the settings, and rates the assurance of its sign-ins."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from signoff.contracts.clock import Clock
from signoff.contracts.decision import Assurance
from signoff.contracts.errors import ConfigError, SecretMissing, Unavailable
from signoff.keys.secrets import SecretProvider
from signoff.registry.extras import missing_extra
from signoff.settings import Settings

if TYPE_CHECKING:
    from signoff.gateway.auth.oidc_provider import OidcProvider


async def check_secret(settings: Settings, secrets: SecretProvider) -> None:
    """Raise `ConfigError` if the gateway's client secret is missing."""
    if settings.oidc_issuer is None or settings.oidc_client_secret is None:
        return
    try:
        await secrets.read(settings.oidc_client_secret)
    except (SecretMissing, Unavailable) as error:
        raise ConfigError(f"`oidc_client_secret` needs {error.message}", field="oidc_client_secret") from None


def provider_of(settings: Settings, clock: Clock, secrets: SecretProvider) -> "OidcProvider | None":
    """Return `None` without a provider.

    Raises `ConfigError` for incomplete settings, and if the extra `oidc` is not installed.
    """
    if settings.oidc_issuer is None:
        return None
    if not settings.oidc_client_id:
        raise ConfigError(
            "`oidc_issuer` is set without a client id: set SIGNOFF_OIDC_CLIENT_ID",
            field="oidc_client_id",
        )
    if settings.oidc_tenants and not settings.oidc_tenant_claim:
        raise ConfigError(
            "`oidc_tenants` is set without the claim that holds its values: set SIGNOFF_OIDC_TENANT_CLAIM",
            field="oidc_tenant_claim",
        )
    if lacks := missing_extra("oidc"):
        raise ConfigError(f"`oidc_issuer` {lacks}", field="oidc_issuer")
    # The libraries are installed only with the extra.
    from signoff.gateway.auth.oidc_provider import OidcProvider  # noqa: PLC0415

    return OidcProvider(settings, clock, secrets)


def assurance_of(claims: Mapping[str, Any], mfa_acr: Collection[str] = ()) -> Assurance:
    """Return `mfa` if `amr` lists it or `acr` is exactly one of `mfa_acr`, else `session`."""
    methods, context = claims.get("amr"), claims.get("acr")
    # RFC 8176 defines `mfa` for `amr`. `acr` has no common value, and one with these letters may mean the opposite
    # (`urn:example:no-mfa`). Only the provider's operator knows its meaning.
    proved = isinstance(methods, list) and "mfa" in methods
    return "mfa" if proved or (isinstance(context, str) and context in mfa_acr) else "session"
