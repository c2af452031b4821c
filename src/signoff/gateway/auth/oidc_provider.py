"""An OpenID Connect provider. An ID token is accepted only if every check of it passes.

Imported only if the settings name a provider: the libraries are an extra.
"""

import functools
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from authlib.common.security import generate_token
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from signoff.contracts.clock import Clock
from signoff.contracts.errors import Refused, SecretMissing, Unavailable
from signoff.formats.json_reader import read_json
from signoff.gateway.auth.sign_in_attempt import CALLBACK, SignInAttempt
from signoff.keys.secrets import SecretProvider
from signoff.settings import Settings

SCOPE: Final = "openid email profile"
SECONDS: Final = 10.0
"""Timeout for requests to the provider."""
FRESH: Final = timedelta(hours=1)
"""Lifetime of the provider's cached endpoints and keys."""
AGAIN: Final = timedelta(seconds=30)
"""Shortest pause between two fetches of the keys for tokens with an unknown key."""
LEEWAY_SECONDS: Final = 60
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Excludes `none` and all algorithms with a shared key, which the client knows too."""
_ANSWER_BYTES: Final = 1_000_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Published:
    """The provider's endpoints and keys, and the time of the fetch."""

    endpoints: Mapping[str, Any]
    keys: KeySet
    at: datetime


