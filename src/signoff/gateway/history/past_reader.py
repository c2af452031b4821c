"""Finds past requests for the people who may read them. Rights are part of each search and each count."""

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, Literal, TypeAlias

from signoff.contracts.errors import BadRequest
from signoff.contracts.person import Person
from signoff.contracts.responses import PastRequest, PastRequestList
from signoff.formats.json_reader import read_json
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.read_access import Audience, may_read, reads_all
from signoff.store.history.past_requests import COUNTED, FoundRow, PastSearch, find_seen, search_past
from signoff.store.history.search_words import mark, marks, words_of

Scope: TypeAlias = Literal["all", "mine", "team"]
"""All readable requests, requests with an own answer, or requests to own roles."""
TEXT_CHARS: Final = 500
TEXT_WORDS: Final = 20
"""Words of one search."""
_EXPORT_PIECE: Final = 500
_NUMBER_DIGITS: Final = 19


@dataclass(frozen=True)
class PastFilter:
    """The wanted requests. An empty field matches all."""

    text: str = ""
    """Each of its words is on the card."""
    scope: Scope = "all"
    tool: str = ""
    actor: str = ""
    person: str = ""
    """The id of its requester, or of a person with an answer to it."""
    state: str = ""
    channel: str = ""
    since: datetime | None = None
    until: datetime | None = None
    """Exclusive."""


class PastReader:
    """Reads the history of one tenant for `person`. `None` is an anonymous caller, as in development alone.

    Methods raise `BadRequest` for a search of too many words, and for an unknown page.
    """

    def __init__(self, deps: GatewayDeps, tenant: str, person: Person | None) -> None:
        self._deps = deps
        self._tenant = tenant
        self._person = person
        self._rights = () if person is None else deps.rights(person)

    async def find(
        self, chosen: PastFilter, *, own: Person | None = None, after: str = "", limit: int = 50
    ) -> PastRequestList:
        """Return a page, newest first. `own` is the person of the scopes `mine` and `team`, by default the reader."""
        wanted = self._search(chosen, own or self._person)
        return await self._page(wanted, after, limit)

    async def find_own(self, tool: str, verdict: str, limit: int) -> PastRequestList:
        """Return requests of a tool with the reader's own answer `verdict`."""
        who = "" if self._person is None else self._person.id
        own = frozenset((mark(self._tenant, "answer", who, verdict),))
        groups = (*self._base(), own, marks(self._tenant, "tool", (tool,)))
        return await self._page(PastSearch(groups), "", limit)

    async def find_values(self, tool: str, values: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Return those of the `values`, each an argument and its text, that an approved request of the tool had."""
        named = {mark(self._tenant, "value", tool, *each): each for each in values}
        seen = await self._deps.store.read(partial(find_seen, wanted=PastSearch(self._base()), words=named.keys()))
        return frozenset(named[each] for each in seen)

    async def every(
        self, chosen: PastFilter, *, own: Person | None = None, limit: int
    ) -> AsyncGenerator[PastRequest, None]:
        """Yield the requests of all pages, at most `limit`."""
        after, left = "", limit
        while left > 0:
            page = await self.find(chosen, own=own, after=after, limit=min(left, _EXPORT_PIECE))
            for each in page.decisions:
                yield each
            left -= _EXPORT_PIECE
            after = page.next
            if not after:
                return

    async def _page(self, wanted: PastSearch, after: str, limit: int) -> PastRequestList:
        before = _number(after)
        page = await self._deps.store.read(partial(search_past, wanted=wanted, before=before, limit=limit + 1))
        shown = page.rows[:limit]
        return PastRequestList(
            decisions=tuple(PastRequest.model_validate_json(row.body) for row in shown if self._may_read(row)),
            count=page.count,
            more=page.count == COUNTED,
            next=str(shown[-1].number) if len(page.rows) > limit else "",
        )

    def _search(self, chosen: PastFilter, own: Person | None) -> PastSearch:
        words = words_of(chosen.text)
        if len(words) > TEXT_WORDS or len(chosen.text) > TEXT_CHARS:
            raise BadRequest(f"a search has at most {TEXT_WORDS} words and {TEXT_CHARS} characters")
        groups = [*self._base(), *(frozenset((each,)) for each in words)]
        if chosen.text.strip() and not words:
            # Signs alone are on no card.
            groups.append(frozenset())
        if chosen.scope == "mine":
            groups.append(marks(self._tenant, "answer", () if own is None else (own.id,)))
        if chosen.scope == "team":
            roles = () if own is None else own.roles
            groups.append(marks(self._tenant, "reader", (f"role:{role}" for role in roles)))
        named = (("tool", chosen.tool), ("actor", chosen.actor), ("person", chosen.person))
        for kind, value in (*named, ("state", chosen.state), ("channel", chosen.channel)):
            if value:
                groups.append(frozenset((mark(self._tenant, kind, value),)))  # type: ignore[arg-type]
        return PastSearch(tuple(groups), chosen.since, chosen.until)

    def _base(self) -> tuple[frozenset[str], ...]:
        """Return the groups of the tenant and of the reader's rights."""
        tenant, person = frozenset((mark(self._tenant, "tenant"),)), self._person
        if self._deps.development:
            return (tenant,)
        if person is None or not person.active or person.tenant != self._tenant:
            return tenant, frozenset()
        if reads_all(person, development=False):
            return (tenant,)
        return tenant, marks(self._tenant, "reader", self._rights) | marks(self._tenant, "asker", (person.id,))

    def _may_read(self, row: FoundRow) -> bool:
        """Checks the row itself, as for every list. The search has found no other."""
        readers = read_json(row.readers)
        about = Audience(self._tenant, frozenset(readers["askers"]), frozenset(readers["asked"]))
        development = self._deps.development
        if self._person is None:
            return development
        return may_read(self._person, self._rights, about, development=development)


def _number(after: str) -> int | None:
    if not after:
        return None
    if not (after.isascii() and after.isdigit() and len(after) < _NUMBER_DIGITS):
        raise BadRequest("`after` names no page: use `next` of the page before")
    return int(after)
