import base64
import contextlib
import functools
import hashlib
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from app_server import running_app
from authlib.oidc.core.util import create_half_hash
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from signoff.temporal.embedded_server import free_port

CLIENT, SECRET = "signoff", "a secret of the client"
REDIRECT = "http://127.0.0.1:8300/login/oidc/callback"


def new_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig", "alg": "RS256"})


@functools.cache
def usual_key() -> RSAKey:
    """Creating a key takes 0.2 s."""
    return new_key()


@dataclass
class Provider:
    issuer: str
    key: RSAKey = field(default_factory=usual_key)
    claims: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    discovery: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    id_token: str | None = None
    redirect: str = REDIRECT

    def signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid, **self.header}, claims, self.key)

    def app(self) -> Starlette:
        routes = [
            Route("/.well-known/openid-configuration", self._discovery),
            Route("/keys", self._keys),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
        ]
        return Starlette(routes=routes)

    async def _discovery(self, request: Request) -> Response:
        self.asked.append("discovery")
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }
        return JSONResponse(found | self.discovery)

    async def _keys(self, request: Request) -> Response:
        self.asked.append("keys")
        return JSONResponse(KeySet([self.key]).as_dict(private=False))

    async def _authorize(self, request: Request) -> Response:
        given = dict(request.query_params)
        assert given["response_type"] == "code"
        assert (given["client_id"], given["redirect_uri"]) == (CLIENT, self.redirect)
        assert given["code_challenge_method"] == "S256"
        assert "openid" in given["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = given
        return RedirectResponse(f"{self.redirect}?{urlencode({'code': code, 'state': given['state']})}")

    async def _token(self, request: Request) -> Response:
        self.asked.append("token")
        form = {name: str(value) for name, value in (await request.form()).items()}
        basic = base64.b64encode(f"{CLIENT}:{SECRET.replace(' ', '%20')}".encode()).decode()
        plain = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if request.headers.get("authorization") not in (f"Basic {basic}", f"Basic {plain}"):
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        given = self.codes.pop(form.get("code", ""), None)
        if given is None or form.get("redirect_uri") != self.redirect or form["grant_type"] != "authorization_code":
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if challenge.rstrip(b"=").decode() != given["code_challenge"]:
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        now = int(time.time())
        access = secrets.token_urlsafe(16)
        claims = {
            "iss": self.issuer,
            "sub": "ana-at-work",
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": given["nonce"],
            "at_hash": create_half_hash(access, "RS256").decode(),
        } | self.claims
        claims = {name: value for name, value in claims.items() if value is not None}
        body = {"access_token": access, "token_type": "Bearer", "expires_in": 300}
        written = self.signed(claims) if self.id_token is None else self.id_token
        return JSONResponse(body | ({"id_token": written} if written else {}))


def answer_of(location: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}


@contextlib.asynccontextmanager
async def running_provider() -> AsyncIterator[Provider]:
    port = free_port()
    provider = Provider(f"http://127.0.0.1:{port}")
    async with running_app(provider.app(), port):
        yield provider