class OidcProvider:
    """Client of one provider. `clock` gives the time for the checks of tokens.

    `secrets` reads the gateway's client secret for each sign-in, so a new secret needs no restart.
    """

    def __init__(self, settings: Settings, clock: Clock, secrets: SecretProvider) -> None:
        self.issuer = settings.oidc_issuer or ""
        self._client_id = settings.oidc_client_id
        self._secret_at = settings.oidc_client_secret
        self._secrets = secrets
        self._callback = settings.public_url + CALLBACK
        self._clock = clock
        self._published: _Published | None = None

    @property
    def name(self) -> str:
        return urlsplit(self.issuer).hostname or self.issuer

    async def check(self) -> None:
        """Raise `Unavailable` if the provider does not answer or has another issuer."""
        await self._load_keys()

    async def begin(self) -> tuple[str, SignInAttempt]:
        """Return the URL for the browser, and values to remember until it returns. Raises `Unavailable`."""
        published = await self._load_keys()
        attempt = SignInAttempt(generate_token(32), generate_token(32), generate_token(48))
        async with await self._client() as client:
            url, _ = client.create_authorization_url(
                published.endpoints["authorization_endpoint"],
                state=attempt.state,
                nonce=attempt.nonce,
                code_verifier=attempt.verifier,
            )
        return str(url), attempt

    async def finish(self, attempt: SignInAttempt, answer: Mapping[str, str]) -> Mapping[str, Any]:
        """Return verified claims.

        `answer` holds the callback's parameters. Raises `Refused` (`unauthenticated`) if a check fails, and
        `Unavailable`.
        """
        # Without this, another site could finish its own sign-in in this browser (RFC 6749, 10.12).
        if answer.get("state") != attempt.state:
            raise _refusal("it was not begun in this browser, or was begun again since")
        # A provider that names itself (RFC 9207) must be the one of this sign-in.
        if answer.get("iss", self.issuer) != self.issuer:
            raise _refusal("the answer comes from another provider")
        if "error" in answer or not answer.get("code"):
            raise _refusal("the provider did not agree")
        published = await self._load_keys()
        try:
            async with await self._client() as client:
                tokens = await client.fetch_token(
                    published.endpoints["token_endpoint"],
                    grant_type="authorization_code",
                    code=answer["code"],
                    # Makes an intercepted code worthless (RFC 7636).
                    code_verifier=attempt.verifier,
                )
        except OAuthError:
            raise _refusal("the provider does not know this sign-in, or it has expired") from None
        except (httpx2.HTTPError, ValueError):
            raise self._away() from None
        written = tokens.get("id_token")
        if not isinstance(written, str):
            raise _refusal("the provider sent no ID token")
        return await self._check_claims(written, attempt, str(tokens.get("access_token", "")))

    async def _check_claims(self, written: str, attempt: SignInAttempt, access_token: str) -> Mapping[str, Any]:
        try:
            token = await self._open(written)
            # Issuer and audience are set here. The library checks the times, `nonce` and `azp`, and compares `at_hash`.
            claims = CodeIDToken(
                token.claims,
                token.header,
                options={
                    "iss": {"essential": True, "value": self.issuer},
                    "aud": {"essential": True, "value": self._client_id},
                },
                params={"nonce": attempt.nonce, "client_id": self._client_id, "access_token": access_token},
            )
            claims.validate(now=int(self._clock().timestamp()), leeway=LEEWAY_SECONDS)
        # Claims of a wrong type can raise any of these. Show the class alone: messages may quote the token.
        except (JoseError, ValueError, TypeError) as error:
            raise _refusal(f"the provider's ID token cannot be believed ({type(error).__name__})") from None
        verified: Mapping[str, Any] = dict(claims)
        return verified

    async def _open(self, written: str) -> jwt.Token:
        published = await self._load_keys()
        try:
            return jwt.decode(written, published.keys, algorithms=ALGORITHMS)
        except InvalidKeyIdError:
            # The provider may have a new signing key.
            if self._clock() - published.at < AGAIN:
                raise
            self._published = None
            return jwt.decode(written, (await self._load_keys()).keys, algorithms=ALGORITHMS)

    async def _load_keys(self) -> _Published:
        now = self._clock()
        if self._published is None or now - self._published.at > FRESH:
            self._published = await self._ask(now)
        return self._published

    async def _ask(self, now: datetime) -> _Published:
        try:
            async with httpx2.AsyncClient(timeout=SECONDS, verify=_load_trust()) as client:
                endpoints = await _object(client, self.issuer.rstrip("/") + "/.well-known/openid-configuration")
                # OpenID Connect Discovery 4.3: a document for another issuer would let one issuer impersonate the
                # other.
                if endpoints.get("issuer") != self.issuer:
                    raise Unavailable(f"the provider at `{self.issuer}` names another issuer; correct `oidc_issuer`")
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    self._check(name, endpoints.get(name))
                keys = KeySet.import_key_set(await _object(client, endpoints["jwks_uri"]))  # type: ignore[arg-type]
        except (httpx2.HTTPError, JoseError, ValueError, TypeError, KeyError):
            raise self._away() from None
        return _Published(endpoints, keys, now)

    def _check(self, name: str, address: object) -> None:
        scheme = urlsplit(address).scheme if isinstance(address, str) else ""
        # Accept plain http only if the issuer uses it too, as on a developer's machine.
        if scheme != "https" and scheme != urlsplit(self.issuer).scheme:
            raise Unavailable(f"the provider at `{self.issuer}` publishes no safe `{name}`")

    async def _client(self) -> Any:
        secret = await self._secret()
        return AsyncOAuth2Client(
            client_id=self._client_id,
            client_secret=secret,
            # A public client has no secret. The verifier alone protects its code.
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
            scope=SCOPE,
            redirect_uri=self._callback,
            code_challenge_method="S256",
            timeout=SECONDS,
            verify=_load_trust(),
        )

    async def _secret(self) -> str:
        try:
            return "" if self._secret_at is None else (await self._secrets.read(self._secret_at)).strip()
        except SecretMissing as error:
            # The secret existed at the start. The browser learns only that sign-in fails, not the secret's reference.
            _log.warning("`oidc_client_secret` needs %s", error.message)
            raise self._away() from None

    def _away(self) -> Unavailable:
        return Unavailable(f"the sign-in provider `{self.name}` does not answer as one; try again, or use a token")


@functools.cache
def _load_trust() -> ssl.SSLContext:
    """Read once: each read blocks all requests for 25 ms."""
    return httpx2.create_ssl_context()


async def _object(client: httpx2.AsyncClient, address: str) -> dict[str, Any]:
    answer = await client.get(address)
    answer.raise_for_status()
    if len(answer.content) > _ANSWER_BYTES:
        raise ValueError
    document = read_json(answer.content)
    if not isinstance(document, dict):
        raise ValueError
    return document


def _refusal(why: str) -> Refused:
    return Refused(f"this sign-in failed: {why}", code="unauthenticated")
