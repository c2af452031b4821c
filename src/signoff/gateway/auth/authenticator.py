"""Authenticates a request by its personal token or cookie, and checks its scope."""

from typing import Final, Literal

from starlette.requests import Request

from signoff.contracts.decision import at_least
from signoff.contracts.errors import Refused
from signoff.contracts.person import Person
from signoff.gateway.auth.caller import CALLER, SESSION, AuthenticatedCaller, SignInNeeded, cookie_name, is_session
from signoff.gateway.auth.failed_sign_ins import FailedSignIns
from signoff.gateway.auth.provider_people import ProviderPeople
from signoff.gateway.deps import GatewayDeps
from signoff.store.browser_sessions import StoredSessions
from signoff.store.tokens import Scope, Tokens

Credential = Literal["token", "cookie", "key"]
"""`key`: a personal token in the header `X-Api-Key`, for programs that know no other."""
API_KEY: Final = "x-api-key"
_TOKEN_NEEDED: Final = "send a personal token: `Authorization: Bearer sgf_...`"


class Authenticator:
    """Authenticates people by their tokens and cookies.

    The API takes personal tokens only: other sites' pages would send cookies along. Pages take the cookie of a
    signed-in browser. Without either, the development profile alone lets a request in, and the request names its
    person.
    """

    def __init__(self, deps: GatewayDeps, logins: ProviderPeople) -> None:
        self._deps = deps
        self._logins = logins
        self._tokens = Tokens(deps.store)
        self._sessions = StoredSessions(deps.store)
        self._refusals = FailedSignIns(deps, "api")

    async def identify(self, request: Request, credential: Credential) -> AuthenticatedCaller | None:
        """Stores the caller for `caller_of`.

        `None` means an anonymous caller. Raises `SignInNeeded` for an invalid token, and `StoreUnavailable`.
        """
        try:
            caller = await self.look(request, credential)
        except SignInNeeded as error:
            await self._refusals.note(error.message)
            raise
        request.scope[CALLER] = caller
        return caller

    def require(self, caller: AuthenticatedCaller | None, scope: Scope) -> None:
        """Raises `SignInNeeded` for an anonymous caller, `Refused` (`scope`)."""
        if caller is None:
            if not self._deps.development:
                raise SignInNeeded(_TOKEN_NEEDED)
        elif scope not in caller.scopes:
            held = ", ".join(f"`{each}`" for each in caller.scopes)
            raise Refused(f"this needs the scope `{scope}`; the token has {held}", code="scope")

    async def look(self, request: Request, credential: Credential) -> AuthenticatedCaller | None:
        """Identify the caller as of now, without storing it. Raises like `identify`."""
        # Refresh first, so that this gateway knows the people that another gateway admitted.
        await self._logins.look()
        if credential == "cookie":
            return await self._by_cookie(request)
        key = request.headers.get(API_KEY) if credential == "key" else None
        return await self._find_by_token(request.headers.get("authorization") if key is None else f"Bearer {key}")

    async def _find_by_token(self, sent: str | None) -> AuthenticatedCaller | None:
        if sent is None:
            return None
        scheme, _, secret = sent.partition(" ")
        # Schemes are case-insensitive (RFC 9110, 11.1).
        if scheme.lower() != "bearer":
            raise SignInNeeded(_TOKEN_NEEDED)
        try:
            token = await self._tokens.authenticate(secret.strip(), self._deps.clock())
        except Refused as error:
            raise SignInNeeded(error.message) from None
        if token.agent:
            actor = self._deps.catalog.actors.get(token.agent)
            if actor is None or actor.external is None:
                raise SignInNeeded("the gateway's manifest declares no external agent for this token")
            agent = Person(id=token.person, tenant=token.tenant)
            return AuthenticatedCaller(agent, "session", token.scopes, agent=token.agent)
        # Tokens and sessions outlive a person's rights: check the directory at every request.
        person = self._active(token.tenant, token.person)
        if person is None:
            raise SignInNeeded("the person of this token is not in the directory, or not active")
        return AuthenticatedCaller(person, "session", token.scopes)

    async def _by_cookie(self, request: Request) -> AuthenticatedCaller | None:
        cookie = request.cookies.get(cookie_name(SESSION, self._deps.settings.public_url), "")
        if not is_session(cookie):
            return None
        session = await self._sessions.find(cookie, self._deps.clock())
        person = None if session is None else self._active(session.tenant, session.person)
        if session is None or person is None:
            return None
        by_provider = not session.token and at_least(session.assurance, "session")
        return AuthenticatedCaller(person, session.assurance, session.scopes, by_provider=by_provider)

    def _active(self, tenant: str, person_id: str) -> Person | None:
        person = self._deps.people.find(person_id, tenant)
        return person if person is not None and person.active else None
