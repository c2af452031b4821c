"""Opens and closes sessions of browsers: a row in the store, a new cookie, and on to the page that was wanted."""

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
    """Opens and closes the sessions of people who signed in, however they were recognised."""

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
        """Signs a person in. The browser gets a new cookie: one set before by somebody else is worthless.

        `vouched` is what a login said of a person whom nobody declared; it is written down with the session.
        """
        cookie, now = new_session(), self._deps.clock()
        by = "" if token is None else token.id
        roles = () if vouched is None else vouched.person.roles
        # Written with the session: nobody is in without a record of it, or vouched for without having come in.
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
        """Signs out: the session is over, not only its cookie gone."""
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
    """Returns `wanted` if it is a page of ours, else the first page: nobody is led elsewhere after signing in."""
    # Browsers read a backslash as a slash, and two slashes at the beginning as another host.
    # Tabs and line ends they leave out (WHATWG URL): `/<tab>/host` would be two slashes as well.
    elsewhere = not wanted.startswith("/") or wanted.startswith("//") or "\\" in wanted or not wanted.isprintable()
    return "/" if elsewhere or len(wanted) > NEXT_CHARS or wanted.startswith(("/login", "/logout")) else wanted
