"""The door: who comes in, and what for. A personal token, a browser that signed in, or, in development, anybody."""

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final, TypeAlias

from fastapi import Query, Security
from fastapi.security import HTTPBearer
from starlette.requests import Request
from starlette.responses import StreamingResponse

from signoff.contracts.decision import Assurance
from signoff.contracts.errors import NotFound, Refused, SignoffError
from signoff.contracts.limits import STREAMS_OF_ONE
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.formats.nearest_name import shown
from signoff.gateway.auth.failed_sign_ins import Refusals
from signoff.gateway.auth.person_lookup import known_person
from signoff.gateway.auth.provider_people import Logins
from signoff.gateway.body_limit import READING
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.errors import BadRequest
from signoff.gateway.middleware import API
from signoff.store.browser_sessions import Sessions
from signoff.store.tokens import Scope, Tokens

SESSION: Final = "signoff_session"
"""The cookie of a browser: what its forms are bound to and, once somebody signed in there, who that is."""
OPEN_TO_ALL: Final = ("/login", "/logout", "/link", "/language", "/icon.svg")
"""What needs no sign-in, with all below it: these show nothing of an installation, or check what they are given."""
READY: Final = "/readyz"
HEALTH: Final = ("/healthz", READY)
"""Answered to whoever asks; who shows a token at `READY` is told more."""
CHANNELS: Final = "/channels/"
"""Where vendors bring what people say; each channel checks by itself who brings it."""
_BEARER: Final = HTTPBearer(
    # Else FastAPI would answer for us where the header is missing, in development as well.
    auto_error=False,
    scheme_name="personal token",
    description="`signoff token create` makes one; scopes `read`, `decide`, `start`. Needless in development.",
)
_CALLER: Final = "signoff.caller"
_STARTING: Final = (f"{API}turns", f"{API}sessions", "/turns", "/sessions")
_DOOR: Final = "signoff.door"
_ADMITTED: Final = "signoff.admitted"
Allowed: TypeAlias = Callable[[Person], Awaitable[bool]]
"""Whether a person may go on following something."""
As: TypeAlias = Annotated[
    str | None, Query(alias="as", description="Who acts, or whose list it is: oneself, unless in development.")
]
"""The person as whom a request acts; see `acting`."""
LOOK_AGAIN: Final = timedelta(seconds=10)
"""How often it is asked whether whoever follows live updates is still let in."""


@dataclass(frozen=True)
class Caller:
    """Somebody who proved who they are, how strongly, and what they may do here."""

    person: Person
    assurance: Assurance
    scopes: tuple[Scope, ...]


class SignInNeeded(Refused):
    """Nobody signed in. Pages lead to the sign-in, everything else is answered 401."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unauthenticated")


class Door:
    """Admits or refuses every request before its handler sees it.

    The API takes personal tokens only, never cookies; pages take the cookie of a browser that signed in. Without
    either, only the development profile goes on, where people say who they are.
    """

    def __init__(self, deps: GatewayDeps, logins: Logins) -> None:
        self._deps = deps
        self._logins = logins
        self._tokens = Tokens(deps.store)
        self._sessions = Sessions(deps.store)
        self._refusals = Refusals(deps, "api")
        self._streams: Counter[str] = Counter()

    async def admit(self, request: Request, described: Annotated[object, Security(_BEARER)] = None) -> None:
        """Let a request in, once. Raises `SignInNeeded`, `Refused` (`scope`), `StoreUnavailable`.

        `described` is there for the API's description alone: what is sent is read here, strictly.
        """
        # Who brings a body was asked before it was read.
        if _ADMITTED not in request.scope:
            await self._admit(request)
            request.scope[_ADMITTED] = True

    async def _admit(self, request: Request) -> None:
        path = request.scope["path"]
        # Health has to answer while the store is away: a liveness probe must not restart a gateway for that.
        asks_more = path == READY and "authorization" in request.headers
        if path.startswith(CHANNELS) or (path in HEALTH and not asks_more):
            return
        try:
            caller = await self._caller(request)
        except SignInNeeded as error:
            await self._refusals.note(error.message)
            raise
        # Also for what is open to all: the sign-in sends those on who are signed in already.
        request.scope[_CALLER], request.scope[_DOOR] = caller, self
        if open_to_all(path):
            return
        if caller is None:
            if self._deps.settings.profile != "development":
                raise SignInNeeded("send a personal token: `Authorization: Bearer sgf_...`")
            return
        needed = scope_of(request.method, path)
        if needed not in caller.scopes:
            raise Refused(f"this needs the scope `{needed}`; the token has {_listed(caller.scopes)}", code="scope")

    async def while_known(
        self, request: Request, events: AsyncGenerator[str, None], allowed: Allowed | None = None
    ) -> AsyncIterator[str]:
        """`events`, until whoever asked for them is signed out, revoked, gone, or no more `allowed` to follow them.

        A stream may outlast that by hours.
        """
        looked = self._deps.clock()
        async with contextlib.aclosing(events), self._counted(caller_of(request)):
            async for event in events:
                # Heartbeats pass here, too, so that the reader of a silent stream is looked at as well.
                if caller_of(request) is not None and self._deps.clock() - looked >= LOOK_AGAIN:
                    if not await self._still(request, allowed):
                        return
                    looked = self._deps.clock()
                yield event

    def check_streams(self, caller: Caller | None) -> None:
        """Raise `BadRequest` (429) for who follows as much as one person may: each stream holds a connection."""
        if caller is not None and self._streams[_stream_owner(caller)] >= STREAMS_OF_ONE:
            told = f"you follow {STREAMS_OF_ONE} streams already; close some first"
            raise BadRequest(told, status=429, code="streams")

    @contextlib.asynccontextmanager
    async def _counted(self, caller: Caller | None) -> AsyncIterator[None]:
        if caller is None:
            yield
            return
        owner = _stream_owner(caller)
        self._streams[owner] += 1
        try:
            yield
        finally:
            self._streams[owner] -= 1
            if not self._streams[owner]:
                del self._streams[owner]

    async def _still(self, request: Request, allowed: Allowed | None) -> bool:
        try:
            caller = await self._caller(request)
            return caller is not None and (allowed is None or await allowed(caller.person))
        # A store that is away ends the stream: nobody can say that its reader is still let in.
        except SignoffError:
            return False

    async def _caller(self, request: Request) -> Caller | None:
        path = request.scope["path"]
        # First, so that whom another gateway let in is known to this one.
        await self._logins.look()
        # A cookie would be sent along by other sites' pages, and no form's value guards the API.
        with_token = path == READY or path.startswith(API)
        return await (self._by_token(request) if with_token else self._by_cookie(request))

    async def _by_token(self, request: Request) -> Caller | None:
        sent = request.headers.get("authorization")
        if sent is None:
            return None
        scheme, _, secret = sent.partition(" ")
        # Schemes are compared without regard to case (RFC 9110, 11.1).
        if scheme.lower() != "bearer":
            raise SignInNeeded("send a personal token: `Authorization: Bearer sgf_...`")
        try:
            token = await self._tokens.known(secret.strip(), self._deps.clock())
        except Refused as error:
            raise SignInNeeded(error.message) from None
        # Tokens and sessions outlive what people may do: the directory is asked at every request.
        person = self._active(token.tenant, token.person)
        if person is None:
            raise SignInNeeded("the person of this token is not in the directory, or not active any more")
        return Caller(person, "session", token.scopes)

    async def _by_cookie(self, request: Request) -> Caller | None:
        cookie = request.cookies.get(SESSION, "")
        if not is_session(cookie):
            return None
        session = await self._sessions.known(cookie, self._deps.clock())
        person = None if session is None else self._active(session.tenant, session.person)
        if session is None or person is None:
            return None
        return Caller(person, session.assurance, session.scopes)

    def _active(self, tenant: str, person_id: str) -> Person | None:
        person = self._deps.people.find(person_id, tenant)
        return person if person is not None and person.active else None


def open_to_all(path: str) -> bool:
    """Whether a path is answered to whoever asks, so that a body sent there is a stranger's."""
    return any(path == each or path.startswith(f"{each}/") for each in OPEN_TO_ALL)


