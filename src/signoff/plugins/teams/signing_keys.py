"""Checks the tokens of the Bot Framework's requests with its published keys.

Microsoft replaces these keys. The channel fetches them each day, and once within a pause for unknown keys.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from signoff.channels import Forged, NotDelivered, VendorErrors, VendorHttp
from signoff.contracts.clock import Clock
from signoff.formats.json_reader import NotJson, read_json

ALGORITHM: Final = "RS256"
LEEWAY_SECONDS: Final = 300
FRESH: Final = timedelta(hours=24)
KEPT: Final = timedelta(days=5)
"""How long keys are used while Microsoft cannot be asked for new ones."""
AGAIN: Final = timedelta(seconds=60)
"""The shortest pause between two fetches. Strangers can send any number of unknown keys."""
_SCHEME: Final = "Bearer "
_TOKEN_CHARS: Final = 8_192
_KEYS: Final = 2_000
"""Microsoft publishes hundreds."""
_NOT_BELIEVED: Final = "its token cannot be believed"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SignerKey:
    """A published key, and the channels for which it may sign."""

    key: RSAKey
    endorsements: frozenset[str]


@dataclass
class SigningKeys:
    """The keys behind the OpenID document at `metadata_url`, for tokens of `issuer` to the bot `app_id`."""

    metadata_url: str
    issuer: str
    app_id: str
    clock: Clock
    _http: VendorHttp = field(default_factory=lambda: VendorHttp(VendorErrors("Microsoft's list of keys")), init=False)
    _keys: Mapping[str, SignerKey] = field(default_factory=dict, init=False)
    _fetched: datetime | None = field(default=None, init=False)
    _tried: datetime | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def close(self) -> None:
        await self._http.close()

    async def prepare(self, authorization: str) -> None:
        """Fetch the keys if the header needs it. Raises `Forged`, and `NotDelivered` without usable keys."""
        name = _key_name(_token(authorization))
        if not self._lacks(name):
            return
        async with self._lock:
            if not self._lacks(name):
                return
            now = self.clock()
            if self._tried is None or now - self._tried >= AGAIN:
                self._tried = now
                await self._fetch(now)
        if self._fetched is None or self.clock() - self._fetched > KEPT:
            raise NotDelivered("Microsoft's keys cannot be fetched", code="keys", again=True)

    def check(self, authorization: str, channel: str) -> str:
        """Check that a key with an endorsement for `channel` signed the token, and return the token's service.

        Uses the keys of the last fetch. Raises `Forged`.
        """
        token = _token(authorization)
        signer = self._keys.get(_key_name(token))
        if signer is None:
            raise Forged("its key is unknown")
        if channel not in signer.endorsements:
            raise Forged("its key may not sign for this channel")
        service = self._claims(token, signer.key).get("serviceurl")
        if not isinstance(service, str) or not service:
            raise Forged("its token names no service")
        return service

    async def check_access(self) -> None:
        """Fetch the keys now. Raises `NotDelivered`."""
        await self._read()

    def _lacks(self, name: str) -> bool:
        return self._fetched is None or self.clock() - self._fetched > FRESH or name not in self._keys

    def _claims(self, token: str, key: RSAKey) -> Mapping[str, Any]:
        wanted = jwt.JWTClaimsRegistry(
            int(self.clock().timestamp()),
            LEEWAY_SECONDS,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self.app_id},
            exp={"essential": True},
        )
        try:
            claims = jwt.decode(token, key, algorithms=[ALGORITHM]).claims
            wanted.validate(claims)
        # Claims of a wrong type can raise any of these. Their messages may quote the token.
        except (JoseError, ValueError, TypeError, OverflowError, RecursionError):
            raise Forged(_NOT_BELIEVED) from None
        if claims["aud"] != self.app_id:
            raise Forged("its token is also for others")
        return claims

    async def _fetch(self, now: datetime) -> None:
        """The old keys stay after a failure."""
        try:
            self._keys, self._fetched = await self._read(), now
        except NotDelivered as error:
            _log.warning("Microsoft's keys cannot be fetched: %s", error.message)

    async def _read(self) -> Mapping[str, SignerKey]:
        document = await self._http.call("GET", self.metadata_url)
        address = document.get("jwks_uri")
        # Another host would decide whose requests are Microsoft's.
        ours = isinstance(address, str) and urlsplit(address)[:2] == urlsplit(self.metadata_url)[:2]
        if document.get("issuer") != self.issuer or not ours:
            raise NotDelivered("the document of keys is not the Bot Framework's", code="metadata", again=True)
        listed = (await self._http.call("GET", str(address))).get("keys")
        keys = dict(filter(None, map(_read_key, listed[:_KEYS]))) if isinstance(listed, list) else {}
        if not keys:
            raise NotDelivered("Microsoft's list has no key", code="metadata", again=True)
        return keys


def _read_key(written: Any) -> tuple[str, SignerKey] | None:
    if not isinstance(written, dict) or written.get("kty") != "RSA" or not isinstance(written.get("kid"), str):
        return None
    named = written.get("endorsements")
    endorsements = (
        frozenset(each for each in named if isinstance(each, str)) if isinstance(named, list) else frozenset()
    )
    try:
        key = RSAKey.import_key({name: written[name] for name in ("kty", "n", "e")})
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return written["kid"], SignerKey(key, endorsements)


def _token(authorization: str) -> str:
    token = authorization.removeprefix(_SCHEME)
    if token == authorization or not token.isascii() or len(token) > _TOKEN_CHARS or token.count(".") != 2:
        raise Forged("it has no token")
    return token


def _key_name(token: str) -> str:
    """Read the header before any key is fetched for it."""
    written = token.partition(".")[0]
    try:
        header = read_json(base64.b64decode(written + "=" * (-len(written) % 4), altchars=b"-_", validate=True))
    except (NotJson, binascii.Error, ValueError):
        raise Forged(_NOT_BELIEVED) from None
    name = header.get("kid") if isinstance(header, dict) and header.get("alg") == ALGORITHM else None
    if not isinstance(name, str) or not name:
        raise Forged(_NOT_BELIEVED)
    return name
