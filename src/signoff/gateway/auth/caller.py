"""Tells who sends a request, and as whom it acts."""

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
"""The cookie of a browser: what its forms are bound to and, once somebody signed in there, who that is."""
CALLER: Final = "signoff.caller"
"""Where in a request's scope its caller is kept."""


@dataclass(frozen=True)
class AuthenticatedCaller:
    """Somebody who proved who they are, how strongly, and what they may do here."""

    person: Person
    assurance: Assurance
    scopes: tuple[Scope, ...]
    agent: str = ""
    """The external agent whose token it is; then `person` is nobody of the directory, and may do nothing else."""


class SignInNeeded(Refused):
    """Raised where nobody signed in. Pages lead to the sign-in, everything else is answered 401."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unauthenticated")


def cookie_name(name: str, public_url: str) -> str:
    """Return the name of a cookie at `public_url`.

    Under https browsers take a `__Host-` name from this very host alone. Another host of the domain cannot plant one.
    """
    return f"__Host-{name}" if public_url.startswith("https:") else name


def is_session(cookie: str) -> bool:
    """Returns whether a cookie could be one of ours."""
    return len(cookie) == 64 and cookie.isascii() and cookie.isalnum()


def channel_of(request: Request) -> str:
    """Returns by what a request of the API was sent, as it says of itself: a label of the record, read by no rule."""
    return "cli" if request.headers.get("user-agent", "").startswith(f"{TERMINAL_AGENT}/") else "api"


def caller_of(request: Request) -> AuthenticatedCaller | None:
    """Returns the caller of a request that was let in; None for nobody in particular."""
    caller: AuthenticatedCaller | None = request.scope.get(CALLER)
    return caller


def person_of(caller: AuthenticatedCaller | None) -> Person | None:
    """Returns the person behind a caller."""
    return None if caller is None else caller.person


def scopes_of(caller: AuthenticatedCaller | None) -> tuple[Scope, ...]:
    """Return what a caller may do here."""
    return () if caller is None else caller.scopes


def acting_person(
    deps: GatewayDeps,
    caller: AuthenticatedCaller | None,
    named: str | None,
    *,
    default: str,
    tenant: str = DEFAULT_TENANT,
) -> Person:
    """Returns as whom a request acts: the caller, who cannot name anybody else; in development whoever is named.

    Raises `Refused` (`not_allowed`), `NotFound` for a person or a tenant that is not the caller's.
    """
    # In production nobody's requests were refused already. Asked again: a route past that must act for no one.
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
    """Returns the tenant that a request is about: the caller's own when it names none.

    Raises `NotFound` for another's.
    """
    own = DEFAULT_TENANT if caller is None else caller.person.tenant
    # Not a 403: whether there is another tenant of this name is nobody's business.
    if caller is not None and tenant not in (None, own):
        raise NotFound("there is nothing of that name here")
    return own if tenant is None else tenant
