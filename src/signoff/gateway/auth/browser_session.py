"""Opens and closes browser sessions: a row in the store, a new cookie, a redirect."""

from typing import Final

from sqlalchemy import Connection
from starlette.responses import RedirectResponse, Response

from signoff.approvals.audit_events import admin_entry
from signoff.audit.log import entry_writer
from signoff.contracts.decision import Assurance
from signoff.contracts.person import Person
from signoff.gateway.auth.caller import SESSION
from signoff.gateway.auth.visitor import Visitor, Visitors, new_session
from signoff.gateway.deps import GatewayDeps
from signoff.people.vouched_directory import VouchedPerson
from signoff.store.browser_sessions import LIFETIME, StoredSessions
from signoff.store.store import Also
from signoff.store.tokens import Token
from signoff.store.vouched_people import vouched_writer

NEXT_CHARS: Final = 500


class BrowserSessions:
    """Opens and closes the sessions of people, for every way of signing in."""

    def __init__(self, deps: GatewayDeps, visitors: Visitors) -> None:
        self._deps = deps
        self._visitors = visitors
        self._sessions = StoredSessions(deps.store)

    async def enter(
        self,
        person: Person,
        then: str,
        assurance: Assurance,
        token: Token | None = None,
        vouched: VouchedPerson | None = None,
    ) -> Response:
        """The browser gets a new cookie, so a cookie that an attacker planted is worthless.

        `vouched` holds a login's claims about an undeclared person. The session's transaction stores it.
        """
        cookie, now = new_session(), self._deps.clock()
        by = "" if token is None else token.id
        roles = () if vouched is None else vouched.person.roles
        # In the session's transaction: every sign-in has its audit entry, and every vouched person has signed in.
        write_entry = entry_writer(
            [admin_entry(person.tenant, "sign-in", person.id, now, assurance=assurance, token=by, roles=roles)]
        )
        await self._sessions.open(
            cookie,
            tenant=person.tenant,
            person=person.id,
            assurance=assurance,
            now=now,
            token=token,
            also=write_entry if vouched is None else _both(vouched_writer(vouched), write_entry),
        )
        response = RedirectResponse(then, status_code=303)
        self._visitors.set_cookie(response, SESSION, cookie, seconds=int(LIFETIME.total_seconds()))
        return response

    async def leave(self, visitor: Visitor) -> Response:
        person = visitor.person
        entry = admin_entry(person.tenant, "sign-out", person.id, self._deps.clock())
        await self._sessions.close(visitor.session, also=entry_writer([entry]))
        response = RedirectResponse("/login?out=1", status_code=303)
        self._visitors.set_cookie(response, SESSION, "", seconds=0)
        return response


def _both(first: Also, second: Also) -> Also:
    def write(connection: Connection) -> None:
        first(connection)
        second(connection)

    return write


def local_path(wanted: str) -> str:
    """Return `wanted` or "/". Prevents redirects to other sites after sign-in."""
    # Browsers read a backslash as a slash, and two leading slashes as another host. They also drop tabs and line ends
    # (WHATWG URL), so `/<tab>/host` counts as two slashes.
    elsewhere = not wanted.startswith("/") or wanted.startswith("//") or "\\" in wanted or not wanted.isprintable()
    return "/" if elsewhere or len(wanted) > NEXT_CHARS or wanted.startswith(("/login", "/logout")) else wanted
