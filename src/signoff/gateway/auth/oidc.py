"""Finds the OpenID Connect provider that the settings name, and says how strongly a sign-in there proves somebody."""

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
    """Raises `ConfigError` where the gateway's secret at the provider is not where the settings name it."""
    if settings.oidc_issuer is None or settings.oidc_client_secret is None:
        return
    try:
        await secrets.read(settings.oidc_client_secret)
    except (SecretMissing, Unavailable) as error:
        raise ConfigError(f"`oidc_client_secret` needs {error.message}", field="oidc_client_secret") from None


def provider_of(settings: Settings, clock: Clock, secrets: SecretProvider) -> "OidcProvider | None":
    """Returns the provider that the settings name, or None; `secrets` reads the gateway's secret there.

    Raises `ConfigError` for half a provider, and where the extra `oidc` is not installed.
    """
    if settings.oidc_issuer is None:
        return None
    if not settings.oidc_client_id:
        raise ConfigError(
            "`oidc_issuer` is set, but not by which name the provider knows the gateway: set SIGNOFF_OIDC_CLIENT_ID",
            field="oidc_client_id",
        )
    if settings.oidc_tenants and not settings.oidc_tenant_claim:
        raise ConfigError(
            "`oidc_tenants` is set, but not in which claim its values stand: set SIGNOFF_OIDC_TENANT_CLAIM",
            field="oidc_tenant_claim",
        )
    if lacks := missing_extra("oidc"):
        raise ConfigError(f"`oidc_issuer` {lacks}", field="oidc_issuer")
    # Its libraries are there only where somebody signs in with a provider.
    from signoff.gateway.auth.oidc_provider import OidcProvider  # noqa: PLC0415

    return OidcProvider(settings, clock, secrets)


def assurance_of(claims: Mapping[str, Any], mfa_acr: Collection[str] = ()) -> Assurance:
    """Returns `mfa` where `amr` lists it, or `acr` is one of `mfa_acr` to the letter; else `session`."""
    methods, context = claims.get("amr"), claims.get("acr")
    # `mfa` is a word of RFC 8176 for `amr`. For `acr` there is none that all share, and one that holds these letters
    # may say the opposite (`urn:example:no-mfa`): what it means only whoever set the provider up knows.
    proved = isinstance(methods, list) and "mfa" in methods
    return "mfa" if proved or (isinstance(context, str) and context in mfa_acr) else "session"
