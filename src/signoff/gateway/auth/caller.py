"""The caller and the acting person of a request."""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from signoff.contracts.decision import Assurance
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.names import DEFAULT_TENANT, TERMINAL_AGENT
from signoff.contracts.person import Person
from signoff.formats.nearest_name import quote_name
from signoff.gateway.auth.person_lookup import known_person
from signoff.gateway.deps import GatewayDeps
from signoff.store.tokens import Scope

SESSION: Final = "signoff_session"
"""The cookie that identifies a browser. Forms are bound to it, and so is the person after sign-in."""
CALLER: Final = "signoff.caller"
"""Key of the caller in a request's ASGI scope."""


@dataclass(frozen=True)
class AuthenticatedCaller:
    """A caller with proven identity, the strength of the proof, and the scopes."""

    person: Person
    assurance: Assurance
    scopes: tuple[Scope, ...]
    agent: str = ""
    """The external agent that owns the token. `person` is then not in the directory and has no other rights."""
    by_provider: bool = False
    """True if an OpenID Connect provider signed this browser in."""


class SignInNeeded(Refused):
    """Raised if sign-in is missing. Pages redirect to the sign-in page; other routes answer 401."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unauthenticated")


def cookie_name(name: str, public_url: str) -> str:
    """Under https, browsers accept a `__Host-` name only from this host.

    Another host of the domain cannot plant one.
    """
    return f"__Host-{name}" if public_url.startswith("https:") else name


def is_session(cookie: str) -> bool:
    return len(cookie) == 64 and cookie.isascii() and cookie.isalnum()


def channel_of(request: Request) -> str:
    """Return `cli` or `api`, from the client's user agent. No rule reads this label."""
    return "cli" if request.headers.get("user-agent", "").startswith(f"{TERMINAL_AGENT}/") else "api"


def caller_of(request: Request) -> AuthenticatedCaller | None:
    """`None` means an anonymous caller."""
    caller: AuthenticatedCaller | None = request.scope.get(CALLER)
    return caller


def person_of(caller: AuthenticatedCaller | None) -> Person | None:
    return None if caller is None else caller.person


def scopes_of(caller: AuthenticatedCaller | None) -> tuple[Scope, ...]:
    return () if caller is None else caller.scopes


def acting_person(
    deps: GatewayDeps,
    caller: AuthenticatedCaller | None,
    named: str | None,
    *,
    default: str,
    tenant: str = DEFAULT_TENANT,
) -> Person:
    """Return the caller.

    In development without sign-in, the person named. Raises `Refused` (`not_allowed`), or `NotFound` for an unknown
    person or another tenant.
    """
    # Production has already refused anonymous requests. Check again: a route that slips past must act for no person.
    if caller is None:
        if not deps.development:
            raise SignInNeeded("nobody signed in")
        return known_person(deps.people, default if named is None else named, tenant)
    if named not in (None, caller.person.id):
        raise Refused(
            f"this token is of `{caller.person.id}` and cannot act as {quote_name(named)}", code="not_allowed"
        )
    own_tenant(caller, tenant)
    return caller.person


def own_tenant(caller: AuthenticatedCaller | None, tenant: str | None) -> str:
    """By default, return the caller's own tenant. Raises `NotFound` for another one."""
    own = DEFAULT_TENANT if caller is None else caller.person.tenant
    # Not 403: a caller must not learn whether another tenant of this name exists.
    if caller is not None and tenant not in (None, own):
        raise NotFound("there is nothing of that name here")
    return own if tenant is None else tenant
