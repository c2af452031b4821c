"""Speaks to an OpenID Connect provider, and believes an ID token only if everything about it is right.

Imported only where the settings name a provider: its libraries are an extra.
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
"""How long the provider may take to answer."""
FRESH: Final = timedelta(hours=1)
"""How long what the provider publishes of itself is believed without asking again."""
AGAIN: Final = timedelta(seconds=30)
"""How often its keys are fetched at most because a token names an unknown one."""
LEEWAY_SECONDS: Final = 60
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Never `none`, and none whose key the client knows as well."""
_ANSWER_BYTES: Final = 1_000_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Published:
    """The provider's published endpoints and keys, at a moment."""

    endpoints: Mapping[str, Any]
    keys: KeySet
    at: datetime


class OidcProvider:
    """Talks to one provider, as the settings name it. `clock` gives the time by which tokens are judged.

    `secrets` reads the gateway's secret there for each sign-in: a new one needs no new gateway.
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
        """Returns the provider's name for people: its host."""
        return urlsplit(self.issuer).hostname or self.issuer

    async def check(self) -> None:
        """Raises `Unavailable` where the provider does not answer, or calls itself by another name."""
        await self._load_keys()

    async def begin(self) -> tuple[str, SignInAttempt]:
        """Returns where to send the browser, and what to remember of it meanwhile. Raises `Unavailable`."""
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
        """Returns the verified claims of whoever came back with `answer`, the callback's parameters.

        Raises `Refused` (`unauthenticated`) for an answer that proves nothing, `Unavailable`.
        """
        # Else another site could finish a sign-in of its own in this browser (RFC 6749, 10.12).
        if answer.get("state") != attempt.state:
            raise _refusal("it was not begun in this browser, or was begun again since")
        # A provider that says who it is (RFC 9207) must be the one that was asked.
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
                    # A code that was caught on its way back is worthless without this (RFC 7636).
                    code_verifier=attempt.verifier,
                )
        except OAuthError:
            raise _refusal("the provider does not know this sign-in any more") from None
        except (httpx2.HTTPError, ValueError):
            raise self._away() from None
        written = tokens.get("id_token")
        if not isinstance(written, str):
            raise _refusal("the provider sent no ID token")
        return await self._check_claims(written, attempt, str(tokens.get("access_token", "")))

    async def _check_claims(self, written: str, attempt: SignInAttempt, access_token: str) -> Mapping[str, Any]:
        try:
            token = await self._open(written)
            # Issuer and audience are ours to name; the library asks for the times, `nonce` and `azp`, and compares
            # `at_hash`.
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
        # Claims of a wrong type raise whatever Python raises. The class is told alone: messages may quote the token.
        except (JoseError, ValueError, TypeError) as error:
            raise _refusal(f"the provider's ID token cannot be believed ({type(error).__name__})") from None
        found: Mapping[str, Any] = dict(claims)
        return found

    async def _open(self, written: str) -> jwt.Token:
        published = await self._load_keys()
        try:
            return jwt.decode(written, published.keys, algorithms=ALGORITHMS)
        except InvalidKeyIdError:
            # The provider may have begun to sign with a new key.
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
                # OpenID Connect Discovery 4.3: a document that speaks for another issuer would let one stand in for the
                # other.
                if endpoints.get("issuer") != self.issuer:
                    raise Unavailable(
                        f"the provider at `{self.issuer}` calls itself by another name; correct the issuer"
                    )
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    self._check(name, endpoints.get(name))
                keys = KeySet.import_key_set(await _object(client, endpoints["jwks_uri"]))  # type: ignore[arg-type]
        except (httpx2.HTTPError, JoseError, ValueError, TypeError, KeyError):
            raise self._away() from None
        return _Published(endpoints, keys, now)

    def _check(self, name: str, address: object) -> None:
        scheme = urlsplit(address).scheme if isinstance(address, str) else ""
        # Plain http is for an issuer that has it itself, such as one on the developer's machine.
        if scheme != "https" and scheme != urlsplit(self.issuer).scheme:
            raise Unavailable(f"the provider at `{self.issuer}` publishes no safe `{name}`")

    async def _client(self) -> Any:
        secret = await self._secret()
        return AsyncOAuth2Client(
            client_id=self._client_id,
            client_secret=secret,
            # A public client has no secret to show; the verifier alone protects its code.
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
            # It was there at the start; people are told that signing in does not work, and not by which reference.
            _log.warning("`oidc_client_secret` needs %s", error.message)
            raise self._away() from None

    def _away(self) -> Unavailable:
        return Unavailable(f"the sign-in provider `{self.name}` does not answer as one; try again, or use a token")


@functools.cache
def _load_trust() -> ssl.SSLContext:
    """Says whom TLS trusts, read once: reading the list anew for each sign-in holds up everybody for its 25 ms."""
    return httpx2.create_ssl_context()


async def _object(client: httpx2.AsyncClient, address: str) -> dict[str, Any]:
    answer = await client.get(address)
    answer.raise_for_status()
    if len(answer.content) > _ANSWER_BYTES:
        raise ValueError
    found = read_json(answer.content)
    if not isinstance(found, dict):
        raise ValueError
    return found


def _refusal(why: str) -> Refused:
    return Refused(f"this sign-in came to nothing: {why}", code="unauthenticated")