def scope_of(method: str, path: str) -> Scope:
    """What a request needs: looking is `read`; turns and sessions begin and stop with `start`; all else is `decide`."""
    # A form of `/tools/` judges a made-up call; nothing runs and nobody is asked.
    if method in READING or path.startswith("/tools/"):
        return "read"
    return "start" if path.startswith(_STARTING) else "decide"


def is_session(cookie: str) -> bool:
    """Whether a cookie could be one of ours."""
    return len(cookie) == 64 and cookie.isascii() and cookie.isalnum()


def caller_of(request: Request) -> Caller | None:
    """Who sent a request that came in by the door; None for nobody in particular."""
    caller: Caller | None = request.scope.get(_CALLER)
    return caller


def person_of(request: Request) -> Person | None:
    """The person behind `caller_of`."""
    caller = caller_of(request)
    return None if caller is None else caller.person


def streamed(request: Request, events: AsyncGenerator[str, None], allowed: Allowed | None = None) -> StreamingResponse:
    """Server-sent events for whoever sent `request`, as long as they are let in, and `allowed` where that is asked."""
    door: Door = request.scope[_DOOR]
    door.check_streams(caller_of(request))
    # nginx holds back what it proxies until a buffer is full; events would come late and in heaps.
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(
        door.while_known(request, events, allowed), media_type="text/event-stream", headers=headers
    )


def _stream_owner(caller: Caller) -> str:
    return f"{caller.person.tenant}/{caller.person.id}"


def acting(
    deps: GatewayDeps, caller: Caller | None, named: str | None, *, default: str, tenant: str = DEFAULT_TENANT
) -> Person:
    """As whom a request acts: the caller, who cannot name anybody else; in development whoever is named.

    Raises `Refused` (`not_allowed`), `NotFound` for a person or a tenant that is not the caller's.
    """
    # In production the door has refused nobody's requests. Asked again: a route past it must act for no one.
    if caller is None:
        if deps.settings.profile != "development":
            raise SignInNeeded("nobody signed in")
        return known_person(deps.people, default if named is None else named, tenant)
    if named not in (None, caller.person.id):
        raise Refused(f"this token is of `{caller.person.id}` and cannot act as {shown(named)}", code="not_allowed")
    own_tenant(caller, tenant)
    return caller.person


def own_tenant(caller: Caller | None, tenant: str | None) -> str:
    """The tenant that a request is about; the caller's own when it names none. Raises `NotFound` for another's."""
    own = DEFAULT_TENANT if caller is None else caller.person.tenant
    # Not a 403: whether there is another tenant of this name is nobody's business.
    if caller is not None and tenant not in (None, own):
        raise NotFound("there is nothing of that name here")
    return own if tenant is None else tenant


def _listed(scopes: tuple[Scope, ...]) -> str:
    return ", ".join(f"`{scope}`" for scope in scopes)
